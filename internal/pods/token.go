package pods

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/runner/remote"
)

// tokenBytes bounds a token before anything is known of it.
const tokenBytes = 16 << 10

// denied is the error of a token that is not accepted.
func denied(why string) error { return fault.New(fault.Denied, "TokenRefused", errors.New(why)) }

// readToken returns the pod that a token says to be bound to. Nothing of it is proven: only the
// API server verifies tokens. Its error is Denied if the token cannot be valid.
func readToken(token, audience string, now time.Time) (remote.Place, error) {
	if token == "" {
		return remote.Place{}, denied("no token was presented")
	}
	if len(token) > tokenBytes {
		return remote.Place{}, denied("the token is longer than any of a pod")
	}
	var registered jwt.Claims
	var bound struct {
		Kubernetes struct {
			Namespace string `json:"namespace"`
			Pod       struct {
				Name string `json:"name"`
				UID  string `json:"uid"`
			} `json:"pod"`
		} `json:"kubernetes.io"`
	}
	if err := kube.UnprovenClaims(token, &registered, &bound); err != nil {
		return remote.Place{}, denied("the token is none of a ServiceAccount")
	}
	at := remote.Place{Namespace: bound.Kubernetes.Namespace, Name: bound.Kubernetes.Pod.Name, UID: bound.Kubernetes.Pod.UID}
	switch {
	case registered.Issuer == "":
		return remote.Place{}, denied("the token has no issuer")
	case !registered.Audience.Contains(audience):
		return remote.Place{}, denied("the token is for another audience")
	case registered.Expiry == nil || now.Add(-kube.TokenSkew).After(registered.Expiry.Time()):
		return remote.Place{}, denied("the token has expired")
	case at.Namespace == "" || at.Name == "" || at.UID == "":
		return remote.Place{}, denied("the token is not bound to a pod")
	}
	return at, nil
}

// How many questions about tokens that were never accepted there are at once. Those that say to
// be of a pod of this installation wait for their turn by pod, so that a client that sends any
// number of them in the name of one pod keeps none of another waiting.
const (
	askingMost      = 32
	askingStrangers = 2 // about pods of which the watch has not told
	strangersEvery  = 200 * time.Millisecond
	strangersBurst  = 20
	askingPatience  = 5 * time.Second
)

// asking bounds the questions to the API server.
type asking struct {
	runs, strangers *semaphore.Weighted
	pace            *rate.Limiter // of strangers

	mu sync.Mutex
	of map[string]*turns // by UID of the pod
}

// turns are the questions about one pod, one at a time.
type turns struct {
	one   *semaphore.Weighted
	users int
}

func newAsking() *asking {
	return &asking{
		runs: semaphore.NewWeighted(askingMost), strangers: semaphore.NewWeighted(askingStrangers),
		pace: rate.NewLimiter(rate.Every(strangersEvery), strangersBurst), of: map[string]*turns{},
	}
}

var errAsking = errors.New("too many tokens that are not known wait for an answer: the agent tries again")

// enter waits for the turn of a token that says to be of a pod; ours says that it is a pod of
// this installation. Leave ends the turn.
func (a *asking) enter(ctx context.Context, at remote.Place, ours bool) (leave func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, askingPatience, errAsking)
	defer cancel()
	if !ours {
		if err := a.strangers.Acquire(ctx, 1); err != nil {
			return nil, context.Cause(ctx)
		}
		if err := a.pace.Wait(ctx); err != nil {
			a.strangers.Release(1)
			return nil, errors.Join(errAsking, context.Cause(ctx))
		}
		return func() { a.strangers.Release(1) }, nil
	}
	t := a.turns(at.UID)
	if err := t.one.Acquire(ctx, 1); err != nil {
		a.done(at.UID)
		return nil, context.Cause(ctx)
	}
	if err := a.runs.Acquire(ctx, 1); err != nil {
		t.one.Release(1)
		a.done(at.UID)
		return nil, context.Cause(ctx)
	}
	return func() {
		a.runs.Release(1)
		t.one.Release(1)
		a.done(at.UID)
	}, nil
}

func (a *asking) turns(uid string) *turns {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.of[uid]
	if t == nil {
		t = &turns{one: semaphore.NewWeighted(1)}
		a.of[uid] = t
	}
	t.users++
	return t
}

// done forgets the turns of a pod that no question waits for.
func (a *asking) done(uid string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.of[uid]
	if t.users--; t.users == 0 {
		delete(a.of, uid)
	}
}
