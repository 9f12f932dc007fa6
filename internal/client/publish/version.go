package publish

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	"github.com/go-git/go-billy/v5"
	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/storage/filesystem"
	"github.com/go-git/go-git/v5/storage/filesystem/dotgit"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/fault"
)

// pessimistic is the operator ~> with its version. The library knows the operator, with
// another meaning for two numbers: for the engine ~> 1.2 is below 2, for the library below 1.3.
var pessimistic = regexp.MustCompile(`~>\s*(\d+)(?:\.(\d+))?(?:\.(\d+))?(-[0-9A-Za-z.-]+)?`)

// constraint reads a constraint as the argument version of a module has it.
func constraint(text string) (func(address.Version) bool, error) {
	if text == "" {
		return func(address.Version) bool { return true }, nil
	}
	spelled := pessimistic.ReplaceAllStringFunc(text, func(found string) string {
		part := pessimistic.FindStringSubmatch(found)
		low := strings.TrimSpace(strings.TrimPrefix(found, "~>"))
		if part[3] != "" {
			return ">= " + low + ", < " + part[1] + "." + next(part[2]) + ".0-0"
		}
		return ">= " + low + ", < " + next(part[1]) + ".0.0-0"
	})
	c, err := semver.NewConstraint(spelled)
	if err != nil {
		return nil, invalid(ReasonVersion, "--version-constraints-semver %q is no constraint of versions, such as \">= 1.2.0, < 2.0.0\"", text)
	}
	return func(v address.Version) bool {
		parsed, err := semver.StrictNewVersion(string(v))
		return err == nil && c.Check(parsed)
	}, nil
}

// next is the number after a decimal one.
func next(number string) string {
	var n uint64
	// The pattern has digits alone; a number that is too large makes the constraint invalid.
	if _, err := fmt.Sscan(number, &n); err != nil {
		return "x"
	}
	return fmt.Sprint(n + 1)
}

// tagged is the version of the one tag of the commit that is checked out. With several
// modules, those without a tag are skipped. The files have to be those of the commit.
func (m Module) tagged(prefix string, several bool) (version, skipped string, err error) {
	repository, ok, err := openRepository(m.Dir)
	if err != nil {
		return "", "", fmt.Errorf("reading the git repository: %w", err)
	}
	if !ok {
		return "", "", invalid(ReasonVersion, "--version-from-tag: %s is not in a git repository: name the version with --version", m.Dir)
	}
	head, err := storer.ResolveReference(repository.objects, plumbing.HEAD)
	if errors.Is(err, plumbing.ErrReferenceNotFound) {
		return "", "", invalid(ReasonVersion, "--version-from-tag: the git repository has no commit")
	}
	if err != nil {
		return "", "", fmt.Errorf("reading the git repository: %w", err)
	}
	versions, err := repository.versions(head.Hash(), prefix)
	if err != nil {
		return "", "", fmt.Errorf("reading the tags of the git repository: %w", err)
	}
	commit := head.Hash().String()[:12]
	switch {
	case len(versions) == 0 && several:
		return "", fmt.Sprintf("the commit %s has no tag %sX.Y.Z", commit, prefix), nil
	case len(versions) == 0:
		return "", "", fault.New(fault.Missing, ReasonVersion, fmt.Errorf("the commit %s has no tag %sX.Y.Z or %[2]svX.Y.Z: run git tag %[2]sv1.0.0, or in CI fetch the tags", commit, prefix))
	case len(versions) > 1:
		return "", "", invalid(ReasonVersion, "the commit %s has tags of several versions, %s: name one with --version", commit, strings.Join(versions, " and "))
	}
	return versions[0], "", m.committed(repository, head.Hash())
}

// repository is a git repository with files that are checked out.
type repository struct {
	root    string // of the files
	objects *filesystem.Storage
}

// openRepository finds the repository that a directory is in.
func openRepository(dir string) (r repository, ok bool, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return r, false, err
	}
	for r.root = dir; ; r.root = filepath.Dir(r.root) {
		at := filepath.Join(r.root, ".git")
		info, err := os.Stat(at)
		switch {
		case err == nil && !info.IsDir():
			at, err = pointed(at, "gitdir: ") // of a worktree or a submodule
			if err != nil {
				return r, false, err
			}
			fallthrough
		case err == nil:
			r.objects, err = openObjects(at)
			return r, err == nil, err
		case !errors.Is(err, fs.ErrNotExist):
			return r, false, err
		case filepath.Dir(r.root) == r.root:
			return r, false, nil
		}
	}
}

