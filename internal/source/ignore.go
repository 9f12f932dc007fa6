package source

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/gitignore"
	"github.com/terrier-iac/terrier/internal/archive"
)

// ignoreFile holds rules for the directory it is in and those below.
const ignoreFile = ".sourceignore"

// Bounds of rules for what to leave out. Each takes memory, and each file is compared with all
// of them. One file of rules may be in many directories of a repository, where it takes little.
const (
	mostRules   = 5000    // of a source, of all files
	ignoreBytes = 1 << 20 // of one file
)

func tooManyRules() error {
	return invalid(archive.Reason, "there are more than %d rules for what to leave out: write fewer, for instance with directories in place of files", mostRules)
}

// Files that are never part of an archive, and files that are not without rules of
// the user. Both lists are part of Flux's contract.
var (
	ignoreVCS = []string{".git/", ".gitignore", ".gitmodules", ".gitattributes"}

	ignoreByDefault = []string{
		"*.jpg", "*.jpeg", "*.gif", "*.png", "*.wmv", "*.flv", "*.tar.gz", "*.zip",
		".github/", ".circleci/", ".travis.yml", ".gitlab-ci.yml", "appveyor.yml", ".drone.yml",
		"cloudbuild.yaml", "codeship-services.yml", "codeship-steps.yml",
		"**/.goreleaser.yml", "**/.sops.yaml", "**/.flux.yaml",
	}
)

// ignoreRules are the rules that do not come from the tree itself.
type ignoreRules struct {
	always   []string // first, so that others can take things back in
	fallback []string // only if there are no others
	own      *string  // last, so that they win
}

// sourceRules are the rules for what comes from git and from registries.
func sourceRules(own *string) ignoreRules {
	return ignoreRules{always: ignoreVCS, fallback: ignoreByDefault, own: own}
}

// load adds the rules that the tree below dir holds and returns what to skip.
func (r ignoreRules) load(dir string) (archive.Skip, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("reading ignore rules: %w", err)
	}
	defer root.Close()
	var found []gitignore.Pattern
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || path.Base(name) != ignoreFile {
			return err
		}
		f, err := root.Open(name)
		if err != nil {
			return err
		}
		patterns, err := readIgnore(f, split(path.Dir(name)))
		if found = append(found, patterns...); err == nil && len(found) > mostRules {
			err = tooManyRules()
		}
		return errors.Join(err, f.Close())
	})
	if err != nil {
		return nil, fmt.Errorf("reading ignore rules: %w", err)
	}
	return r.with(found)
}

// with returns what to skip given rules that were found in the tree.
func (r ignoreRules) with(found []gitignore.Pattern) (archive.Skip, error) {
	if r.own != nil {
		own, err := readIgnore(strings.NewReader(*r.own), nil)
		if err != nil {
			return nil, err
		}
		found = append(found, own...)
	}
	if len(found) > mostRules {
		return nil, tooManyRules()
	}
	var all []gitignore.Pattern
	for _, p := range r.always {
		all = append(all, gitignore.ParsePattern(p, nil))
	}
	if len(found) == 0 {
		for _, p := range r.fallback {
			all = append(all, gitignore.ParsePattern(p, nil))
		}
	}
	matcher := gitignore.NewMatcher(append(all, found...))
	return func(name string, dir bool) bool { return matcher.Match(split(name), dir) }, nil
}

// readIgnore reads rules that hold below the directory domain.
func readIgnore(r io.Reader, domain []string) ([]gitignore.Pattern, error) {
	var patterns []gitignore.Pattern
	text := &io.LimitedReader{R: r, N: ignoreBytes + 1}
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		line := strings.TrimRight(lines.Text(), "\r")
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if len(patterns) == mostRules {
			return nil, tooManyRules()
		}
		patterns = append(patterns, gitignore.ParsePattern(line, domain))
	}
	if err := lines.Err(); err != nil {
		return nil, invalid(archive.Reason, "reading ignore rules: %w", err)
	}
	if text.N == 0 { // a rule that is not read would let a file in
		return nil, invalid(archive.Reason, "the rules for what to leave out have more than %d KiB: write fewer", ignoreBytes>>10)
	}
	return patterns, nil
}

// split returns the parts of a clean name; the root has none.
func split(name string) []string {
	if name == "." {
		return nil
	}
	return strings.Split(name, "/")
}
