package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"github.com/terrier-iac/terrier/internal/failpoint"
	"github.com/terrier-iac/terrier/internal/fault"
)

// The reasons of this file's faults.
const (
	ReasonFileChanged = "GitFileChanged" // the file is not what the writer has read
	ReasonPush        = "GitPushRefused" // the server takes no such commit
)

// GitFile is one file at the tip of a branch. It is written by a commit on top of whatever
// the branch has then: commits beside the file are kept, and one that changes the file
// itself makes the writer read again. History is never rewritten.
//
// Only the newest commit of the branch is fetched, into a directory for the time of the call.
type GitFile struct {
	Git    *Git // Ref is not used
	Branch string
	Base   string // the branch that a new Branch begins with; empty for a branch with nothing else
	Path   string // with slashes
}

// GitTip is what a branch has of a file.
type GitTip struct {
	Commit  string // of the branch; empty if there is no such branch
	Blob    string // of the file; empty if there is no such file
	Content []byte
}

// GitChange is a commit to come. Its author is its committer, too.
type GitChange struct {
	Content       []byte
	Message       string
	Author, Email string
	At            time.Time
}

const (
	gitFileTimeout = time.Minute // of one call: a pass waits for it
	gitFileBytes   = 256 << 20   // of the newest commit, packed
	gitFileMost    = 64 << 20    // of the file
	gitFileTries   = 12          // of a commit that others overtake
	gitFileRefused = 3           // refusals of a commit that no other overtook
)

// Read returns the file as it is now. It asks with the rights of one who pushes, so that
// missing rights are found before there is something to write. If the branch is where it was
// when known was read, known is returned and nothing is fetched.
func (f *GitFile) Read(ctx context.Context, known GitTip) (GitTip, error) {
	ctx, cancel := context.WithTimeout(ctx, gitFileTimeout)
	defer cancel()
	for try := 1; ; try++ {
		at, err := f.branch(ctx)
		if err != nil || at.IsZero() {
			return GitTip{}, err
		}
		if at.String() == known.Commit {
			return known, nil
		}
		var tip GitTip
		err = f.fetched(ctx, at, func(store *filesystem.Storage, root *object.Tree) error {
			tip, err = f.found(at, store, root)
			return err
		})
		if err == nil || try == gitFileTries || !f.moved(ctx, at) {
			return tip, err
		}
	}
}

// Write puts the file where over was read, and returns the branch with it. It is a Conflict
// with ReasonFileChanged if the file is another one by now, and Denied with ReasonPush if the
// server refuses the commit. After any other error the commit may be there.
func (f *GitFile) Write(ctx context.Context, over GitTip, c GitChange) (GitTip, error) {
	ctx, cancel := context.WithTimeout(ctx, gitFileTimeout)
	defer cancel()
	for try, unmoved := 1, 0; ; try++ {
		at, tip, err := f.push(ctx, over, c)
		var refused *pushRefused
		if !errors.As(err, &refused) {
			return tip, err
		}
		// A server refuses while another push holds the branch, and only then moves it.
		if !f.moved(ctx, at) {
			unmoved++
		}
		switch {
		case unmoved == gitFileRefused:
			return GitTip{}, fault.New(fault.Denied, ReasonPush, fmt.Errorf("pushing to the branch %s: %w", f.Branch, refused))
		case try == gitFileTries:
			return GitTip{}, fault.New(fault.Later, ReasonPush, fmt.Errorf("pushing to the branch %s: other commits came first %d times", f.Branch, try))
		}
		if err := pause(ctx, try); err != nil {
			return GitTip{}, err
		}
	}
}

// pause lets others go first for a random time that grows.
func pause(ctx context.Context, try int) error {
	t := time.NewTimer(rand.N(time.Duration(try) * 50 * time.Millisecond))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for other commits: %w", context.Cause(ctx))
	}
}

// pushRefused says that a server has not moved the branch.
type pushRefused struct {
	err  error
	says string // of the server, for people
}

func (e *pushRefused) Error() string {
	if says := strings.TrimSpace(e.says); says != "" {
		return fmt.Sprintf("%v (%q)", e.err, says)
	}
	return e.err.Error()
}

func (e *pushRefused) Unwrap() error { return e.err }

func (f *GitFile) ref() plumbing.ReferenceName { return plumbing.NewBranchReferenceName(f.Branch) }

// branch is the newest commit of the branch, zero if there is none.
func (f *GitFile) branch(ctx context.Context) (plumbing.Hash, error) {
	session, err := f.Git.connectToPush(ctx)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	defer session.Close()
	refs, err := session.AdvertisedReferencesContext(ctx)
	if err != nil {
		return plumbing.ZeroHash, f.Git.fault(f.Git.URL, "listing references", err)
	}
	return refs.References[f.ref().String()], nil
}

// moved reports whether the branch is elsewhere by now. One that cannot be asked is not.
func (f *GitFile) moved(ctx context.Context, from plumbing.Hash) bool {
	now, err := f.branch(ctx)
	return err == nil && now != from
}

// fetched fetches one commit for the time of use.
func (f *GitFile) fetched(ctx context.Context, at plumbing.Hash, use func(*filesystem.Storage, *object.Tree) error) error {
	return scratch(f.Git.Scratch, func(dir string) error {
		store := gitStore(ctx, dir)
		g := *f.Git
		g.Bounded = func(r io.Reader) io.Reader { return &bounded{r, gitFileBytes, f.Branch} }
		if err := g.download(ctx, gitCommit{commit: at, want: at, url: g.URL}, store); err != nil {
			return err
		}
		commit, err := object.GetCommit(store, at)
		if err != nil {
			return gitFault("reading commit "+at.String(), err)
		}
		tree, err := commit.Tree()
		if err != nil {
			return gitFault("reading the tree of commit "+at.String(), err)
		}
		return use(store, tree)
	})
}