// openObjects opens the directory .git. That of a worktree shares objects and tags with
// those of others.
func openObjects(at string) (*filesystem.Storage, error) {
	var files billy.Filesystem = osfs.New(at)
	switch common, err := pointed(filepath.Join(at, "commondir"), ""); {
	case err == nil:
		files = dotgit.NewRepositoryFilesystem(files, osfs.New(common))
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	return filesystem.NewStorage(files, cache.NewObjectLRUDefault()), nil
}

// pointed reads the path that a file of git holds, relative to the file.
func pointed(file, label string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	to, ok := strings.CutPrefix(strings.TrimSpace(string(text)), label)
	if !ok {
		return "", fmt.Errorf("%s does not begin with %q", file, label)
	}
	if !filepath.IsAbs(to) {
		to = filepath.Join(filepath.Dir(file), to)
	}
	return to, nil
}

// versions are those of the tags of a commit, annotated or not, that begin with a prefix.
func (r repository) versions(commit plumbing.Hash, prefix string) ([]string, error) {
	refs, err := r.objects.IterReferences()
	if err != nil {
		return nil, err
	}
	var versions []string
	err = refs.ForEach(func(ref *plumbing.Reference) error {
		rest, ok := strings.CutPrefix(ref.Name().Short(), prefix)
		if !ok || !ref.Name().IsTag() {
			return nil
		}
		version, err := address.ParseVersion(strings.TrimPrefix(rest, "v"))
		if err != nil || slices.Contains(versions, string(version)) {
			return nil //nolint:nilerr // another kind of tag
		}
		at := ref.Hash()
		switch tag, err := object.GetTag(r.objects, at); {
		case err == nil:
			at = tag.Target
		case !errors.Is(err, plumbing.ErrObjectNotFound):
			return err
		}
		if at == commit {
			versions = append(versions, string(version))
		}
		return nil
	})
	slices.Sort(versions)
	return versions, err
}

// committed refuses files that the commit does not have with the same content: the version
// of a tag names what is in the repository.
func (m Module) committed(r repository, hash plumbing.Hash) error {
	commit, err := object.GetCommit(r.objects, hash)
	if err != nil {
		return fmt.Errorf("reading the commit: %w", err)
	}
	tree, err := commit.Tree()
	if err != nil {
		return fmt.Errorf("reading the commit: %w", err)
	}
	below, err := inside(r.root, m.Dir)
	if err != nil {
		return err
	}
	return m.tree.Each(func(name string, d fs.DirEntry) error {
		entry, err := tree.FindEntry(path.Join(below, name))
		if errors.Is(err, object.ErrEntryNotFound) || errors.Is(err, object.ErrDirectoryNotFound) {
			return invalid(ReasonVersion, "%s is not committed, so the tag is not the version of it: commit it, leave it out with --exclude, or name the version with --version", name)
		}
		if err != nil {
			return fmt.Errorf("reading the commit: %w", err)
		}
		sum, err := blobHash(filepath.Join(m.Dir, filepath.FromSlash(name)), d)
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		if sum != entry.Hash {
			return invalid(ReasonVersion, "%s is not as the commit has it, so the tag is not the version of it: commit the change, or name the version with --version", name)
		}
		return nil
	})
}

// inside is the path of a directory relative to one above it, with slashes.
func inside(above, dir string) (string, error) {
	above, err := filepath.EvalSymlinks(above)
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "", err
	}
	rel, err := filepath.Rel(above, dir)
	return filepath.ToSlash(rel), err
}

// blobHash is the hash of a file as git has it. Git keeps the target of a symbolic link as
// its content.
func blobHash(file string, d fs.DirEntry) (plumbing.Hash, error) {
	if d.Type() == fs.ModeSymlink {
		target, err := os.Readlink(file)
		return plumbing.ComputeHash(plumbing.BlobObject, []byte(target)), err
	}
	f, err := os.Open(file)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return plumbing.ZeroHash, err
	}
	h := plumbing.NewHasher(plumbing.BlobObject, info.Size())
	if _, err := io.Copy(h, f); err != nil {
		return plumbing.ZeroHash, err
	}
	return h.Sum(), nil
}
