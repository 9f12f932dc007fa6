package service

import (
	"context"
	"hash/fnv"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"

	"github.com/terrier-iac/terrier/internal/fault"
)

// Authority says who somebody is and what they may do. KubeAuth is one.
type Authority interface {
	Rights
	Identifier
}

// Rights says what somebody may do.
type Rights interface {
	Authorize(context.Context, User, Access) error
}

// Scopes finds the namespaces whose stacks somebody may list. Kubernetes has no
// such question, so it is asked about each of them; most answers are no, and
// those are believed longer than a yes: a right that was taken away must not be
// used, and one that was given may take a moment to show. A no that has become
// old is asked about anew while nobody waits for it.
type Scopes struct {
	rights     Rights
	namespaces func() []string
	now        func() time.Time
	known      kept[*scopeOf]
	asking     singleflight.Group
	renewals   sync.WaitGroup
}

// How long answers are believed.
const (
	scopeKept    = 15 * time.Second // a scope, and each yes
	refusalsKept = 60 * time.Second // a no to a namespace until it is asked about anew, at most; half of it at least
	personsKept  = time.Hour        // what is known of somebody who has not been here since
)

const (
	scopesKept  = 256 // persons
	scopesAsked = 16  // questions at once, for one person
	askTime     = 20 * time.Second
)

// NewScopes returns the Scopes among namespaces, which are those that have
// stacks now.
func NewScopes(rights Rights, namespaces func() []string, now func() time.Time) *Scopes {
	return &Scopes{rights: rights, namespaces: namespaces, now: now, known: kept[*scopeOf]{most: scopesKept, now: now}}
}

// scopeOf is what is known of one person.
type scopeOf struct {
	mu       sync.Mutex
	scope    Scope // never written to once it was given away
	until    time.Time
	verdicts map[string]verdict
	renewed  map[string]verdict // what was heard since of those that had become old
	renewing bool
}

type verdict struct {
	allowed bool
	until   time.Time
}

// Scope returns the namespaces whose stacks u may list. The answer is shared:
// nobody may change it.
func (s *Scopes) Scope(ctx context.Context, u User) (Scope, error) {
	if err := u.somebody(); err != nil {
		return Scope{}, err
	}
	key := u.key()
	of, ok := s.known.get(key)
	if ok {
		if scope, fresh := of.get(s.now()); fresh {
			return scope, nil
		}
	}
	// One asks for all who wait, and goes on when one of those has gone away.
	v, err, _ := s.asking.Do(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
		defer cancel()
		of, ok := s.known.get(key)
		if !ok {
			of = &scopeOf{}
		} else if scope, fresh := of.get(s.now()); fresh {
			return scope, nil
		}
		scope, err := s.ask(ctx, u, of)
		s.known.put(key, of, s.now().Add(personsKept))
		return scope, err
	})
	if err != nil {
		return Scope{}, err
	}
	return v.(Scope), nil
}

func (of *scopeOf) get(now time.Time) (Scope, bool) {
	of.mu.Lock()
	defer of.mu.Unlock()
	return of.scope, now.Before(of.until)
}

// ask finds a scope anew. Only one at a time does so for a person.
func (s *Scopes) ask(ctx context.Context, u User, of *scopeOf) (Scope, error) {
	asked := s.now()
	all, err := s.may(ctx, u, "")
	if err != nil {
		return Scope{}, err
	}
	if all {
		of.set(Everything, asked.Add(scopeKept), nil)
		return Everything, nil
	}
	verdicts, old, err := s.askEach(ctx, u, of.before())
	if err != nil {
		return Scope{}, err
	}
	defer s.renew(u, of, old)
	scope, until := Scope{In: map[string]bool{}}, asked.Add(scopeKept)
	if len(verdicts) == 0 {
		until = asked // what there is to see is not known yet
	}
	for namespace, v := range verdicts {
		if v.allowed {
			scope.In[namespace] = true
		}
	}
	of.set(scope, until, verdicts)
	return scope, nil
}

func (of *scopeOf) set(scope Scope, until time.Time, verdicts map[string]verdict) {
	of.mu.Lock()
	defer of.mu.Unlock()
	of.scope, of.until, of.verdicts = scope, until, verdicts
}

// before is what was heard of each namespace last.
func (of *scopeOf) before() map[string]verdict {
	of.mu.Lock()
	defer of.mu.Unlock()
	known := map[string]verdict{}
	maps.Copy(known, of.verdicts)
	maps.Copy(known, of.renewed) // of no namespace that verdicts does not know
	of.renewed = nil
	return known
}

// renew asks about namespaces whose refusals have become old, with nobody
// waiting for the answers: the next scope has them.
func (s *Scopes) renew(u User, of *scopeOf, old []string) {
	of.mu.Lock()
	defer of.mu.Unlock()
	if of.renewing || len(old) == 0 {
		return
	}
	of.renewing = true
	s.renewals.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), askTime)
		defer cancel()
		answers, err := s.askAbout(ctx, u, old)
		of.mu.Lock()
		defer of.mu.Unlock()
		of.renewing = false
		if err == nil { // else the next scope finds them as old as they are
			of.renewed = answers
		}
	})
}

// Wait returns when nothing is asked any more that nobody waits for.
func (s *Scopes) Wait() { s.renewals.Wait() }

// askEach asks about every namespace but those that were refused before; old
// are the refusals among these that should be asked about anew.
func (s *Scopes) askEach(ctx context.Context, u User, before map[string]verdict) (verdicts map[string]verdict, old []string, err error) {
	verdicts = map[string]verdict{}
	var ask []string
	for _, namespace := range s.namespaces() {
		v, known := before[namespace]
		if !known || v.allowed { // a yes is never believed on from one scope to the next
			ask = append(ask, namespace)
			continue
		}
		verdicts[namespace] = v
		if !s.now().Before(v.until) {
			old = append(old, namespace)
		}
	}
	answers, err := s.askAbout(ctx, u, ask)
	maps.Copy(verdicts, answers)
	return verdicts, old, err
}

// askAbout asks about each of some namespaces, a few at once.
func (s *Scopes) askAbout(ctx context.Context, u User, namespaces []string) (map[string]verdict, error) {
	answers := make([]verdict, len(namespaces))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(scopesAsked)
	for i, namespace := range namespaces {
		asked := s.now()
		g.Go(func() error {
			allowed, err := s.may(ctx, u, namespace)
			answers[i] = verdict{allowed, asked.Add(refusalAge(u, namespace))}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	verdicts := make(map[string]verdict, len(namespaces))
	for i, namespace := range namespaces {
		verdicts[namespace] = answers[i]
	}
	return verdicts, nil
}

// refusalAge spreads the questions out, so that a thousand refusals are not
// asked about anew at the same moment.
func refusalAge(u User, namespace string) time.Duration {
	h := fnv.New32a()
	h.Write([]byte(u.Name + "\x00" + namespace))
	const half = refusalsKept / 2
	return half + time.Duration(h.Sum32()%uint32(half/time.Millisecond))*time.Millisecond
}

func (s *Scopes) may(ctx context.Context, u User, namespace string) (bool, error) {
	err := s.rights.Authorize(ctx, u, Access{Verb: "list", Resource: ResourceStacks, Namespace: namespace})
	if fault.Of(err) == fault.Denied {
		return false, nil
	}
	return err == nil, err
}
