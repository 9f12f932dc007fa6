package source

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/gitignore"

	"github.com/terrier-iac/terrier/internal/archive"
)

// ReasonModule is the reason of the fault of a directory that cannot be published as a
// module.
const ReasonModule = "ModuleInvalid"

// ModuleTree is the directory of a module, less the files that no archive of it has. Modules
// that users push, and those that come from tags of git, are packed by the same rules.
type ModuleTree struct {
	dir  string
	skip archive.Skip
}

// ModuleIgnore is the file of a module with patterns of files to leave out, as in a
// .gitignore file.
const ModuleIgnore = ".terraformignore"

// moduleIgnoreBytes bounds the file ModuleIgnore.
const moduleIgnoreBytes = 256 << 10

// Files that are left out: the first ones always, and the others unless the user takes them
// back in.
var (
	moduleNever   = []string{".git/", ".git", ".terraform/", "/.terrier-module.hcl", "/boring-registry.hcl"}
	moduleUsually = []string{"*.tfstate", "*.tfstate.*", "crash.log", "crash.*.log"}
)

// OpenModule checks the directory of a module. Exclude has patterns of a .gitignore file,
// after those of the file ModuleIgnore; the last that matches decides.
func OpenModule(dir string, exclude []string) (ModuleTree, error) {
	t := ModuleTree{dir: dir}
	own, err := moduleIgnored(dir)
	if err != nil {
		return t, err
	}
	var all []gitignore.Pattern
	for _, p := range exclude {
		if strings.TrimSpace(strings.TrimPrefix(p, "!")) == "" {
			return t, invalid(ReasonModule, "--exclude %q is no pattern: write it as in a .gitignore file", p)
		}
	}
	for _, patterns := range [][]string{moduleUsually, own, exclude, moduleNever} {
		for _, p := range patterns {
			all = append(all, gitignore.ParsePattern(p, nil))
		}
	}
	matcher := gitignore.NewMatcher(all)
	t.skip = func(name string, dir bool) bool {
		return name != "." && matcher.Match(strings.Split(name, "/"), dir)
	}
	return t, t.check()
}

// moduleIgnored reads the patterns of the file ModuleIgnore, if the module has it.
func moduleIgnored(dir string) ([]string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the module: %w", err)
	}
	defer root.Close()
	f, err := root.Open(ModuleIgnore)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, invalid(ReasonModule, "reading %s: %w", ModuleIgnore, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, moduleIgnoreBytes+1))
	switch {
	case err != nil:
		return nil, invalid(ReasonModule, "reading %s: %w", ModuleIgnore, err)
	case len(text) > moduleIgnoreBytes:
		return nil, invalid(ReasonModule, "%s is larger than %d KiB", ModuleIgnore, moduleIgnoreBytes>>10)
	}
	var patterns []string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\r\n")
		if strings.TrimSpace(line) != "" && !strings.HasPrefix(line, "#") {
			patterns = append(patterns, line)
		}
	}
	if len(patterns) > mostRules {
		return nil, invalid(ReasonModule, "%s has more than %d patterns: write fewer, for instance with directories in place of files", ModuleIgnore, mostRules)
	}
	return patterns, nil
}

// Each calls visit for the files that Pack packs, symbolic links among them.
func (t ModuleTree) Each(visit func(name string, d fs.DirEntry) error) error {
	return fs.WalkDir(os.DirFS(t.dir), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if base := path.Base(name); base == ".git" || base == ".terraform" {
				return fs.SkipDir // large, and never packed
			}
			return nil
		case t.skip(name, false):
			return nil
		}
		return visit(name, d)
	})
}

// check refuses what is no module, and files whose content is elsewhere.
func (t ModuleTree) check() error {
	declares := false
	err := t.Each(func(name string, _ fs.DirEntry) error {
		for _, end := range []string{".tf", ".tofu", ".tf.json", ".tofu.json"} {
			declares = declares || strings.HasSuffix(name, end)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading the module: %w", err)
	}
	if !declares {
		return invalid(ReasonModule, "there is no file *.tf, *.tofu, *.tf.json or *.tofu.json, so it is no module")
	}
	left, err := FindPointer(os.DirFS(t.dir), ".", func(name string) bool { return t.skip(name, false) })
	if err != nil {
		return fmt.Errorf("reading the module: %w", err)
	}
	if left != "" {
		return invalid(ReasonModule, "%s is a pointer of Git LFS without its content: run git lfs pull", left)
	}
	return nil
}

// Pack writes the archive of the module. The same files make the same bytes.
func (t ModuleTree) Pack(w io.Writer) error {
	return archive.Pack(filepath.Clean(t.dir), t.skip, w, archive.Limits{})
}