// bounded refuses a pack that is larger than a branch of files can be.
type bounded struct {
	r      io.Reader
	left   int
	branch string
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p[:min(len(p), b.left+1)])
	if b.left -= n; b.left < 0 {
		return 0, invalid(ReasonGit, "the newest commit of the branch %s has more than %d MiB: use a branch with nothing else in it", b.branch, gitFileBytes>>20)
	}
	return n, err
}

// found is the file in a tree.
func (f *GitFile) found(at plumbing.Hash, store *filesystem.Storage, root *object.Tree) (GitTip, error) {
	tip := GitTip{Commit: at.String()}
	entry, err := f.entry(root)
	if err != nil || entry == nil {
		return tip, err
	}
	switch entry.Mode {
	case filemode.Regular, filemode.Executable, filemode.Deprecated:
	default:
		return tip, invalid(ReasonGit, "%q is no file of the branch %s: it is a directory or a link", f.Path, f.Branch)
	}
	blob, err := object.GetBlob(store, entry.Hash)
	if err != nil {
		return tip, gitFault(fmt.Sprintf("reading the file %q", f.Path), err)
	}
	if blob.Size > gitFileMost {
		return tip, invalid(ReasonGit, "the file %q has %d bytes, and at most %d are read", f.Path, blob.Size, gitFileMost)
	}
	r, err := blob.Reader()
	if err != nil {
		return tip, gitFault(fmt.Sprintf("reading the file %q", f.Path), err)
	}
	defer r.Close()
	if tip.Content, err = io.ReadAll(r); err != nil {
		return tip, gitFault(fmt.Sprintf("reading the file %q", f.Path), err)
	}
	tip.Blob = entry.Hash.String()
	return tip, nil
}

// entry is the entry of the file, nil if there is none.
func (f *GitFile) entry(dir *object.Tree) (*object.TreeEntry, error) {
	path := strings.Split(f.Path, "/")
	for {
		i := slices.IndexFunc(dir.Entries, func(e object.TreeEntry) bool { return e.Name == path[0] })
		switch {
		case i < 0:
			return nil, nil
		case len(path) == 1:
			return &dir.Entries[i], nil
		case dir.Entries[i].Mode != filemode.Dir:
			return nil, invalid(ReasonGit, "%q is a file of the branch %s, and no directory for %q", path[0], f.Branch, f.Path)
		}
		var err error
		if dir, err = dir.Tree(path[0]); err != nil {
			return nil, gitFault(fmt.Sprintf("reading the directory %q", path[0]), err)
		}
		path = path[1:]
	}
}

// push makes one attempt, on top of the commit that it returns.
func (f *GitFile) push(ctx context.Context, over GitTip, c GitChange) (plumbing.Hash, GitTip, error) {
	session, err := f.Git.connectToPush(ctx)
	if err != nil {
		return plumbing.ZeroHash, GitTip{}, err
	}
	defer session.Close()
	refs, err := session.AdvertisedReferencesContext(ctx)
	if err != nil {
		return plumbing.ZeroHash, GitTip{}, f.Git.fault(f.Git.URL, "listing references", err)
	}
	at := refs.References[f.ref().String()]
	parent := at
	if at.IsZero() && f.Base != "" {
		if parent = refs.References[plumbing.NewBranchReferenceName(f.Base).String()]; parent.IsZero() {
			return at, GitTip{}, fault.New(fault.Missing, ReasonGit, fmt.Errorf("the repository has no branch %s, with which %s could begin", f.Base, f.Branch))
		}
	}
	made, err := f.on(ctx, parent, over, c)
	if err != nil {
		return at, GitTip{}, err
	}
	req, says := packp.NewReferenceUpdateRequestFromCapabilities(refs.Capabilities), &head{left: 1024}
	if err := made.into(req, refs.Capabilities, says); err != nil {
		return at, GitTip{}, err
	}
	req.Commands = []*packp.Command{{Name: f.ref(), Old: at, New: made.commit}}
	done := failpoint.Act("git", "push")
	report, err := session.ReceivePack(ctx, req)
	done()
	switch {
	case err != nil && report != nil:
		return at, GitTip{}, &pushRefused{err, says.String()}
	case err != nil:
		return at, GitTip{}, f.Git.fault(f.Git.URL, "pushing", err)
	case report == nil: // a server that does not say
		if now, err := f.branch(ctx); err != nil || now != made.commit {
			return at, GitTip{}, &pushRefused{errors.Join(errors.New("the branch does not have the commit"), err), says.String()}
		}
	}
	return at, GitTip{Commit: made.commit.String(), Blob: made.blob.String(), Content: c.Content}, nil
}

// on makes the commit on top of another one, or the first one of a branch.
func (f *GitFile) on(ctx context.Context, at plumbing.Hash, over GitTip, c GitChange) (*gitObjects, error) {
	made := newGitObjects()
	if at.IsZero() {
		if over.Blob != "" {
			return nil, f.changed()
		}
		return made, made.change(nil, f.Path, at, c)
	}
	return made, f.fetched(ctx, at, func(store *filesystem.Storage, root *object.Tree) error {
		is, err := f.found(at, store, root)
		if err != nil {
			return err
		}
		if is.Blob != over.Blob {
			return f.changed()
		}
		return made.change(root, f.Path, at, c)
	})
}

func (f *GitFile) changed() error {
	return fault.New(fault.Conflict, ReasonFileChanged, fmt.Errorf("the file %q of the branch %s was changed meanwhile", f.Path, f.Branch))
}
