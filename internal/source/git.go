package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/storage/filesystem"
	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
)

// Git fetches a commit of a git repository over https or ssh, and over http
// where the operator allows it. It speaks the protocol itself: no git program,
// no hooks, no configuration, no submodules. What comes is never checked out; its
// tree is written by name and content, and packed. Files of Git LFS get their
// content (lfs.go).
type Git struct {
	URL    string
	Ref    GitRef
	Auth   GitAuth
	Ignore *string  // rules in the form of a .gitignore file; nil means Flux's defaults
	Sparse []string // directories to take; all if empty

	Search     bool   // the end of URL may be a directory: the server is asked where the repository ends
	Remembered string // the URL of the repository that an earlier search found; it is asked first
	KnownHosts []byte // of the operator, for hosts that the Secret says nothing of

	Verify GitVerify // what has to be signed

	// Bounded bounds the packs of objects that come, which are on the disk for the time of a
	// fetch. It may be nil.
	Bounded func(io.Reader) io.Reader

	Out     *outbound.Client
	Scratch string // where directories for the time of a fetch are made
	Limits  archive.Limits

	signed Signature
}

var _ Fetcher = (*Git)(nil)

// gitTimeout is the longest that anything takes. Ending the context also closes
// answers that the protocol library drops without closing them.
const gitTimeout = 10 * time.Minute

// Resolve asks the server what the reference points to. A bare commit needs no
// asking, unless the repository has to be searched for.
func (g *Git) Resolve(ctx context.Context) (Found, error) {
	if _, err := parseGitURL(g.URL); err != nil {
		return Found{}, err
	}
	if g.Ref.Commit != "" && !g.Search {
		found, err := g.Ref.pinned()
		return found.in(where{url: g.URL}), err
	}
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	at, refs, err := g.find(ctx)
	if err != nil {
		return Found{}, err
	}
	found, err := g.Ref.pinned()
	if g.Ref.Commit == "" {
		found, err = g.Ref.choose(refs)
	}
	found.Metadata = at.metadata(g.Search)
	return found.in(at), err
}

// in adds the repository to what was found.
func (f Found) in(w where) Found {
	if at, ok := f.handle.(gitCommit); ok {
		at.url = w.url
		f.handle = at
	}
	return f
}

// Fetch gets the commit that was found, without its history where the server
// can do that.
func (g *Git) Fetch(ctx context.Context, found Found, w io.Writer) (map[string]string, error) {
	at, ok := found.handle.(gitCommit)
	if !ok {
		return nil, fmt.Errorf("fetching %q: it was not found by git", found.Revision)
	}
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	err := packed(g.Scratch, sourceRules(g.Ignore), g.Limits, w, func(dir string) error {
		return scratch(g.Scratch, func(objects string) error {
			store := gitStore(ctx, objects)
			if err := g.download(ctx, at, store); err != nil {
				return err
			}
			commit, err := object.GetCommit(store, at.commit)
			if err != nil {
				return gitFault("reading commit "+at.commit.String(), err)
			}
			if g.signed, err = g.Verify.check(store, at, commit); err != nil {
				return err
			}
			tree, err := commit.Tree()
			if err != nil {
				return gitFault("reading the tree of commit "+at.commit.String(), err)
			}
			return g.write(ctx, at.url, tree, dir)
		})
	})
	metadata := map[string]string{LFSFetched: "true"}
	maps.Copy(metadata, found.Metadata)
	return metadata, err
}

// download gets the objects of a commit into store.
func (g *Git) download(ctx context.Context, at gitCommit, store *filesystem.Storage) error {
	session, err := g.connect(ctx, at.url)
	if err != nil {
		return err
	}
	defer session.Close()
	refs, err := session.AdvertisedReferencesContext(ctx)
	if err != nil {
		return g.fault(at.url, "listing references", err)
	}
	req, err := at.request(refs)
	if err != nil {
		return err
	}
	resp, err := session.UploadPack(ctx, req)
	if err != nil {
		return g.fault(at.url, "fetching commit "+at.commit.String(), err)
	}
	defer resp.Close()
	pack := demultiplexed(req.Capabilities, resp)
	if g.Bounded != nil {
		pack = g.Bounded(pack)
	}
	if err := g.keepPack(ctx, pack, store); err != nil {
		return g.fault(at.url, "fetching commit "+at.commit.String(), err)
	}
	return nil
}

