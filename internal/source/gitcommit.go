package source

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	"github.com/go-git/go-git/v5/storage"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"github.com/terrier-iac/terrier/internal/fault"
)

// ReasonUnchanged is of an edit that changes nothing.
const ReasonUnchanged = "NothingEdited"

// NewCommit is a commit that changes texts on a branch of its own.
type NewCommit struct {
	Branch  string                 // is made, and must not exist
	Reads   func(name string) bool // which files Edit is given
	Message string
	Author  string // the name of a user
	At      time.Time

	// Edit is given the texts of files, by path, and returns those that change. None is an error.
	Edit func(files map[string][]byte) (map[string][]byte, error)
}

// Push commits changed files on top of what Ref points to now, and pushes the commit as a new
// branch. If the branch exists nothing is pushed: Conflict. It returns the commit. Only http and
// https are pushed over.
func (g *Git) Push(ctx context.Context, c NewCommit) (string, error) {
	if err := CheckBranch(c.Branch); err != nil {
		return "", err
	}
	u, err := parseGitURL(g.URL)
	if err != nil {
		return "", err
	}
	if u.Scheme == "ssh" {
		return "", invalid(ReasonURL, "the GitRepository is fetched over ssh, and Terrier pushes over https only: leave --branch out, and apply the patch with git apply")
	}
	found, err := g.Resolve(ctx)
	if err != nil {
		return "", err
	}
	at, ok := found.handle.(gitCommit)
	if !ok {
		return "", fmt.Errorf("pushing to %q: it was not found by git", found.Revision)
	}
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	var made plumbing.Hash
	err = scratch(g.Scratch, func(objects string) error {
		store := filesystem.NewStorageWithOptions(osfs.New(objects, osfs.WithBoundOS()), cache.NewObjectLRUDefault(),
			filesystem.Options{ExclusiveAccess: true, LargeObjectThreshold: 8 << 20})
		if err := g.download(ctx, at, store); err != nil {
			return err
		}
		b := &treeBuilder{store: store}
		hash, err := b.commit(at.commit, c)
		if err != nil {
			return err
		}
		made = hash
		return g.push(ctx, u, store, b.made, plumbing.NewBranchReferenceName(c.Branch), hash)
	})
	return made.String(), err
}

