package policies

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/policy/v1alpha1"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/policy/guard"
	"github.com/terrier-iac/terrier/internal/review"
)

// scripted are programs whose text says what comes of it: "ok", "wrong", "panic" or "never". Its
// source may be down.
type scripted struct {
	mu       sync.Mutex
	artifact string // of the source
	down     error  // the source cannot be found
	unread   error  // its artifact cannot be read
	calls    map[string]int
}

func (s *scripted) Find(_ context.Context, _ client.Object, r v1alpha1.Rego) (Text, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.SourceRef == nil {
		return Text{ID: r.Modules["a"], What: r.Modules["a"]}, nil
	}
	return Text{ID: s.artifact, Revision: s.artifact, What: "source " + s.artifact}, s.down
}

func (s *scripted) Compile(ctx context.Context, t Text) (Program, string, error) {
	what := t.What.(string)
	s.mu.Lock()
	if s.calls == nil {
		s.calls = map[string]int{}
	}
	s.calls[what]++
	unread := s.unread
	s.mu.Unlock()
	switch {
	case strings.HasPrefix(what, "source ") && unread != nil:
		return nil, "", unread
	case what == "wrong":
		return nil, "", fault.New(fault.Invalid, "PolicyInvalid", errors.New("a.rego:1: it is wrong"))
	case what == "panic":
		panic("the library broke")
	case strings.HasPrefix(what, "never"):
		<-ctx.Done()
		return nil, "", ctx.Err()
	}
	return what, what, nil
}

func (s *scripted) Judge(_ context.Context, q Question) ([]policy.Finding, string, error) {
	var out []policy.Finding
	for _, m := range q.Members {
		out = append(out, policy.Finding{Policy: m.Policy, Rule: "by", Effect: policy.Warn, Message: m.Program.(string)})
	}
	return out, "input", nil
}

func (s *scripted) set(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

func (s *scripted) called(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[what]
}

// stage runs Policies over a list of objects, in the time of a bubble.
type stage struct {
	*Policies
	programs *scripted
	mu       sync.Mutex // of objects, which are read at any time
	objects  []v1alpha1.ClusterPolicy
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{programs: &scripted{artifact: "one"}}
	o := objects{of: map[string]map[string]string{"shop": nil}, policies: &s.objects, mu: &s.mu}
	s.Policies = newPolicies(Options{
		Dialects: kinds.All(), TenantLabel: "terrier.dev/tenant", Now: time.Now, Live: o, Programs: s.programs, Log: slog.New(slog.DiscardHandler),
		Leads: func() bool { return false },
	})
	s.cache = o
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	synctest.Wait()
	return s
}

// put has a policy with a program of one module, or of the source if the text is empty.
func (s *stage) put(name, text string, change ...func(*v1alpha1.ClusterPolicy)) {
	r := &v1alpha1.Rego{Modules: map[string]string{"a": text}}
	if text == "" {
		r = &v1alpha1.Rego{SourceRef: &v1alpha1.SourceRef{Kind: "GitRepository", Namespace: "policies", Name: "policies"}}
	}
	next := v1alpha1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Generation: 1}, Spec: v1alpha1.PolicySpec{Rego: r}}
	for _, c := range change {
		c(&next)
	}
	defer s.Changed()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.objects {
		if o := &s.objects[i]; o.Name == name {
			next.Generation += o.Generation
			*o = next
			return
		}
	}
	s.objects = append(s.objects, next)
}

func (s *stage) policy(name string) *compiled {
	for _, c := range s.now.Load().policies {
		if c.key.Name == name {
			return c
		}
	}
	return nil
}

// A program that takes for ever keeps no other policy from changing, and only the stacks of
// its policy wait. It ends with its time.
func TestAProgramThatTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.put("slow", "never", func(c *v1alpha1.ClusterPolicy) { c.Spec.Selector.Namespaces = []string{"slow"} })
		s.put("quick", "ok")
		synctest.Wait()
		if c := s.policy("quick"); c.program != "ok" || c.pending {
			t.Errorf("the other policy is %+v, want it ready", c)
		}
		if _, err := s.For(t.Context(), stackOf("shop", "net", nil, nil)); err != nil {
			t.Errorf("For() of another stack = %v", err)
		}
		s.cache.(objects).of["slow"] = nil
		if _, err := s.For(t.Context(), stackOf("slow", "net", nil, nil)); fault.Of(err) != fault.Later || !strings.Contains(err.Error(), "ClusterPolicy/slow is not compiled yet") {
			t.Errorf("For() of its stack = %v, want that it waits", err)
		}
		<-time.After(buildMost + time.Second)
		synctest.Wait()
		if c := s.policy("slow"); !strings.Contains(c.broken, "it took longer than 1m0s") {
			t.Errorf("after its time: %+v, want it broken", c)
		}
		if set, err := s.For(t.Context(), stackOf("slow", "net", nil, nil)); err != nil || set.Digest == "" {
			t.Errorf("For() of its stack = %+v, %v, want that its plans are judged", set, err)
		}
	})
}

