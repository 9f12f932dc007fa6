package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/web"
)

// letIn fills in authentication and authorization:
// cached answers of auth, impersonation, the namespaces that users may list and
// which of these to check first, the sessions of browsers, the issuer for
// signing in.
func (p *parts) letIn(ctx context.Context, o *web.Options, auth web.Auth, namespaces func() []string) error {
	people, err := command.NewPeople(p.plane.Config(), p.records, p.Now)
	if err != nil {
		return err
	}
	recent := access.NewRecentAuth(auth, p.Now)
	ended, err := openSignOuts(ctx, p.blobs, p.Config.SessionLife, p.Now)
	if err != nil {
		return fmt.Errorf("reading the ended sessions: %w", err)
	}
	o.Auth, o.Recent, o.People = auth, recent, people.As
	if p.bindings, err = access.NewBindings(p.plane.Config(), p.log, p.Now); err != nil {
		return err
	}
	scopes := access.NewScopes(auth, access.ScopeOptions{Namespaces: namespaces, Likely: p.bindings.Likely, Now: p.Now})
	o.Scopes, o.SoFar = scopes.Scope, scopes.SoFar
	o.Sessions = web.SessionOptions{Key: p.key, Life: p.Config.SessionLife, Idle: p.Config.SessionIdle, SignOuts: ended}
	o.Issuer, err = p.issuer()
	return err
}

// signOuts are the sessions that were ended before they expired, so that a copy
// of a cookie is invalid after a restart, too.
type signOuts struct {
	kept blob.Store
	now  func() time.Time

	mu    sync.Mutex
	until map[string]time.Time
}

// openSignOuts reads the records, and deletes those that have expired.
func openSignOuts(ctx context.Context, kept blob.Store, life time.Duration, now func() time.Time) (*signOuts, error) {
	s := &signOuts{kept: kept, now: now, until: map[string]time.Time{}}
	keys, err := kept.List(ctx, record.SignOuts())
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		r, err := blobBytes{kept}.Get(ctx, key)
		if fault.Of(err) == fault.Missing {
			continue
		}
		var until time.Time
		if err == nil {
			until, err = time.Parse(time.RFC3339, string(r))
		}
		if err != nil {
			until = now().Add(life) // its name says that it has ended
		}
		s.until[strings.TrimPrefix(key, record.SignOuts())] = until
	}
	return s, s.forget(ctx)
}

// End implements web.SignOuts.
func (s *signOuts) End(ctx context.Context, id string, until time.Time) error {
	s.mu.Lock()
	s.until[id] = until
	s.mu.Unlock()
	if err := s.kept.Put(ctx, record.SignOut(id), strings.NewReader(until.UTC().Format(time.RFC3339))); err != nil {
		return fmt.Errorf("recording the end of a session: %w", err)
	}
	return s.forget(ctx)
}

// Ended implements web.SignOuts.
func (s *signOuts) Ended(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now().Before(s.until[id])
}

// forget drops the sessions that have expired.
func (s *signOuts) forget(ctx context.Context) error {
	var old []string
	s.mu.Lock()
	for id, until := range s.until {
		if !s.now().Before(until) {
			old = append(old, id)
			delete(s.until, id)
		}
	}
	s.mu.Unlock()
	var errs []error
	for _, id := range old {
		errs = append(errs, s.kept.Delete(ctx, record.SignOut(id)))
	}
	return errors.Join(errs...)
}
