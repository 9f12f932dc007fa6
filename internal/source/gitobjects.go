package source

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/storage/memory"
)

// gitObjects are the objects of one new commit: those that the server does not have.
type gitObjects struct {
	store  *memory.Storage
	all    []plumbing.Hash
	commit plumbing.Hash
	blob   plumbing.Hash
}

func newGitObjects() *gitObjects { return &gitObjects{store: memory.NewStorage()} }

// encoder is an object of git that can be written.
type encoder interface {
	Encode(plumbing.EncodedObject) error
}

func (o *gitObjects) add(e encoder) (plumbing.Hash, error) {
	to := o.store.NewEncodedObject()
	if err := e.Encode(to); err != nil {
		return plumbing.ZeroHash, fmt.Errorf("making an object of git: %w", err)
	}
	return o.keep(to)
}

func (o *gitObjects) keep(to plumbing.EncodedObject) (plumbing.Hash, error) {
	hash, err := o.store.SetEncodedObject(to)
	if err != nil {
		return plumbing.ZeroHash, fmt.Errorf("making an object of git: %w", err)
	}
	if !slices.Contains(o.all, hash) {
		o.all = append(o.all, hash)
	}
	return hash, nil
}

// change makes a commit in which one file is another one. Root is the tree before it, nil for
// none; its parent is at, unless that is zero.
func (o *gitObjects) change(root *object.Tree, file string, at plumbing.Hash, c GitChange) error {
	content := o.store.NewEncodedObject()
	content.SetType(plumbing.BlobObject)
	w, err := content.Writer()
	if err == nil {
		_, err = w.Write(c.Content)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return fmt.Errorf("making an object of git: %w", err)
	}
	if o.blob, err = o.keep(content); err != nil {
		return err
	}
	tree, err := o.put(root, strings.Split(file, "/"))
	if err != nil {
		return err
	}
	by := object.Signature{Name: c.Author, Email: c.Email, When: c.At}
	commit := &object.Commit{Author: by, Committer: by, Message: c.Message, TreeHash: tree}
	if !at.IsZero() {
		commit.ParentHashes = []plumbing.Hash{at}
	}
	o.commit, err = o.add(commit)
	return err
}

// put makes a copy of a directory in which the file at a path is the blob.
func (o *gitObjects) put(dir *object.Tree, path []string) (plumbing.Hash, error) {
	made := &object.Tree{}
	if dir != nil {
		made.Entries = slices.Clone(dir.Entries)
	}
	i := slices.IndexFunc(made.Entries, func(e object.TreeEntry) bool { return e.Name == path[0] })
	entry := object.TreeEntry{Name: path[0], Mode: filemode.Regular, Hash: o.blob}
	if len(path) > 1 {
		var below *object.Tree
		if i >= 0 {
			if made.Entries[i].Mode != filemode.Dir {
				return plumbing.ZeroHash, invalid(ReasonGit, "%q is a file of the branch, and no directory", path[0])
			}
			var err error
			if below, err = dir.Tree(path[0]); err != nil {
				return plumbing.ZeroHash, gitFault(fmt.Sprintf("reading the directory %q", path[0]), err)
			}
		}
		hash, err := o.put(below, path[1:])
		if err != nil {
			return plumbing.ZeroHash, err
		}
		entry.Mode, entry.Hash = filemode.Dir, hash
	}
	if i >= 0 {
		made.Entries[i] = entry
	} else {
		made.Entries = append(made.Entries, entry)
	}
	slices.SortFunc(made.Entries, func(a, b object.TreeEntry) int { return strings.Compare(sorted(a), sorted(b)) })
	return o.add(made)
}

// sorted is the name by which git sorts an entry of a tree.
func sorted(e object.TreeEntry) string {
	if e.Mode == filemode.Dir {
		return e.Name + "/"
	}
	return e.Name
}

// into packs the objects for a push, whose progress goes to says.
func (o *gitObjects) into(req *packp.ReferenceUpdateRequest, server *capability.List, says io.Writer) error {
	if server.Supports(capability.Sideband64k) {
		if err := req.Capabilities.Set(capability.Sideband64k); err != nil {
			return fmt.Errorf("preparing a push: %w", err)
		}
		req.Progress = says
	}
	var pack bytes.Buffer
	if _, err := packfile.NewEncoder(&pack, o.store, false).Encode(o.all, 0); err != nil {
		return fmt.Errorf("packing a commit: %w", err)
	}
	req.Packfile = io.NopCloser(&pack)
	return nil
}
