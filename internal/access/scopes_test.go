package access_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// roster is an Authority that says yes to what is on it, and counts questions.
type roster struct {
	mu      sync.Mutex
	may     map[string]bool // USER NAMESPACE
	asked   []string
	reviews int
	down    error
}

func (r *roster) Authorize(_ context.Context, u access.User, a access.Request) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, a.Namespace)
	if r.down != nil {
		return r.down
	}
	if r.may[u.Name+" "+a.Namespace] {
		return nil
	}
	return fault.New(fault.Denied, access.ReasonAccessDenied, errors.New("no"))
}

func (r *roster) Authenticate(_ context.Context, t secret.Text) (access.User, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reviews++
	if r.may["token "+t.Reveal()] {
		return access.User{Name: t.Reveal()}, nil
	}
	return access.User{}, fault.New(fault.Denied, access.ReasonUnknownUser, errors.New("unknown"))
}

func (r *roster) set(what string, may bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.may[what] = may
}

func (r *roster) questions() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.asked)
}

// hands is a clock that a test moves.
type hands struct {
	mu  sync.Mutex
	now time.Time
}

func (h *hands) Now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

func (h *hands) pass(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now = h.now.Add(d)
}

func thousand() []string {
	var all []string
	for n := range 1000 {
		all = append(all, fmt.Sprintf("team-%04d", n))
	}
	return all
}

