package access_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
)

// slow answers as a roster does, but delays the answers about a namespace that is
// shut, and counts how many callers ask at once.
type slow struct {
	*roster
	shut func(namespace string) bool

	mu     sync.Mutex
	opened chan struct{}
	now    int
	most   int
}

func newSlow(may ...string) *slow {
	r := &roster{may: map[string]bool{}}
	for _, what := range may {
		r.set(what, true)
	}
	return &slow{roster: r, shut: func(string) bool { return false }, opened: make(chan struct{})}
}

func (s *slow) Authorize(ctx context.Context, u access.User, a access.Request) error {
	if a.Namespace == "" {
		return s.roster.Authorize(ctx, u, a)
	}
	s.mu.Lock()
	s.now++
	s.most = max(s.most, s.now)
	opened := s.opened
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.now--
	}()
	if s.shut(a.Namespace) {
		select {
		case <-opened:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s.roster.Authorize(ctx, u, a)
}

func (s *slow) open() { close(s.opened) }

// noon is when the tests begin.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

var ann = access.User{Name: "ann"}

// soFar looks until so many namespaces are not asked about.
func soFar(t *testing.T, s *access.Scopes, unasked int) access.Scope {
	t.Helper()
	for {
		scope, err := s.SoFar(t.Context(), ann)
		if err != nil {
			t.Fatal(err)
		}
		if scope.Unasked == unasked {
			return scope
		}
	}
}

func at(when time.Time, namespaces ...string) func(access.User) map[string]time.Time {
	likely := map[string]time.Time{}
	for _, n := range namespaces {
		likely[n] = when
	}
	return func(access.User) map[string]time.Time { return likely }
}

// A caller does not wait for a thousand answers. Likely namespaces come first, a
// namespace that was not asked about is in no scope, and the number of these is
// known.
func TestScopeSoFar(t *testing.T) {
	r := newSlow("ann team-0001", "ann team-0900")
	likely := []string{"team-0001", "team-0002"}
	r.shut = func(namespace string) bool { return !slices.Contains(likely, namespace) }
	s := access.NewScopes(r, access.ScopeOptions{Namespaces: thousand, Likely: at(noon, likely...), Now: (&hands{now: noon}).Now, Patience: time.Millisecond})
	scope := soFar(t, s, 998)
	if !scope.Has("team-0001") || scope.Has("team-0002") || scope.Has("team-0900") || len(scope.In) != 1 {
		t.Errorf("before all is known the scope is %v, want team-0001 alone", scope)
	}
	r.open()
	whole, err := s.Scope(t.Context(), ann)
	if err != nil || whole.Unasked != 0 || len(whole.In) != 2 || !whole.Has("team-0900") {
		t.Errorf("the whole scope is %v, %v", whole, err)
	}
	if scope.Has("team-0900") {
		t.Error("a scope that was given away has changed")
	}
	s.Wait()
	if r.questions() != 1001 {
		t.Errorf("%d questions were asked, want one for each namespace and one for all", r.questions())
	}
}

// However often a caller looks while the cluster is slow, each question is asked once.
func TestLookingAgainAsksNothingAgain(t *testing.T) {
	r := newSlow("ann team-0001")
	r.shut = func(string) bool { return true }
	s := access.NewScopes(r, access.ScopeOptions{Namespaces: func() []string { return []string{"team-0001"} }, Likely: at(noon, "team-0001"), Now: (&hands{now: noon}).Now, Patience: time.Millisecond})
	for range 3 {
		if scope := soFar(t, s, 1); len(scope.In) > 0 {
			t.Errorf("before there is an answer the scope is %v", scope)
		}
	}
	if r.questions() != 1 {
		t.Errorf("%d questions were asked for all namespaces, want one", r.questions())
	}
	r.open()
	if scope, err := s.Scope(t.Context(), ann); err != nil || !scope.Has("team-0001") || r.questions() != 2 {
		t.Errorf("the scope is %v, %v after %d questions; want team-0001 after 2", scope, err, r.questions())
	}
}

// A role that was bound somewhere has the cluster asked at once, also where it
// has said no before. The cluster's answer is the one that counts.
func TestABindingIsAQuestion(t *testing.T) {
	r, clock := newSlow(), &hands{now: noon}
	var mu sync.Mutex
	likely := at(noon)
	s := access.NewScopes(r, access.ScopeOptions{Namespaces: thousand, Now: clock.Now, Likely: func(u access.User) map[string]time.Time {
		mu.Lock()
		defer mu.Unlock()
		return likely(u)
	}})
	if scope, _ := scopeOf(t, s, r.roster); len(scope.In) > 0 {
		t.Fatalf("the scope of somebody without rights is %v", scope)
	}
	r.set("ann team-0007", true)
	clock.pass(15 * time.Second)
	mu.Lock()
	likely = at(clock.Now(), "team-0007", "team-0008")
	mu.Unlock()
	scope, asked := scopeOf(t, s, r.roster)
	if !scope.Has("team-0007") || scope.Has("team-0008") || asked != 3 {
		t.Errorf("after two roles were bound the scope is %v after %d questions, want team-0007 after 3", scope, asked)
	}
	clock.pass(15 * time.Second)
	if _, asked := scopeOf(t, s, r.roster); asked > 300 {
		t.Errorf("the next look takes %d questions: a binding that is known is no news", asked)
	}
}

// While the cluster takes its time, a right that it gave is believed a little
// longer, and not for long.
func TestARightIsNotBelievedForLong(t *testing.T) {
	r, clock := newSlow("ann team-0001"), &hands{now: noon}
	s := access.NewScopes(r, access.ScopeOptions{Namespaces: func() []string { return []string{"team-0001"} }, Now: clock.Now, Patience: time.Millisecond})
	if scope, _ := scopeOf(t, s, r.roster); !scope.Has("team-0001") {
		t.Fatalf("the scope is %v", scope)
	}
	r.shut = func(string) bool { return true }
	clock.pass(24 * time.Second)
	if scope := soFar(t, s, 0); !scope.Has("team-0001") {
		t.Errorf("after 24 seconds the scope is %v, want it as it was", scope)
	}
	r.set("ann team-0001", false)
	clock.pass(time.Second)
	if scope := soFar(t, s, 1); scope.Has("team-0001") {
		t.Errorf("after 25 seconds without an answer the scope is %v", scope)
	}
	r.open()
	if scope := soFar(t, s, 0); scope.Has("team-0001") {
		t.Errorf("after the answer, which is no, the scope is %v", scope)
	}
}

// A hundred persons at once ask no more at once than one does.
func TestPersonsShareTheQuestions(t *testing.T) {
	r := newSlow()
	s := access.NewScopes(r, access.ScopeOptions{Namespaces: thousand, Now: time.Now})
	var persons sync.WaitGroup
	for i := range 100 {
		persons.Go(func() {
			if scope, err := s.SoFar(t.Context(), access.User{Name: fmt.Sprint("person-", i)}); err != nil || len(scope.In) > 0 {
				t.Errorf("a person without rights gets %v, %v", scope, err)
			}
		})
	}
	persons.Wait()
	s.Wait()
	if r.most > 8 || r.questions() != 100*1001 {
		t.Errorf("%d questions were asked, up to %d at once; want 1,001 for each of 100 persons, and at most 8 at once", r.questions(), r.most)
	}
}
