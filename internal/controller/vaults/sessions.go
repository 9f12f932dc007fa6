package vaults

import (
	"context"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/vault"
)

// Bounds of sessions for secrets that stay.
const (
	accountsKept = 1024
	longestUse   = time.Hour        // a session is replaced after half of what it lasts, and counts as lasting no longer than this
	signInTime   = 30 * time.Second // of one sign-in
	closeTime    = 5 * time.Second  // of the end of all sessions, when this program ends

	// staleAfter is when a session that is refused a secret is replaced: its role may have
	// got other policies since the sign-in. A younger one is replaced only if it has ended.
	staleAfter = 5 * time.Minute

	lingers  = time.Minute // how long what was dropped may still be in use
	tryToEnd = 24 * time.Hour
	leftMost = 1024 // that wait for their end; what exceeds it ends by itself
)

// sessions are those for secrets that stay, one for each account and role. They are not
// renewed: another one takes the place of each in time, and each that is dropped is ended.
type sessions struct {
	kept    cache.Map[signIn, *shared]
	opening cache.Flight[signIn, *shared]

	mu   sync.Mutex
	left []leaving
}

// shared is a session that the stacks of an account have together.
type shared struct {
	vault.Session
	since time.Time
}

// leaving is a session that was dropped.
type leaving struct {
	*shared
	due time.Time // when it is ended
}

func (s *sessions) open(now func() time.Time) {
	s.kept.Now, s.kept.Size = now, accountsKept
	s.kept.Dropped = func(_ signIn, one *shared) { s.leave(one, now().Add(lingers)) }
}

func (s *sessions) leave(one *shared, due time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.left) < leftMost {
		s.left = append(s.left, leaving{one, due})
	}
}

// due takes the sessions whose time to end has come.
func (s *sessions) due(now time.Time) (all []*shared) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var rest []leaving
	for _, l := range s.left {
		if now.Before(l.due) {
			rest = append(rest, l)
		} else {
			all = append(all, l.shared)
		}
	}
	s.left = rest
	return all
}

// drop drops a session, unless another one has taken its place.
func (s *sessions) drop(in signIn, one *shared) {
	s.kept.DeleteFunc(func(of signIn, have *shared) bool { return of == in && have == one })
}

// dropOthers drops the sessions of an account but the one that is opened like this.
func (s *sessions) dropOthers(in signIn) {
	s.kept.DeleteFunc(func(of signIn, _ *shared) bool { return of.account == in.account && of != in })
}

// shared is the session of an account. However many ask for it at once, one signs in.
func (v *Vaults) shared(ctx context.Context, in signIn) (*shared, error) {
	if s, ok := v.sessions.kept.Get(in); ok {
		return s, nil
	}
	return v.sessions.opening.Do(ctx, in, func(ctx context.Context) (*shared, error) {
		if s, ok := v.sessions.kept.Get(in); ok { // another sign-in ended in between
			return s, nil
		}
		ctx, cancel := context.WithTimeout(ctx, signInTime)
		defer cancel()
		opened, err := v.open(ctx, in)
		if err != nil {
			return nil, err
		}
		s := &shared{opened, v.Now()}
		lasts := s.For
		if lasts == 0 || lasts > longestUse {
			lasts = longestUse
		}
		v.sessions.kept.PutUntil(in, s, s.since.Add(lasts/2))
		return s, nil
	})
}

// replace reports whether a session that was refused a secret is dropped, so that another
// one may be allowed it: it has ended, or its role may have got other policies. Each sign-in
// leaves a session at the server, so what is refused again and again makes none each time.
func (v *Vaults) replace(ctx context.Context, in signIn, s *shared) bool {
	if v.Now().Sub(s.since) < staleAfter {
		if known, err := s.Known(ctx); known || err != nil { // the refusal says more than this error
			return false
		}
	}
	v.sessions.drop(in, s)
	return true
}

// sweep drops what is over, and ends the sessions that were replaced.
func (v *Vaults) sweep(ctx context.Context) {
	v.secrets.kept.DropExpired()
	v.sessions.kept.DropExpired()
	all := v.sessions.due(v.Now())
	for i, s := range all {
		err := s.End(ctx, nil)
		switch now := v.Now(); {
		case err == nil:
		case fault.Of(err) == fault.Later && now.Before(s.since.Add(tryToEnd)): // and the others would wait as long
			for _, s := range all[i:] {
				v.sessions.leave(s, now.Add(lingers))
			}
			return
		default:
			v.Log.Warn("a session at the Vault is not ended: it ends by itself", "err", err)
		}
	}
}

// close ends all sessions for secrets that stay.
func (v *Vaults) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, closeTime)
	defer cancel()
	v.sessions.kept.DeleteFunc(func(signIn, *shared) bool { return true })
	for _, s := range v.sessions.due(v.Now().Add(lingers)) {
		if err := s.End(ctx, nil); err != nil {
			v.Log.Warn("a session at the Vault is not ended: it ends by itself", "err", err)
		}
		if ctx.Err() != nil {
			return
		}
	}
}
