package archive

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
)

// Tree creates a tree of files below one directory from untrusted names and
// contents. Extract uses it for tar streams; callers with other sources of names (a
// git tree, a bucket) use it directly.
//
// A name is used once. An existing file is never replaced or followed.
type Tree struct {
	root   *os.Root
	budget budget
	made   map[string]kind // by this Tree, by clean name
}

type kind byte

const (
	implied kind = iota + 1 // a directory that a longer name needed
	named                   // a directory that was asked for
	leaf                    // a file or a link
)

// NewTree returns a Tree below the directory dir, which exists. Close it.
func NewTree(dir string, limits Limits) (*Tree, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the directory to unpack into: %w", err)
	}
	return &Tree{root: root, budget: budget{Limits: limits.orDefault()}, made: map[string]kind{".": implied}}, nil
}

// Close releases the directory.
func (t *Tree) Close() error { return t.root.Close() }

// Mkdir makes the directory name and those above it.
func (t *Tree) Mkdir(name string) error {
	name, err := local(name)
	if err != nil {
		return err
	}
	if t.made[name] == named {
		return refuse(name, "this name occurs twice")
	}
	if err := t.ensure(name); err != nil {
		return err
	}
	t.made[name] = named
	return nil
}

// Write makes the file name of exactly size bytes, and the directories above.
func (t *Tree) Write(name string, executable bool, size int64, content io.Reader) error {
	name, err := t.leaf(name)
	if err != nil {
		return err
	}
	if err := t.budget.file(name, size); err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if executable {
		mode = 0o755
	}
	out, err := t.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return refuse(name, "something else is there already")
	}
	if err != nil {
		return fmt.Errorf("making a file: %w", err)
	}
	in := &source{Reader: io.LimitReader(content, size+1)}
	n, err := io.Copy(out, in)
	err = errors.Join(err, out.Close())
	switch {
	case in.failed != nil:
		return fmt.Errorf("reading %q: %w", name, in.failed)
	case err != nil:
		return fmt.Errorf("writing a file: %w", err)
	case n != size:
		return refuse(name, "it is not as long as it claims to be")
	}
	return nil
}

// Symlink makes a link. It is for trees that are packed afterwards: Pack
// decides whether its target is allowed, and nothing here goes through it.
func (t *Tree) Symlink(name, target string) error {
	name, err := t.leaf(name)
	if err != nil {
		return err
	}
	if err := t.root.Symlink(target, name); err != nil {
		return refuse(name, "the symbolic link cannot be made: %w", err)
	}
	return nil
}

// leaf prepares for something that is no directory at name.
func (t *Tree) leaf(name string) (string, error) {
	name, err := local(name)
	if err != nil {
		return "", err
	}
	if t.made[name] != 0 {
		return "", refuse(name, "this name occurs twice")
	}
	if err := t.ensure(path.Dir(name)); err != nil {
		return "", err
	}
	if err := t.budget.entry(name); err != nil {
		return "", err
	}
	t.made[name] = leaf
	return name, nil
}

// ensure makes the directory name and those above it. A directory that was
// there before is used; a link to one is not.
func (t *Tree) ensure(name string) error {
	switch t.made[name] {
	case implied, named:
		return nil
	case leaf:
		return refuse(name, "this name is used for a file and for a directory")
	}
	if err := t.ensure(path.Dir(name)); err != nil {
		return err
	}
	if err := t.budget.entry(name); err != nil {
		return err
	}
	err := t.root.Mkdir(name, 0o755)
	if errors.Is(err, fs.ErrExist) {
		info, statErr := t.root.Lstat(name)
		if statErr != nil || !info.IsDir() {
			return refuse(name, "something else is there already")
		}
		err = nil
	}
	if err != nil {
		return fmt.Errorf("making a directory: %w", err)
	}
	t.made[name] = implied
	return nil
}
