package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

// Tag is a tag of a repository, as the server lists it.
type Tag struct {
	Name   string // without refs/tags/
	Object string // what it points to: an annotated tag, or the commit itself
	Commit string
}

// Tagged is what a repository says of a tag besides: who made it, and which key signed it.
// For a tag that is not annotated it is about the commit.
type Tagged struct {
	By     string
	At     time.Time
	Signer string // the ID of the OpenPGP key or the fingerprint of the SSH key, if a signature was verified
}

// Tags lists the tags of the repository, by name. It costs one request.
func (g *Git) Tags(ctx context.Context) ([]Tag, error) {
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	refs, err := g.references(ctx, g.URL)
	if err != nil {
		return nil, err
	}
	var all []Tag
	for name, object := range refs.References {
		short, ok := strings.CutPrefix(name, "refs/tags/")
		if !ok {
			continue
		}
		t := Tag{Name: short, Object: object.String(), Commit: object.String()}
		if peeled, ok := refs.Peeled[name]; ok {
			t.Commit = peeled.String()
		}
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b Tag) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// Checkout writes a directory of the commit of a tag into dir, which is empty, and says
// who made the tag. The tag is the one that Tags has listed: if it has moved since, the
// server may no longer have it, and the error is Missing. "." is the whole repository.
func (g *Git) Checkout(ctx context.Context, t Tag, directory, dir string) (Tagged, error) {
	at := gitCommit{commit: plumbing.NewHash(t.Commit), want: plumbing.NewHash(t.Object), tag: t.Name, url: g.URL}
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	var made Tagged
	err := scratch(g.Scratch, func(objects string) error {
		store := filesystem.NewStorageWithOptions(osfs.New(objects, osfs.WithBoundOS()), cache.NewObjectLRUDefault(),
			filesystem.Options{ExclusiveAccess: true, LargeObjectThreshold: 8 << 20})
		if err := g.download(ctx, at, store); err != nil {
			return err
		}
		commit, err := object.GetCommit(store, at.commit)
		if err != nil {
			return gitFault("reading commit "+t.Commit, err)
		}
		if made, err = g.tagged(store, at, commit); err != nil {
			return err
		}
		tree, err := commit.Tree()
		if err == nil && directory != "." {
			tree, err = tree.Tree(directory)
		}
		if errors.Is(err, object.ErrDirectoryNotFound) {
			return invalid(ReasonGit, "the commit %.12s has no directory %s", t.Commit, directory)
		}
		if err != nil {
			return gitFault("reading the tree of commit "+t.Commit, err)
		}
		return g.write(ctx, at.url, tree, dir)
	})
	return made, err
}

// tagged verifies what has to be signed, and says who made a tag.
func (g *Git) tagged(store *filesystem.Storage, at gitCommit, commit *object.Commit) (Tagged, error) {
	signature, err := g.Verify.check(store, at, commit)
	if err != nil {
		return Tagged{}, err
	}
	by := commit.Committer
	if tag, err := object.GetTag(store, at.want); err == nil {
		by = tag.Tagger
	} else if !errors.Is(err, plumbing.ErrObjectNotFound) {
		return Tagged{}, gitFault("reading the tag", err)
	}
	return Tagged{By: fmt.Sprintf("%.100s <%.100s>", by.Name, by.Email), At: by.When.UTC(), Signer: signature.keyID()}, nil
}
