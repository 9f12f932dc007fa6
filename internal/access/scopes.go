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

// Authority says who a user is and what that user may do. KubeAuth is one.
type Authority interface {
	Rights
	Identifier
}

// Rights says what a user may do.
type Rights interface {
	Authorize(context.Context, User, Request) error
}

// Scopes finds the namespaces whose stacks a user may list. Kubernetes has no
// such question, so it is asked about each of them, and only its answers count.
// Three kinds of questions are asked side by side, for each user:
//
//	near  namespaces where the user had the right the last time, and where a role
//	      was bound to the user since: few, asked at once when a scope expires
//	far   namespaces that were never asked about, when near is done
//	old   refusals, little by little, while no request waits for them
//
// A right that was revoked must not be used, and one that was granted may take a
// moment to show: a yes is asked for again much sooner than a no.
type Scopes struct {
	ScopeOptions
	rights         Rights
	known          cache.Map[string, *answers]    // by user
	asking         cache.Flight[string, *answers] // whether a user may list everything
	near, far, old lane
	rounds         sync.WaitGroup
}

// ScopeOptions are what Scopes are made of.
type ScopeOptions struct {
	Kind       string                          // of the stacks, as query.Key has it
	Namespaces func() []string                 // that have stacks now
	Likely     func(User) map[string]time.Time // namespaces where a user may have been given rights, and when that was seen; may be nil. It changes the order of questions and no answer
	Now        func() time.Time
	Patience   time.Duration // of SoFar: 100 ms if zero
}

// How long answers are believed.
const (
	scopeTTL     = 15 * time.Second // a scope, and each yes, before it is asked for again
	yesTTL       = 25 * time.Second // a yes that is being asked for again: with the 30 s that a stream may take to notice, less than a minute
	refusalTTL   = 60 * time.Second // a no to a namespace until it is asked for again, at most; half of it at least
	bindingDelay = 5 * time.Second  // until the cluster's authorizer knows of a new binding
	userScopeTTL = time.Hour        // the answers of a user who does not come back
)

const (
	patience = 100 * time.Millisecond

	scopesCached  = 256     // users
	answersCached = 1 << 20 // of all of them together
)

// NewScopes returns the Scopes that rights gives.
func NewScopes(rights Rights, o ScopeOptions) *Scopes {
	s := &Scopes{ScopeOptions: o, rights: rights, near: newLane(32), far: newLane(8), old: lane{slots: make(chan struct{}, 1), pauses: true}}
	s.known = cache.Map[string, *answers]{
		Size: scopesCached, TTL: userScopeTTL, Now: o.Now,
		Weight: answersCached, Weigh: func(_ string, of *answers) int { return min(of.size(), answersCached) },
	}
	return s
}

// Scope returns the namespaces whose stacks u may list, when all were asked
// about. The answer is shared: its caller may not change it.
func (s *Scopes) Scope(ctx context.Context, u User) (Scope, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, reviewTimeout, errStillAsking)
	defer cancel()
	return s.find(ctx, u, nil)
}

// errStillAsking is the answer while a complete scope takes too long. The answers
// so far are kept, so that the next request takes less.
var errStillAsking = fault.Wait(2*time.Second, "NotReady", errors.New("the server is still finding out what you may see; try again in a moment"))

// SoFar returns what is known of Scope after a moment. It says how many
// namespaces were not asked about yet; the questions go on.
func (s *Scopes) SoFar(ctx context.Context, u User) (Scope, error) {
	enough := time.NewTimer(cmp.Or(s.Patience, patience))
	defer enough.Stop()
	return s.find(ctx, u, enough.C)
}

// find returns a complete scope, or what is known of it when enough fires.
func (s *Scopes) find(ctx context.Context, u User, enough <-chan time.Time) (Scope, error) {
	if err := u.identified(); err != nil {
		return Scope{}, err
	}
	of, err := s.answersOf(ctx, u)
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

// answersOf returns what is known of u, after it began to ask what has to be asked
// again.
func (s *Scopes) answersOf(ctx context.Context, u User) (*answers, error) {
	key := u.key()
	if of, ok := s.known.Get(key); ok && of.current(s.Now()) {
		return of, nil
	}
	return s.asking.Do(ctx, key, func(ctx context.Context) (*answers, error) {
		ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
		defer cancel()
		of, ok := s.known.Get(key)
		if !ok {
			of = &answers{}
		} else if of.current(s.Now()) {
			return of, nil
		}
		asked := s.Now()
		all, err := s.may(ctx, u, "")
		if err != nil {
			return nil, err
		}
		if all {
			of.seesAll(asked.Add(scopeTTL))
		} else {
			s.begin(u, of, asked)
		}
		s.known.PutUntil(key, of, asked.Add(userScopeTTL))
		return of, nil
	})
}

// begin asks what is near, and then what else there is to ask.
func (s *Scopes) begin(u User, of *answers, asked time.Time) {
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
			return // the next request begins again
		}
		of.until = asked.Add(scopeTTL)
		if len(namespaces) == 0 {
			of.until = asked // the namespaces are not known yet
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

// start runs do in a goroutine, and then, holding of.mu, then.
func (s *Scopes) start(do func() error, then func(error), of *answers) *round {
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

// Wait returns when no question is being asked any more.
func (s *Scopes) Wait() { s.rounds.Wait() }

func (s *Scopes) may(ctx context.Context, u User, namespace string) (bool, error) {
	err := s.rights.Authorize(ctx, u, Request{Verb: "list", Resource: ResourceStacks, Kind: s.Kind, Namespace: namespace})
	if fault.Of(err) == fault.Denied {
		return false, nil
	}
	return err == nil, err
}