// A namespace has one program compiled at a time, so that it takes no place from others.
func TestOneNamespaceKeepsNoOtherWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		programs := &scripted{}
		b := newBuilds(programs, time.Now, slog.New(slog.DiscardHandler), func() {})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); b.run(ctx) }()
		defer func() { stop(); <-done }()
		for _, id := range []string{"never-1", "never-2", "never-3", "never-4"} {
			b.of(Text{ID: id, What: id}, "hostile")
		}
		b.of(Text{ID: "ok", What: "ok"}, "honest")
		b.of(Text{ID: "whole", What: "whole"}, "")
		synctest.Wait()
		for _, id := range []string{"ok", "whole"} {
			if got := b.of(Text{ID: id}, ""); got == nil || got.program != id {
				t.Errorf("the program %s of another namespace is %+v, want it compiled", id, got)
			}
		}
		if n := programs.called("never-1") + programs.called("never-2"); n != 1 {
			t.Errorf("%d programs of one namespace are compiled at once, want 1", n)
		}
	})
}

// What cannot be compiled is compiled once, also if there are more policies than a cache of a
// fixed size would have.
func TestWhatWasCompiledIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		for i := range 200 {
			name := "p" + strings.Repeat("x", i)
			s.put(name, name)
		}
		s.put("wrong", "wrong")
		s.put("panic", "panic")
		synctest.Wait()
		for range 3 {
			s.Changed()
			synctest.Wait()
		}
		<-time.After(time.Hour)
		for _, c := range s.objects {
			if n := s.programs.called(c.Spec.Rego.Modules["a"]); n != 1 {
				t.Fatalf("%s was compiled %d times, want once", c.Name, n)
			}
		}
		if c := s.policy("wrong"); c.broken != "spec.rego: a.rego:1: it is wrong" {
			t.Errorf("%q", c.broken)
		}
		if c := s.policy("panic"); !strings.Contains(c.broken, "broke off: the library broke") {
			t.Errorf("%q", c.broken)
		}
		s.objects = s.objects[:1]
		s.Changed()
		synctest.Wait()
		if n := len(s.builds.known); n != 1 {
			t.Errorf("%d programs are kept, want those in use", n)
		}
	})
}

// A source that cannot be read keeps its last artifact in use, and is read again by itself.
func TestTheLastArtifactIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.programs.set(func() { s.programs.unread = errors.New("the server is away") })
		s.put("p", "")
		synctest.Wait()
		if c := s.policy("p"); !strings.Contains(c.broken, "the server is away") || !c.judges() {
			t.Errorf("before there was one: %+v, want it broken", c)
		}
		s.programs.set(func() { s.programs.unread = nil })
		<-time.After(soonAgain + time.Second) // nothing changes: it is read again by itself
		synctest.Wait()
		if c := s.policy("p"); c.program != "source one" || c.broken != "" {
			t.Errorf("once it can be read: %+v", c)
		}
		was := s.policy("p").digest
		for name, down := range map[string]func(){
			"the next artifact cannot be read": func() { s.programs.artifact, s.programs.unread = "two", errors.New("the server is away") },
			"the source is gone":               func() { s.programs.down = fault.New(fault.Missing, "", errors.New("it does not exist")) },
		} {
			s.programs.set(down)
			s.Changed()
			synctest.Wait()
			if c := s.policy("p"); c.program != "source one" || c.revision != "one" || c.earlier == "" || c.broken != "" || c.digest != was {
				t.Errorf("%s: %+v, want the last artifact", name, c)
			}
		}
		s.programs.set(func() { s.programs.down, s.programs.unread = nil, nil })
		<-time.After(latestSoon)
		s.Changed() // as the watch of sources does
		synctest.Wait()
		if c := s.policy("p"); c.program != "source two" || c.earlier != "" {
			t.Errorf("once the next artifact can be read: %+v", c)
		}
		s.programs.set(func() { s.programs.unread = errors.New("the server is away") })
		s.put("p", "", func(c *v1alpha1.ClusterPolicy) { c.Spec.Rego.Path = "other" })
		s.programs.set(func() { s.programs.artifact = "three" })
		s.Changed()
		synctest.Wait()
		if c := s.policy("p"); c.program != nil || c.broken == "" {
			t.Errorf("another path of a source that cannot be read: %+v, want it broken", c)
		}
	})
}