// scopeOf asks for ann's scope and returns how many questions that took, including
// those that no caller waited for.
func scopeOf(t *testing.T, s *access.Scopes, r *roster) (access.Scope, int) {
	t.Helper()
	before := r.questions()
	scope, err := s.Scope(t.Context(), access.User{Name: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	s.Wait()
	return scope, r.questions() - before
}

// The rights of a user are asked for once, and then in parts: the granted ones at
// each turn, the refused ones over a minute.
func TestScopeIsCheap(t *testing.T) {
	r, clock := &roster{may: map[string]bool{}}, &hands{now: noon}
	for n := range 5 {
		r.set(fmt.Sprintf("ann team-%04d", n*100), true)
	}
	s := access.NewScopes(r, access.ScopeOptions{Namespaces: thousand, Now: clock.Now})
	scope, asked := scopeOf(t, s, r)
	if len(scope.In) != 5 || scope.All || asked != 1001 {
		t.Fatalf("the scope is %d namespaces of all %t, after %d questions; want 5 after 1001", len(scope.In), scope.All, asked)
	}
	if _, asked := scopeOf(t, s, r); asked != 0 {
		t.Errorf("a second look takes %d questions, want none", asked)
	}
	clock.pass(15 * time.Second)
	if _, asked := scopeOf(t, s, r); asked != 6 {
		t.Errorf("a look after 15 seconds takes %d questions, want 6: all, and each of the five", asked)
	}
	// Over the next minute every refusal is asked about again, never all at once,
	// and with no caller waiting.
	most, total := 0, 0
	for range 4 {
		clock.pass(15 * time.Second)
		_, asked := scopeOf(t, s, r)
		most, total = max(most, asked), total+asked
	}
	if most > 700 || total < 995 {
		t.Errorf("a minute takes %d questions, at most %d at once; want each refusal asked about, and not together", total, most)
	}
}

// A revoked right is gone within 15 seconds. A granted right is there at the check
// after the first one that finds the refusal a minute old.
func TestScopeFollowsTheRoles(t *testing.T) {
	r, clock := &roster{may: map[string]bool{"ann team-0001": true}}, &hands{now: noon}
	s := access.NewScopes(r, access.ScopeOptions{Namespaces: thousand, Now: clock.Now})
	if scope, _ := scopeOf(t, s, r); !scope.Has("team-0001") || scope.Has("team-0002") {
		t.Fatalf("the scope is %v", scope)
	}
	r.set("ann team-0001", false)
	r.set("ann team-0002", true)
	clock.pass(15 * time.Second)
	if scope, _ := scopeOf(t, s, r); scope.Has("team-0001") {
		t.Error("a namespace stays after the right to it was taken away")
	}
	clock.pass(45 * time.Second)
	scopeOf(t, s, r)
	clock.pass(15 * time.Second)
	if scope, _ := scopeOf(t, s, r); !scope.Has("team-0002") {
		t.Error("a namespace is not there a minute and a look after the right to it was given")
	}
	r.set("ann ", true)
	clock.pass(15 * time.Second)
	if scope, asked := scopeOf(t, s, r); !scope.All || asked != 1 {
		t.Errorf("the scope of who may list everything is %v after %d questions, want all after one", scope, asked)
	}
	r.set("ann ", false)
	clock.pass(15 * time.Second)
	if scope, _ := scopeOf(t, s, r); scope.All {
		t.Error("everything stays after the right to it was taken away")
	}
}

// An answer that could not be had is no answer: neither yes nor no.
func TestScopeOfAClusterThatIsDown(t *testing.T) {
	r, clock := &roster{may: map[string]bool{"ann team-0001": true}, down: errors.New("down")}, &hands{now: noon}
	s := access.NewScopes(r, access.ScopeOptions{Namespaces: thousand, Now: clock.Now})
	if _, err := s.Scope(t.Context(), access.User{Name: "ann"}); err == nil {
		t.Fatal("a cluster that is down says what ann may list")
	}
	r.mu.Lock()
	r.down = nil
	r.mu.Unlock()
	if scope, _ := scopeOf(t, s, r); !scope.Has("team-0001") {
		t.Error("a failure is believed on")
	}
}

func TestScopesAreOnePersons(t *testing.T) {
	r, clock := &roster{may: map[string]bool{"ann team-0001": true}}, &hands{now: noon}
	s := access.NewScopes(r, access.ScopeOptions{Namespaces: thousand, Now: clock.Now})
	scopeOf(t, s, r)
	scope, err := s.Scope(t.Context(), access.User{Name: "bob"})
	if err != nil || scope.Has("team-0001") {
		t.Errorf("bob gets %v, %v: ann's scope", scope, err)
	}
	for _, u := range []access.User{{}, {Name: "system:anonymous"}, {Name: "x", Groups: []string{"system:unauthenticated"}}, {Name: access.OwnUsers + "pull:apps"}} {
		if _, err := s.Scope(t.Context(), u); fault.Of(err) != fault.Denied {
			t.Errorf("the scope of %+v is %v, want Denied", u, err)
		}
	}
}

// A thousand namespaces on a real API server, whose answers take their time.
func TestScopeOfManyNamespaces(t *testing.T) {
	c := testkit.Kube(t)
	token := reader(t, c, rbacv1.PolicyRule{APIGroups: []string{"infra.contrib.fluxcd.io"}, Resources: []string{"terraforms"}, Verbs: []string{"list"}})
	auth, err := access.NewKubeAuth(c.Config, kinds.All())
	if err != nil {
		t.Fatal(err)
	}
	user, err := auth.Authenticate(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	s := access.NewScopes(auth, access.ScopeOptions{Namespaces: func() []string { return append(thousand(), c.Namespace) }, Now: time.Now})
	for _, what := range []string{"the first look", "the next"} {
		began := time.Now()
		scope, err := s.Scope(t.Context(), user)
		if err != nil || len(scope.In) != 1 || !scope.Has(c.Namespace) {
			t.Fatalf("the scope is %v, %v; want %s only", scope, err, c.Namespace)
		}
		t.Logf("%s at 1,001 namespaces takes %s", what, time.Since(began))
	}
}

// Rights are believed for five seconds.
func TestRecentAnswers(t *testing.T) {
	r, clock := &roster{may: map[string]bool{"ann apps": true}}, &hands{now: noon}
	recent := access.NewRecentAuth(r, clock.Now)
	ann := access.User{Name: "ann"}
	may := func() bool {
		return recent.Authorize(t.Context(), ann, access.Request{Verb: "get", Resource: access.ResourceStacks, Namespace: "apps"}) == nil
	}
	for range 10 {
		if !may() {
			t.Fatal("ann has no right")
		}
	}
	if r.questions() != 1 {
		t.Errorf("ten times the same takes %d questions, want one", r.questions())
	}
	if recent.Authorize(t.Context(), ann, access.Request{Verb: "list", Resource: access.ResourceStacks, Namespace: "other"}) == nil {
		t.Error("the answer to one question is given to another")
	}
	r.set("ann apps", false)
	clock.pass(5 * time.Second)
	if may() {
		t.Error("a right is there five seconds after it was taken away")
	}
}

// kindRights lets a user see the stacks of one kind.
type kindRights struct {
	access.Authority
	kind string
}

func (k kindRights) Authorize(_ context.Context, _ access.User, q access.Request) error {
	if q.Kind == k.kind {
		return nil
	}
	return fault.New(fault.Denied, access.ReasonAccessDenied, errors.New("no"))
}

// The permission for one kind of stack is not the permission for another.
func TestRecentAnswersKeepKindsApart(t *testing.T) {
	recent := access.NewRecentAuth(kindRights{kind: "terraform.second.example.com"}, func() time.Time { return noon })
	for range 2 {
		for kind, want := range map[string]bool{"": false, "terraform.second.example.com": true} {
			err := recent.Authorize(t.Context(), access.User{Name: "ann"}, access.Request{Verb: "get", Resource: access.ResourceStacks, Kind: kind, Namespace: "apps", Name: "net"})
			if (err == nil) != want {
				t.Errorf("the kind %q: %v, want allowed %v", kind, err, want)
			}
		}
	}
}
