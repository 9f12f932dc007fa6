package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/app/interval"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/web"
)

// fillAccess fills in authentication and authorization:
// cached answers of auth, impersonation, the namespaces that users may list and
// which of these to check first, the sessions of browsers, the issuer for
// signing in.
func (p *parts) fillAccess(ctx context.Context, o *web.Options, auth web.Auth) error {
	people, err := command.NewPeople(p.plane.Config(), p.kinds, p.records, p.Now)
	if err != nil {
		return err
	}
	people.Git = func() (*outbound.Client, error) { return p.outbound() }
	recent := access.NewRecentAuth(auth, p.Now)
	ended, err := openSignOuts(ctx, p.blobs, p.Config.SessionLife, p.Now)
	if err != nil {
		return fmt.Errorf("reading the ended sessions: %w", err)
	}
	p.others.share(ended)
	o.Auth, o.Recent, o.People = auth, recent, people.As
	if p.bindings, err = access.NewBindings(p.plane.Config(), p.log, p.Now); err != nil {
		return err
	}
	scopes := access.NewKindScopes(auth, p.kinds.Words(), func(kind string) func() []string { return query.NamespacesOf(p.board, kind) }, access.ScopeOptions{Likely: p.bindings.Likely, Now: p.Now})
	o.Scopes, o.SoFar = scopes.Scope, scopes.SoFar
	o.Sessions = web.SessionOptions{Key: p.key, Life: p.Config.SessionLife, Idle: p.Config.SessionIdle, SignOuts: ended}
	o.Issuer, err = p.issuer()
	return err
}

// signOuts are the sessions that were ended before they expired, so that a copy
// of a cookie is invalid after a restart, too.
type signOuts struct {
	*web.EndedSessions
	kept blob.Store
	life time.Duration
	now  func() time.Time
	tell func(ctx context.Context, id string, until time.Time) // tells other controllers; nil if there are none
}

// openSignOuts reads the records, and deletes those that have expired.
func openSignOuts(ctx context.Context, kept blob.Store, life time.Duration, now func() time.Time) (*signOuts, error) {
	s := &signOuts{EndedSessions: web.NewEndedSessions(now), kept: kept, life: life, now: now}
	return s, s.read(ctx)
}

// signOutsEvery is how often a controller reads what another one could not tell.
const signOutsEvery = time.Minute

// follow reads the records of other controllers until ctx ends.
func (s *signOuts) follow(ctx context.Context, log *slog.Logger) error {
	for range interval.Turns(ctx, signOutsEvery) {
		if err := s.read(ctx); err != nil && ctx.Err() == nil {
			log.Warn("ended sessions not read", "err", err) // they are read again
		}
	}
	return nil
}

// read takes in the records, and deletes those that have expired.
func (s *signOuts) read(ctx context.Context) error {
	keys, err := s.kept.List(ctx, record.SignOuts())
	if err != nil {
		return err
	}
	var errs []error
	for _, key := range keys {
		if s.Ended(strings.TrimPrefix(key, record.SignOuts())) {
			continue
		}
		text, err := record.Read(ctx, s.kept, key)
		if fault.Of(err) == fault.Missing {
			continue
		}
		var until time.Time
		if err == nil {
			until, err = time.Parse(time.RFC3339, string(text))
		}
		if err != nil {
			until = s.now().Add(s.life) // its name says that it has ended
		}
		if s.now().Before(until) {
			err = s.EndedSessions.End(ctx, strings.TrimPrefix(key, record.SignOuts()), until)
		} else {
			err = s.kept.Delete(ctx, key)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// End implements web.SignOuts. The records of sessions that have expired go.
func (s *signOuts) End(ctx context.Context, id string, until time.Time) error {
	expired := s.Expire()
	errs := []error{s.EndedSessions.End(ctx, id, until)}
	if err := record.Write(ctx, s.kept, record.SignOut(id), []byte(until.UTC().Format(time.RFC3339))); err != nil {
		errs = append(errs, fmt.Errorf("recording the end of a session: %w", err))
	}
	if s.tell != nil {
		s.tell(ctx, id, until)
	}
	for _, old := range expired {
		errs = append(errs, s.kept.Delete(ctx, record.SignOut(old)))
	}
	return errors.Join(errs...)
}