// A policy that cannot be evaluated holds plans, and denies them if it says so.
func TestOnError(t *testing.T) {
	for effect, want := range map[string]review.Outcome{"": review.Hold, v1alpha1.Hold: review.Hold, v1alpha1.Deny: review.Refuse} {
		spec := v1alpha1.PolicySpec{OnError: effect, Approval: &v1alpha1.Approval{Count: 2}, Rego: &v1alpha1.Rego{Modules: map[string]string{"a.rego": "package terrier"}}}
		p := having(t, nil, clusterPolicy("p", spec))
		a := asked(t, p, stackOf("shop", "net", nil, nil), "unchanged.json")
		if a.Outcome != want || len(a.Findings) != 1 || !a.Findings[0].Error || (a.Findings[0].Approval == nil) != (want == review.Refuse) {
			t.Errorf("onError %q: Review() = %+v, want %v", effect, a, want)
		}
	}
	if one, two := digestOf(t, v1alpha1.Hold), digestOf(t, v1alpha1.Deny); one == two {
		t.Error("another onError judges no plan again")
	}
}

func digestOf(t *testing.T, effect string) string {
	t.Helper()
	set, err := having(t, nil, clusterPolicy("p", v1alpha1.PolicySpec{OnError: effect, Guards: noDestroys()})).For(t.Context(), stackOf("shop", "net", nil, nil))
	if err != nil {
		t.Fatal(err)
	}
	return set.Digest
}

// A stack whose namespace is not known yet is judged by the labels that the server has, and
// waits if the server has none. What changes meanwhile is seen before resources are changed.
func TestNamespacesThatAreNotKnownYet(t *testing.T) {
	inProduction := clusterPolicy("p", v1alpha1.PolicySpec{Guards: noDestroys(), Selector: v1alpha1.Selector{Environments: []string{"production"}}})
	p := having(t, map[string]map[string]string{}, inProduction)
	p.Live = objects{of: map[string]map[string]string{"new": {v1alpha1.EnvironmentLabel: "production"}}}
	if got := judges(t, p, stackOf("new", "net", nil, nil)); len(got) != 1 {
		t.Errorf("a namespace that only the server knows is judged by %v, want the policy of its label", got)
	}
	if _, err := p.For(t.Context(), stackOf("nowhere", "net", nil, nil)); fault.Of(err) != fault.Later {
		t.Errorf("For() of a namespace that is not known = %v, want that the stack waits", err)
	}

	p.cache = objects{of: map[string]map[string]string{"new": nil}} // the label is not seen yet
	set, err := p.For(t.Context(), stackOf("new", "net", nil, nil))
	if err != nil || set.Digest != "" {
		t.Fatalf("For() = %+v, %v", set, err)
	}
	if err := set.Confirm(t.Context(), stackOf("new", "net", nil, nil)); fault.Of(err) != fault.Conflict {
		t.Errorf("Confirm() = %v, want a conflict: the server has a label that the cache has not", err)
	}
	p.Live = p.cache.(objects)
	if err := set.Confirm(t.Context(), stackOf("new", "net", nil, nil)); err != nil {
		t.Errorf("Confirm() = %v of the same labels", err)
	}
	if err := (Set{}).Confirm(t.Context(), stackOf("new", "net", nil, nil)); err != nil {
		t.Errorf("Confirm() = %v without policies", err)
	}
}

// The condition of a policy says what follows from its state.
func TestConditions(t *testing.T) {
	for name, tt := range map[string]struct {
		c      compiled
		status metav1.ConditionStatus
		reason string
		says   string
	}{
		"evaluated":                {compiled{}, metav1.ConditionTrue, "PolicyReady", "The policy is evaluated"},
		"a dry run":                {compiled{source: guard.Source{DryRun: true}}, metav1.ConditionTrue, "PolicyReady", "as a dry run"},
		"not to be read":           {compiled{broken: "spec.rego: a"}, metav1.ConditionFalse, "PolicyInvalid", "spec.rego: a. Until this is corrected, every plan of a stack that the policy selects is held."},
		"not to be read, and deny": {compiled{broken: "spec.rego: a", onError: policy.Deny}, metav1.ConditionFalse, "PolicyInvalid", "selects is denied."},
		"a dry run not to be read": {compiled{broken: "spec.rego: a", source: guard.Source{DryRun: true}}, metav1.ConditionFalse, "PolicyInvalid", "has no effect."},
		"being compiled":           {compiled{pending: true}, metav1.ConditionUnknown, "PolicyPending", "wait"},
		"of an earlier artifact":   {compiled{earlier: "spec.rego: away", revision: "main@sha1:1"}, metav1.ConditionTrue, "EarlierArtifact", "the revision main@sha1:1, since the source cannot be read: spec.rego: away"},
	} {
		if got := tt.c.condition(time.Time{}); got.Status != tt.status || got.Reason != tt.reason || !strings.Contains(got.Message, tt.says) {
			t.Errorf("%s: %+v, want %s with %q", name, got, tt.reason, tt.says)
		}
	}
}
