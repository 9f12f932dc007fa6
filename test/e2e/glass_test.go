package e2e

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// glassReason waits until the condition of break-glass sessions has a reason.
func glassReason(reason string) func(*v1alpha2.Terraform) error {
	return func(s *v1alpha2.Terraform) error {
		c := meta.FindStatusCondition(s.Status.Conditions, "BreakTheGlass")
		if reason == "" && c == nil || c != nil && c.Reason == reason {
			return nil
		}
		return errNot("the condition BreakTheGlass with the reason " + reason)
	}
}

// Where it is not allowed the wish is shown, and the stack goes on.
func TestBreakGlassNeedsPermission(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	c.Apply(t, inline("stack", "approvePlan: auto\nbreakTheGlass: true", things(w, "x", "a")))
	s := c.Await(t, "stack", glassReason("NotAllowed"))
	if m := meta.FindStatusCondition(s.Status.Conditions, "BreakTheGlass").Message; m != "Breaking the glass is not allowed" {
		t.Errorf("the message is %q", m)
	}
	c.AwaitReady(t, "stack")
	if len(w.Named("a")) != 1 {
		t.Errorf("the world holds %+v, want a", w.Things())
	}
	if ran := c.TryTerrier(t, "break-glass", "stack", "--", "state", "list"); ran.Code != 3 || !strings.Contains(ran.Stderr, "--allow-break-the-glass") {
		t.Errorf("break-glass ended with %d and %q, want it to be denied", ran.Code, ran.Stderr)
	}
	c.Await(t, "stack", glassReason(""))
	a := c.Stack(t, "stack").Annotations
	for _, stamp := range kube.Stamps() { // the API server writes these
		delete(a, stamp)
	}
	if len(a) != 0 {
		t.Errorf("the object bears %v, want nothing that was not granted", a)
	}
}

// A person works on a stack while nothing else does, also behind a module that
// is broken; what they change voids the plan that was made before.
func TestBreakGlass(t *testing.T) {
	t.Parallel()
	p := testkit.Up(t, "--allow-break-the-glass")
	c := p.Cluster(t)
	w := p.World(t)
	c.Apply(t, inline("stack", "approvePlan: auto\ninterval: 1s\nwriteOutputsToSecret: {name: out}", things(w, "x", "a", "b")+"\noutput \"it\" { value = world_thing.a.id }"))
	c.AwaitReady(t, "stack")

	if out := c.Terrier(t, "btg", "stack", "--", "state", "list"); out != "world_thing.a\nworld_thing.b\n" {
		t.Errorf("state list printed %q, want two addresses and nothing else", out)
	}
	s := c.AwaitReason(t, "stack", "Progressing")
	if message(s) != "Breaking the glass ..." || s.Status.Terrier.Phase != "BreakGlassSession" {
		t.Errorf("the message is %q in the phase %s", message(s), s.Status.Terrier.Phase)
	}
	if got := memoryOf(t, s).LastCommand; got == nil || got.By == "" || got.Moved || got.String() != "state list" {
		t.Errorf("recorded %+v, want the command and who asked for it", got)
	}

	// A source that is broken, a world that drifts: nothing reacts, and the state can be reached.
	w.Edit(func(x *testkit.WorldThing) bool { return x.Name != "b" })
	calls := checks(w)
	c.Apply(t, inline("stack", "approvePlan: auto\ninterval: 1s\nwriteOutputsToSecret: {name: out}", w.HCL()+"\nmodule \"none\" { source = \"./none\" }"))
	if ran := c.TryTerrier(t, "break-glass", "stack", "--", "apply"); ran.Code != 2 || !strings.Contains(ran.Stderr, "state list") {
		t.Errorf("apply ended with %d and %q, want to be refused and told what can be run", ran.Code, ran.Stderr)
	}
	if ran := c.TryTerrier(t, "break-glass", "stack", "--", "state", "rm", "world_thing.b"); ran.Code != 2 || !strings.Contains(ran.Stderr, "--yes") {
		t.Errorf("a command that changes the state, without a terminal and without --yes: %d %s", ran.Code, ran.Stderr)
	}
	c.Terrier(t, "break-glass", "stack", "--yes", "--", "state", "rm", "world_thing.b")
	s = c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
		if h := memoryOf(t, s).LastCommand; h == nil || !h.Moved {
			return errNot("a state that was changed by hand")
		}
		return nil
	})
	if m := memoryOf(t, s); m.Pending != nil || !strings.Contains(m.PlanNote, "state rm world_thing.b") {
		t.Errorf("the note is %q and %v waits, want what was done and no plan", m.PlanNote, m.Pending)
	}
	if state := string(stateOf(t, c, "stack")); strings.Contains(state, `"b"`) || !strings.Contains(state, `"a"`) {
		t.Errorf("the stored state is %s, want it without b", state)
	}
	if ran := c.TryTerrier(t, "break-glass", "stack", "--", "validate"); ran.Code == 0 || !strings.Contains(ran.Stderr, "could not be prepared") {
		t.Errorf("validate ended with %d and %q, want to hear of the module", ran.Code, ran.Stderr)
	}
	unreadable := inline("stack", "approvePlan: auto\ninterval: 1s\nwriteOutputsToSecret: {name: out}", "resource \"world_thing\" {")
	c.Apply(t, unreadable)
	if ran := c.TryTerrier(t, "break-glass", "stack", "--", "state", "list"); ran.Code != 0 || ran.Stdout != "world_thing.a\n" || !strings.Contains(ran.Stderr, "applied last") {
		t.Errorf("state list ended with %d, %q and %q, want to read the state and to hear that the module is that of the last apply", ran.Code, ran.Stdout, ran.Stderr)
	}
	if now := checks(w); now != calls {
		t.Errorf("the world was looked at %d times while the glass was broken", now-calls)
	}

	c.Apply(t, inline("stack", "approvePlan: auto\ninterval: 1h\nwriteOutputsToSecret: {name: out}", things(w, "x", "a", "b")+"\noutput \"it\" { value = world_thing.a.id }"))
	c.Terrier(t, "break-glass", "stack", "--end")
	c.AwaitReady(t, "stack")
	if len(w.Named("a")) != 1 || len(w.Named("b")) != 1 {
		t.Errorf("the world holds %+v, want b to be made anew, once", w.Things())
	}
}

// A session ends by itself.
func TestBreakGlassTimesOut(t *testing.T) {
	t.Parallel()
	p := testkit.Up(t, "--allow-break-the-glass", "--break-the-glass-timeout", "15s")
	c := p.Cluster(t)
	w := p.World(t)
	c.Apply(t, inline("stack", "approvePlan: auto\nbreakTheGlass: true", things(w, "x", "a")))
	c.Await(t, "stack", glassReason("SessionOpen"))
	if len(w.Things()) != 0 {
		t.Errorf("the world holds %+v while the glass is broken", w.Things())
	}
	c.AwaitReady(t, "stack")
	c.Await(t, "stack", glassReason("SessionOver"))
	if len(w.Named("a")) != 1 {
		t.Errorf("the world holds %+v, want a", w.Things())
	}
}