// request asks for one commit: by the annotated tag that led to it, which comes along, or by
// the reference that points to it, by its own name if the server answers to that, or else
// by everything that may lead to it.
func (at gitCommit) request(refs *packp.AdvRefs) (*packp.UploadPackRequest, error) {
	req := packp.NewUploadPackRequestFromCapabilities(refs.Capabilities)
	want, tagged, advertised := at.want, false, false
	for _, hash := range refs.References {
		tagged, advertised = tagged || hash == at.want, advertised || hash == at.commit
	}
	if advertised && !tagged { // the commit without its tag, which has moved since
		want = at.commit
	}
	if want.IsZero() && (refs.Capabilities.Supports(capability.AllowReachableSHA1InWant) || refs.Capabilities.Supports("allow-tip-sha1-in-want")) {
		want = at.commit
	}
	if !want.IsZero() {
		req.Wants = []plumbing.Hash{want}
		if refs.Capabilities.Supports(capability.Shallow) {
			req.Depth = packp.DepthCommits(1)
			if err := req.Capabilities.Set(capability.Shallow); err != nil {
				return nil, fmt.Errorf("asking for a shallow history: %w", err)
			}
		}
		return req, nil
	}
	for name, hash := range refs.References {
		ref := plumbing.ReferenceName(name)
		if at.branch == "" && (ref.IsBranch() || ref.IsTag()) || at.branch != "" && ref == plumbing.NewBranchReferenceName(at.branch) {
			req.Wants = append(req.Wants, hash)
		}
	}
	if len(req.Wants) == 0 {
		return nil, missing(ReasonGit, "no reference leads to commit %s", at.commit)
	}
	return req, nil
}

func demultiplexed(caps *capability.List, r io.Reader) io.Reader {
	switch {
	case caps.Supports(capability.Sideband64k):
		return sideband.NewDemuxer(sideband.Sideband64k, r)
	case caps.Supports(capability.Sideband):
		return sideband.NewDemuxer(sideband.Sideband, r)
	}
	return r
}

// write writes the part of a tree that is wanted below dir.
func (g *Git) write(ctx context.Context, url string, tree *object.Tree, dir string) error {
	out, err := archive.NewTree(dir, g.Limits)
	if err != nil {
		return err
	}
	defer out.Close()
	w := &gitWriter{out: out}
	for _, s := range g.Sparse {
		w.sparse = append(w.sparse, filepath.ToSlash(filepath.Clean(s)))
	}
	if err := w.tree(tree, ""); err != nil || len(w.pointers) == 0 {
		return err
	}
	skip, err := sourceRules(g.Ignore).load(dir)
	if err != nil {
		return err
	}
	wanted := slices.DeleteFunc(w.pointers, func(f lfsFile) bool { return skip(f.name, false) })
	return g.fetchLFS(ctx, url, wanted, out)
}

// parseGitURL returns a URL that may be fetched from.
func parseGitURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		// The error of url.Parse quotes its argument, which may hold a password.
		return nil, invalid(ReasonURL, "the URL cannot be read")
	}
	switch {
	case u.Scheme != "https" && u.Scheme != "http" && u.Scheme != "ssh":
		return nil, invalid(ReasonURL, "the scheme of the URL is %q: only https, ssh and http are fetched from", u.Scheme)
	case u.Opaque != "" || u.Hostname() == "" || strings.HasPrefix(u.Hostname(), "-"):
		return nil, invalid(ReasonURL, "the URL names no host")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, invalid(ReasonURL, "the URL has a query or a fragment")
	case strings.Trim(u.Path, "/") == "":
		return nil, invalid(ReasonURL, "the URL names no repository")
	}
	if u.User != nil {
		if _, has := u.User.Password(); has || u.Scheme != "ssh" {
			return nil, invalid(ReasonURL, "the URL holds credentials, which belong in a Secret")
		}
	}
	return u, nil
}

// fault is gitFault that says what the server was shown, if it wants to know who
// asks.
func (g *Git) fault(url, doing string, err error) error {
	out := gitFault(doing, err)
	if u, _ := parseGitURL(url); fault.Of(out) != fault.Denied || fault.Reason(out, "") != ReasonAuth || u == nil || u.Scheme == "ssh" {
		return out
	}
	return fault.New(fault.Denied, ReasonAuth, fmt.Errorf("%w: %s", out, g.Auth.sent()))
}

// gitFault gives an error of the protocol its kind.
func gitFault(doing string, err error) error {
	if fault.Of(err) != fault.Broken {
		return fmt.Errorf("%s: %w", doing, err)
	}
	kind, reason := fault.Broken, ReasonGit
	switch {
	case errors.Is(err, transport.ErrAuthenticationRequired), errors.Is(err, transport.ErrAuthorizationFailed):
		kind, reason = fault.Denied, ReasonAuth
	case errors.Is(err, transport.ErrRepositoryNotFound), errors.Is(err, transport.ErrEmptyRemoteRepository), errors.Is(err, plumbing.ErrObjectNotFound):
		kind = fault.Missing
	}
	return fault.New(kind, reason, fmt.Errorf("%s: %w", doing, err))
}