// CheckBranch refuses what is no name of a branch.
func CheckBranch(name string) error {
	bad := name == "" || len(name) > 200 || strings.HasPrefix(name, "-") || strings.HasPrefix(name, "/") || strings.HasSuffix(name, "/") ||
		strings.HasSuffix(name, ".lock") || strings.HasSuffix(name, ".") || strings.Contains(name, "..") || strings.Contains(name, "//") || strings.Contains(name, "@{") ||
		strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune(`~^:?*[\`, r) })
	if bad {
		return invalid("BranchInvalid", "%.80q is no name of a branch, as drift/network", name)
	}
	return nil
}

// treeBuilder makes the objects of a commit.
type treeBuilder struct {
	store storage.Storer
	made  []plumbing.Hash
}

func (b *treeBuilder) commit(parent plumbing.Hash, c NewCommit) (plumbing.Hash, error) {
	base, err := object.GetCommit(b.store, parent)
	if err != nil {
		return plumbing.ZeroHash, gitFault("reading commit "+parent.String(), err)
	}
	tree, err := base.Tree()
	if err != nil {
		return plumbing.ZeroHash, gitFault("reading the tree of commit "+parent.String(), err)
	}
	files, err := textsOf(tree, c.Reads)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	after, err := c.Edit(files)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	if len(after) == 0 {
		return plumbing.ZeroHash, fault.New(fault.Invalid, ReasonUnchanged, errors.New("no file changes"))
	}
	root := tree.Hash
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if root, err = b.replace(root, strings.Split(path.Clean(name), "/"), name, after[name]); err != nil {
			return plumbing.ZeroHash, err
		}
	}
	who := object.Signature{Name: cmp.Or(strings.TrimSpace(strings.Map(printable, c.Author)), "terrier"), Email: "terrier@localhost", When: c.At.UTC()}
	return b.put(&object.Commit{Author: who, Committer: who, Message: c.Message, TreeHash: root, ParentHashes: []plumbing.Hash{parent}})
}

// editedBytes bounds the files that an edit is given, in bytes together.
const editedBytes = 64 << 20

// textsOf reads the files of a tree that are wanted.
func textsOf(tree *object.Tree, wanted func(string) bool) (map[string][]byte, error) {
	files, left := map[string][]byte{}, int64(editedBytes)
	err := tree.Files().ForEach(func(f *object.File) error {
		if !f.Mode.IsRegular() || !wanted(f.Name) {
			return nil
		}
		if left -= f.Size; left < 0 {
			return invalid(ReasonGit, "the files of the repository that may be edited have more than %d bytes", editedBytes)
		}
		text, err := f.Contents()
		files[f.Name] = []byte(text)
		return err
	})
	if err != nil {
		return nil, gitFault("reading the files of the repository", err)
	}
	return files, nil
}

// printable leaves out what ends a name in a commit.
func printable(r rune) rune {
	if r < ' ' || r == '<' || r == '>' || r == 0x7f {
		return -1
	}
	return r
}

// replace makes a tree in which one file has another text.
func (b *treeBuilder) replace(tree plumbing.Hash, steps []string, name string, text []byte) (plumbing.Hash, error) {
	t, err := object.GetTree(b.store, tree)
	if err != nil {
		return plumbing.ZeroHash, gitFault("reading a tree", err)
	}
	i := slices.IndexFunc(t.Entries, func(e object.TreeEntry) bool { return e.Name == steps[0] })
	if i < 0 {
		return plumbing.ZeroHash, notText(name)
	}
	e := t.Entries[i]
	switch {
	case len(steps) > 1 && e.Mode == filemode.Dir:
		e.Hash, err = b.replace(e.Hash, steps[1:], name, text)
	case len(steps) == 1 && (e.Mode == filemode.Regular || e.Mode == filemode.Executable || e.Mode == filemode.Deprecated):
		e.Hash, err = b.blob(text)
	default:
		err = notText(name)
	}
	if err != nil {
		return plumbing.ZeroHash, err
	}
	entries := slices.Clone(t.Entries)
	entries[i] = e
	return b.put(&object.Tree{Entries: entries})
}

func notText(name string) error {
	return invalid(ReasonGit, "the repository has no file %s that can be edited", name)
}

func (b *treeBuilder) blob(text []byte) (plumbing.Hash, error) {
	o := b.store.NewEncodedObject()
	o.SetType(plumbing.BlobObject)
	w, err := o.Writer()
	if err == nil {
		_, err = io.Copy(w, bytes.NewReader(text))
		err = errors.Join(err, w.Close())
	}
	return b.keep(o, err)
}

func (b *treeBuilder) put(of interface {
	Encode(plumbing.EncodedObject) error
}) (plumbing.Hash, error) {
	o := b.store.NewEncodedObject()
	return b.keep(o, of.Encode(o))
}

func (b *treeBuilder) keep(o plumbing.EncodedObject, err error) (plumbing.Hash, error) {
	if err == nil {
		var h plumbing.Hash
		if h, err = b.store.SetEncodedObject(o); err == nil {
			b.made = append(b.made, h)
			return h, nil
		}
	}
	return plumbing.ZeroHash, fmt.Errorf("making an object of git: %w", err)
}

// push sends objects, and has the server make a branch of the newest.
func (g *Git) push(ctx context.Context, u *url.URL, store storage.Storer, objects []plumbing.Hash, branch plumbing.ReferenceName, to plumbing.Hash) error {
	client, err := g.client(u)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	client.Transport = refsCap{client.Transport}
	endpoint, err := transport.NewEndpoint((&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String())
	if err != nil {
		return invalid(ReasonURL, "the URL cannot be read: %w", err)
	}
	session, err := githttp.NewClient(client).NewReceivePackSession(endpoint, nil)
	if err != nil {
		return gitFault("connecting", err)
	}
	defer session.Close()
	refs, err := session.AdvertisedReferencesContext(ctx)
	if err != nil {
		return g.fault(g.URL, "asking to push", err)
	}
	if _, exists := refs.References[branch.String()]; exists {
		return fault.New(fault.Conflict, "BranchExists", fmt.Errorf("the branch %s exists: choose another name, or delete it", branch.Short()))
	}
	var pack bytes.Buffer
	if _, err := packfile.NewEncoder(&pack, store, false).Encode(objects, 0); err != nil {
		return fmt.Errorf("packing a commit: %w", err)
	}
	req := packp.NewReferenceUpdateRequestFromCapabilities(refs.Capabilities)
	req.Commands = []*packp.Command{{Name: branch, Old: plumbing.ZeroHash, New: to}}
	req.Packfile = io.NopCloser(&pack)
	status, err := session.ReceivePack(ctx, req)
	if err != nil {
		return g.fault(g.URL, "pushing", err)
	}
	if status != nil {
		if err := status.Error(); err != nil {
			return fault.New(fault.Denied, ReasonGit, fmt.Errorf("the server refuses the branch %s: %w", branch.Short(), err))
		}
	}
	return nil
}
