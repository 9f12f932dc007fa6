package source

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/location"
)

// What the metadata of an artifact say of a repository that was searched for: its URL,
// and the directory that the URL of the source has behind it.
const (
	RepositoryFound = "terrier.dev/git-repository"
	DirectoryFound  = "terrier.dev/git-directory"
)

// where is a repository, and the directory in it that the URL of the source names.
type where struct{ url, directory string }

// metadata is what the artifact keeps of w.
func (w where) metadata(searched bool) map[string]string {
	if !searched {
		return nil
	}
	return map[string]string{RepositoryFound: w.url, DirectoryFound: w.directory}
}

// splits are the repositories to ask for, the remembered one first.
func (g *Git) splits() ([]where, error) {
	if !g.Search {
		return []where{{url: g.URL}}, nil
	}
	at, err := location.ParseGit(g.URL)
	if err != nil {
		return nil, invalid(ReasonURL, "%w", err)
	}
	var all []where
	for _, s := range at.Splits() {
		w := where{s.Repository, s.Directory}
		if w.url == g.Remembered {
			all = append([]where{w}, all...)
			continue
		}
		all = append(all, w)
	}
	return all, nil
}

// find asks for repositories until one is there, and returns its references. A
// repository that is not there, or not for these credentials, lets the next one be
// asked for; any other failure ends the search, so that a server that is down for a
// moment changes nothing.
func (g *Git) find(ctx context.Context) (where, *packp.AdvRefs, error) {
	all, err := g.splits()
	if err != nil {
		return where{}, nil, err
	}
	var tried []error
	for _, w := range all {
		refs, err := g.references(ctx, w.url)
		if err == nil {
			return w, refs, nil
		}
		if len(all) == 1 || !elsewhere(err) {
			return where{}, nil, err
		}
		tried = append(tried, err)
	}
	return where{}, nil, notFound(all, tried)
}

// references lists the references of one repository.
func (g *Git) references(ctx context.Context, url string) (*packp.AdvRefs, error) {
	session, err := g.connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	refs, err := session.AdvertisedReferencesContext(ctx)
	if err != nil {
		return nil, g.fault(url, "listing references", err)
	}
	return refs, nil
}

// elsewhere reports whether a failure is about one repository, so that another one of
// the same server may be there.
func elsewhere(err error) bool {
	return errors.Is(err, transport.ErrRepositoryNotFound) || errors.Is(err, transport.ErrAuthenticationRequired) || errors.Is(err, transport.ErrAuthorizationFailed)
}

// notFound says where no repository was. A server that refuses may have one, and says
// that it has none only to those who may read it.
func notFound(all []where, tried []error) error {
	kind, reason := fault.Missing, ReasonGit
	urls := make([]string, 0, len(all))
	for i, err := range tried {
		said := "not found"
		if fault.Of(err) == fault.Denied {
			kind, reason = fault.Denied, ReasonAuth
			said = "refused"
		}
		urls = append(urls, fmt.Sprintf("%s (%s)", all[i].url, said))
	}
	return fault.New(kind, reason, fmt.Errorf("no repository was found: %s. Write // between the repository and the directory, or correct the credentials", strings.Join(urls, ", ")))
}
