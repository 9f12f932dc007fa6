package access

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/fault"
)

// Authority says who somebody is and what they may do. KubeAuth is one.
type Authority interface {
	Rights
	Identifier
}

// Rights says what somebody may do.
type Rights interface {
	Authorize(context.Context, User, Request) error
}

// Scopes finds the namespaces whose stacks somebody may list. Kubernetes has no
// such question, so it is asked about each of them, and only what it answers
// counts. Three kinds of questions are asked side by side, for each person:
//
//	near  where they had the right the last time, and where a role was bound to
//	      them since: few, asked at once whenever a scope has become old
//	far   namespaces that were never asked about, when near is done
//	old   refusals, little by little, with nobody waiting
//
// A right that was taken away must not be used, and one that was given may take
// a moment to show: a yes is asked about again much sooner than a no.
type Scopes struct {
	ScopeOptions
	rights         Rights
	known          cache.Map[string, *sight]
	asking         cache.Flight[string, *sight] // whether somebody may list everything
	near, far, old lane
	rounds         sync.WaitGroup
}

// ScopeOptions are what Scopes are made of.
type ScopeOptions struct {
	Namespaces func() []string                 // that have stacks now
	Likely     func(User) map[string]time.Time // where somebody may have been given rights, and when that was heard of; may be nil. It changes what is asked first, and no answer
	Now        func() time.Time
	Patience   time.Duration // of SoFar: 100 ms if zero
}

// How long answers are believed.
const (
	scopeKept    = 15 * time.Second // a scope, and each yes, before it is asked about again
	yesShown     = 25 * time.Second // a yes that is being asked about again: with the 30 that a stream may take to notice, less than a minute
	refusalsKept = 60 * time.Second // a no to a namespace until it is asked about anew, at most; half of it at least
	settles      = 5 * time.Second  // a new binding, in the cluster's own mind
	personsKept  = time.Hour        // what is known of somebody who has not been here since
)

const (
	patience = 100 * time.Millisecond
	askTime  = 20 * time.Second // for one question, and for a whole scope

	scopesKept  = 256     // persons
	answersKept = 1 << 20 // of all of them together
)

// NewScopes returns the Scopes that rights gives.
func NewScopes(rights Rights, o ScopeOptions) *Scopes {
	return &Scopes{
		ScopeOptions: o, rights: rights, known: cache.Map[string, *sight]{Size: scopesKept, TTL: personsKept, Now: o.Now, Weigh: weigh, Weight: answersKept},
		near: newLane(32), far: newLane(8), old: lane{slots: make(chan struct{}, 1), rests: true},
	}
}

// Scope returns the namespaces whose stacks u may list, when all were asked
// about. The answer is shared: nobody may change it.
func (s *Scopes) Scope(ctx context.Context, u User) (Scope, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, askTime, errStillAsking)
	defer cancel()
	return s.find(ctx, u, nil)
}

// errStillAsking is the answer to who wants all of a scope that takes its time.
// What was found is kept, so that the next time takes less.
var errStillAsking = fault.Wait(2*time.Second, "NotReady", errors.New("it is still being found out what you may see; ask again in a moment"))

// SoFar returns what is known of Scope after a moment. It says how many
// namespaces were not asked about yet; that goes on.
func (s *Scopes) SoFar(ctx context.Context, u User) (Scope, error) {
	enough := time.NewTimer(cmp.Or(s.Patience, patience))
	defer enough.Stop()
	return s.find(ctx, u, enough.C)
}

// find returns all of a scope, or what is known of it when enough is.
func (s *Scopes) find(ctx context.Context, u User, enough <-chan time.Time) (Scope, error) {
	if err := u.somebody(); err != nil {
		return Scope{}, err
	}
	of, err := s.look(ctx, u)
	if err != nil {
		return Scope{}, err
	}
	for _, r := range []func() *round{of.atNear, of.atFar} { // near begins far before it is done
		r := r()
		if r == nil {
			continue
		}
		select {
		case <-r.done:
			if r.err != nil {
				return Scope{}, r.err
			}
		case <-enough:
			return of.scope(s.Now()), nil
		case <-ctx.Done():
			return Scope{}, context.Cause(ctx)
		}
	}
	return of.scope(s.Now()), nil
}

// look returns what is known of u, after having begun to ask whatever has to be
// asked again.
func (s *Scopes) look(ctx context.Context, u User) (*sight, error) {
	key := u.key()
	if of, ok := s.known.Get(key); ok && of.fresh(s.Now()) {
		return of, nil
	}
	// One asks for all who wait, and goes on when one of those has gone away.
	return s.asking.Do(ctx, key, func(ctx context.Context) (*sight, error) {
		ctx, cancel := context.WithTimeout(ctx, askTime)
		defer cancel()
		of, ok := s.known.Get(key)
		if !ok {
			of = &sight{}
		} else if of.fresh(s.Now()) {
			return of, nil
		}
		asked := s.Now()
		all, err := s.may(ctx, u, "")
		if err != nil {
			return nil, err
		}
		if all {
			of.seesAll(asked.Add(scopeKept))
		} else {
			s.begin(u, of, asked)
		}
		s.known.Put(key, of)
		return of, nil
	})
}

// weigh counts the answers about one person. One about whom more is known than
// there is room for is kept all the same, alone.
func weigh(_ string, of *sight) int {
	of.mu.Lock()
	defer of.mu.Unlock()
	return min(len(of.answers), answersKept)
}

// begin asks what is near, and then what else there is to ask.
func (s *Scopes) begin(u User, of *sight, asked time.Time) {
	namespaces := s.Namespaces()
	var likely map[string]time.Time
	if s.Likely != nil {
		likely = s.Likely(u)
	}
	of.mu.Lock()
	defer of.mu.Unlock()
	if of.near != nil {
		return
	}
	near, far, old := of.sort(u, namespaces, likely, asked)
	of.near = s.start(func() error { return s.askAbout(u, near, s.near, of) }, func(err error) {
		of.near = nil
		if err != nil {
			return // the next look begins anew
		}
		of.until = asked.Add(scopeKept)
		if len(namespaces) == 0 {
			of.until = asked // what there is to see is not known yet
		}
		if of.far == nil && len(far) > 0 {
			of.far = s.start(func() error { return s.askAbout(u, far, s.far, of) }, func(err error) {
				of.far = nil
				if err != nil {
					of.until = time.Time{}
				}
			}, of)
		}
		if of.old == nil && len(old) > 0 {
			of.old = s.start(func() error { return s.askAbout(u, old, s.old, of) }, func(error) {
				of.old = nil // those that were not asked about are as old as before
			}, of)
		}
	}, of)
}

// start does something beside all else, and then, holding of, what comes after.
func (s *Scopes) start(do func() error, then func(error), of *sight) *round {
	r := &round{done: make(chan struct{})}
	s.rounds.Go(func() {
		defer close(r.done)
		r.err = do()
		of.mu.Lock()
		defer of.mu.Unlock()
		then(r.err)
	})
	return r
}

// Wait returns when nothing is asked any more.
func (s *Scopes) Wait() { s.rounds.Wait() }

func (s *Scopes) may(ctx context.Context, u User, namespace string) (bool, error) {
	err := s.rights.Authorize(ctx, u, Request{Verb: "list", Resource: ResourceStacks, Namespace: namespace})
	if fault.Of(err) == fault.Denied {
		return false, nil
	}
	return err == nil, err
}
