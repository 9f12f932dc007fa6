package forge

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

const mainBranch = plumbing.ReferenceName("refs/heads/main")

// Seed makes a repository whose branch main has one commit of these files. A repository
// that is there is left as it is: a user may have pushed to it.
func (f *Forge) Seed(name string, files fs.FS) error {
	dir, err := f.located(name)
	if err != nil {
		return err
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return fmt.Errorf("making a repository: %w", err)
	}
	fresh, err := os.MkdirTemp(f.path(repositories), ".new-")
	if err != nil {
		return fmt.Errorf("making a repository: %w", err)
	}
	defer os.RemoveAll(fresh)
	if err := commit(stored(fresh), files); err != nil {
		return fmt.Errorf("making a repository: %w", err)
	}
	return os.Rename(fresh, dir)
}

// commit initialises a repository with one commit. All of it is fixed, so that the same
// files are the same commit.
func commit(to *filesystem.Storage, files fs.FS) error {
	c := config.NewConfig()
	c.Core.IsBare = true
	if err := errors.Join(to.Init(), to.SetConfig(c), to.SetReference(plumbing.NewSymbolicReference(plumbing.HEAD, mainBranch))); err != nil {
		return err
	}
	tree, err := writeTree(to, files, ".")
	if err != nil {
		return err
	}
	who := object.Signature{Name: "Terrier", Email: "terrier@example.com", When: time.Unix(0, 0).UTC()}
	first, err := write(to, &object.Commit{Author: who, Committer: who, Message: "Add the module\n", TreeHash: tree})
	if err != nil {
		return err
	}
	return to.SetReference(plumbing.NewHashReference(mainBranch, first))
}

// writeTree writes a directory.
func writeTree(to *filesystem.Storage, files fs.FS, dir string) (plumbing.Hash, error) {
	entries, err := fs.ReadDir(files, dir)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	tree := &object.Tree{}
	for _, e := range entries {
		made := object.TreeEntry{Name: e.Name(), Mode: filemode.Dir}
		if e.IsDir() {
			made.Hash, err = writeTree(to, files, path.Join(dir, e.Name()))
		} else {
			made.Mode = filemode.Regular
			made.Hash, err = writeBlob(to, files, path.Join(dir, e.Name()))
		}
		if err != nil {
			return plumbing.ZeroHash, err
		}
		tree.Entries = append(tree.Entries, made)
	}
	slices.SortFunc(tree.Entries, func(a, b object.TreeEntry) int { return strings.Compare(sortName(a), sortName(b)) })
	return write(to, tree)
}

// sortName is the name by which git sorts the entry of a tree.
func sortName(e object.TreeEntry) string {
	if e.Mode == filemode.Dir {
		return e.Name + "/"
	}
	return e.Name
}

func writeBlob(to *filesystem.Storage, files fs.FS, name string) (plumbing.Hash, error) {
	content, err := fs.ReadFile(files, name)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	o := to.NewEncodedObject()
	o.SetType(plumbing.BlobObject)
	w, err := o.Writer()
	if err != nil {
		return plumbing.ZeroHash, err
	}
	_, err = w.Write(content)
	if err := errors.Join(err, w.Close()); err != nil {
		return plumbing.ZeroHash, err
	}
	return to.SetEncodedObject(o)
}

func write(to *filesystem.Storage, what interface {
	Encode(plumbing.EncodedObject) error
}) (plumbing.Hash, error) {
	o := to.NewEncodedObject()
	if err := what.Encode(o); err != nil {
		return plumbing.ZeroHash, err
	}
	return to.SetEncodedObject(o)
}
