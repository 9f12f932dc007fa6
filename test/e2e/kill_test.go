package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// alone gives the test a platform and a namespace that it may break. The test runs in
// parallel with others.
func alone(t *testing.T) (*testkit.Platform, *testkit.Cluster, *testkit.World) {
	t.Helper()
	t.Parallel()
	p := testkit.Up(t)
	c := p.Cluster(t)
	return p, c, p.World(t)
}

// one apply at a time, each call of which the test can wait for.
const slowly = "approvePlan: auto\ninterval: 1h\nretryInterval: 1s\nparallelism: 1\nwriteOutputsToSecret: {name: out}"

// chain is a module of things that are made one after another, all of one value.
func chain(w *testkit.World, value string, names ...string) string {
	hcl := w.HCL()
	for i, n := range names {
		after := ""
		if i > 0 {
			after = "  depends_on = [world_thing." + names[i-1] + "]\n"
		}
		hcl += fmt.Sprintf("\nresource \"world_thing\" %q {\n  name  = %[1]q\n  value = %q\n%s}\n", n, value, after)
	}
	return hcl + fmt.Sprintf("\noutput \"last\" { value = world_thing.%s.id }\n", names[len(names)-1])
}

func kill(t *testing.T, p *testkit.Platform) {
	t.Helper()
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
}

func start(t *testing.T, p *testkit.Platform) {
	t.Helper()
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
}

// noRuns waits until every supervisor of the platform has ended by itself.
func noRuns(t *testing.T, p *testkit.Platform) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, "the runs are over", func(context.Context) error {
		if left := p.Supervisors(); len(left) > 0 {
			return fmt.Errorf("%d supervisors are at work", len(left))
		}
		return nil
	})
}

// F01, F02: a plan that was not collected is found, or made again.
func TestControllerKilledWhilePlanning(t *testing.T) {
	p, c, w := alone(t)
	c.Apply(t, inline("stack", slowly, chain(w, "first", "a")))
	c.AwaitReady(t, "stack")
	w.Fault(testkit.WorldFault{Call: "read", Name: "a", Do: "hold", Times: 1})
	seen := checks(w)
	c.Apply(t, inline("stack", slowly, chain(w, "second", "a")))
	testkit.Eventually(t, testkit.Patience, "a plan is under way", func(context.Context) error {
		if began(w, "read", "a") <= seen {
			return errNot("a read that began")
		}
		return nil
	})
	kill(t, p)
	start(t, p)
	w.Fault()
	c.AwaitReady(t, "stack")
	if all := w.Named("a"); len(all) != 1 || *all[0].Value != "second" || began(w, "update", "a") != 1 {
		t.Errorf("the world holds %+v after %d updates, want one", all, began(w, "update", "a"))
	}
	verify(t, c, w, "stack")
}

// F03: an apply outlives the controller, and the next one finds it.
func TestControllerKilledWhileApplying(t *testing.T) {
	p, c, w := alone(t)
	w.Fault(testkit.WorldFault{Call: "create", Name: "b", Do: "hold"})
	c.Apply(t, inline("stack", slowly, chain(w, "x", "a", "b", "c")))
	w.Await(t.Context(), begun("create", "b"))
	before := p.Supervisors()
	kill(t, p)
	start(t, p)
	if after := p.Supervisors(); len(before) != 1 || len(after) != 1 || after[0].PID != before[0].PID {
		t.Errorf("the supervisors were %v and are %v, want the same one", before, after)
	}
	w.Fault()
	c.AwaitReady(t, "stack")
	made(t, w, "a", "b", "c")
	verify(t, c, w, "stack")
}

// F04, F05: an apply that ended without a controller is not lost.
func TestControllerKilledBetweenApplyAndOutputs(t *testing.T) {
	p, c, w := alone(t)
	w.Fault(testkit.WorldFault{Call: "create", Name: "a", Do: "hold"})
	c.Apply(t, inline("stack", slowly, chain(w, "x", "a", "b")))
	w.Await(t.Context(), begun("create", "a"))
	kill(t, p)
	w.Fault()
	noRuns(t, p)
	made(t, w, "a", "b") // the apply has ended without a controller
	start(t, p)
	c.AwaitReady(t, "stack")
	if got, want := c.Secret(t, "out")["last"], w.Named("b")[0].ID; got != want {
		t.Errorf("the outputs say %q, want %q", got, want)
	}
	made(t, w, "a", "b")
	verify(t, c, w, "stack")
}

// F09, and F08 below: what a killed run built is in the state or listed, and is
// never built again by itself.
func TestSupervisorKilledWhileApplying(t *testing.T) {
	p, c, w := alone(t)
	w.Fault(testkit.WorldFault{Call: "create", Name: "b", Do: "hang", IgnoreStop: true, Times: 1})
	c.Apply(t, inline("stack", slowly, chain(w, "x", "a", "b", "c")))
	w.Await(t.Context(), begun("create", "b"))
	heard(t, c, "world_thing.a: Creation complete")
	if len(p.Supervisors()) == 0 {
		t.Fatal("there is no supervisor to kill")
	}
	p.KillSupervisors(t)
	testkit.Eventually(t, testkit.Patience, "the box is gone with its supervisor", func(context.Context) error {
		for _, e := range p.Engines() {
			return fmt.Errorf("the engine %d is alive", e.PID)
		}
		return nil
	})
	incomplete(t, c, w)
}

func TestEngineKilledWhileApplying(t *testing.T) {
	p, c, w := alone(t)
	w.Fault(testkit.WorldFault{Call: "create", Name: "b", Do: "hang", IgnoreStop: true, Times: 1})
	c.Apply(t, inline("stack", slowly, chain(w, "x", "a", "b", "c")))
	w.Await(t.Context(), begun("create", "b"))
	heard(t, c, "world_thing.a: Creation complete")
	p.KillEngines(t)
	incomplete(t, c, w)
}

// heard waits until the supervisor has read what the engine printed: what is in
// the pipe when it is killed is lost, see P2 in docs/reliability.md.
func heard(t *testing.T, c *testkit.Cluster, text string) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, "the log says "+text, func(context.Context) error {
		if log := c.TryTerrier(t, "logs", "stack").Stdout; !strings.Contains(log, text) {
			return errNot("in\n" + log)
		}
		return nil
	})
}

// incomplete expects a stack whose apply died while b was made, after a was, to
// say so, to do nothing by itself, and to be repaired by importing a.
func incomplete(t *testing.T, c *testkit.Cluster, w *testkit.World) {
	t.Helper()
	s := c.AwaitReason(t, "stack", "StateIncomplete")
	verify(t, c, w, "stack")
	a := w.Named("a")
	if len(a) != 1 || began(w, "create", "b") != 1 {
		t.Fatalf("the world holds %+v after %d attempts to make b", w.Things(), began(w, "create", "b"))
	}
	if len(w.Leaked(stateOf(t, c, "stack"))) > 0 && !strings.Contains(message(s), a[0].ID) {
		t.Errorf("the message is %q, want it to name %s", message(s), a[0].ID)
	}
	if !strings.Contains(message(s), "world_thing.b may exist") {
		t.Errorf("the message is %q, want it to say that b may exist", message(s))
	}
	// Only the world knows of b, so a person has to look there.
	r := c.TryTerrier(t, "repair", "stack")
	if r.Code == 0 || !strings.Contains(r.Stderr, "world_thing.b") {
		t.Errorf("terrier repair ended with %d and said %s%s; want it to ask about b", r.Code, r.Stdout, r.Stderr)
	}
	// No answer is no.
	r = c.TryTerrier(t, "repair", "stack", "--absent", "world_thing.b")
	out := r.Stdout
	if len(w.Leaked(stateOf(t, c, "stack"))) > 0 {
		pending := c.AwaitPending(t, "stack").Status.Plan.Pending // auto or not: a person must decide
		if !strings.Contains(out, "world_thing.a") || !strings.Contains(out, "Nothing was changed") || r.Code != 2 || began(w, "create", "b") != 1 {
			t.Errorf("terrier repair said\n%s\nwant the import of a shown, and nothing done", out)
		}
		c.Terrier(t, "repair", "stack", "--approve", pending)
	}
	c.AwaitReady(t, "stack")
	made(t, w, "a", "b", "c")
	verify(t, c, w, "stack")
}

// F07: the end of the controller is not the end of an apply.
func TestTermLeavesApplyToItsSupervisor(t *testing.T) {
	p, c, w := alone(t)
	w.Fault(testkit.WorldFault{Call: "create", Name: "a", Do: "hold"})
	c.Apply(t, inline("stack", slowly, chain(w, "x", "a", "b")))
	w.Await(t.Context(), begun("create", "a"))
	if _, err := p.Stop(); err != nil {
		t.Errorf("terrier up ended with %v, want in peace\n%s", err, p.Log())
	}
	w.Fault()
	noRuns(t, p)
	made(t, w, "a", "b")
	start(t, p)
	c.AwaitReady(t, "stack")
	verify(t, c, w, "stack")
}

// F53: two of them on one directory would be two writers.
func TestSecondInstanceIsRefused(t *testing.T) {
	p, c, _ := alone(t)
	r := c.TryTerrier(t, "up", "--data-dir", p.Dir)
	if r.Code == 0 || !strings.Contains(r.Stdout+r.Stderr, p.Dir) {
		t.Errorf("a second terrier up ended with %d and said %s%s; want it to refuse and to name %s", r.Code, r.Stdout, r.Stderr, p.Dir)
	}
	c.Apply(t, inline("stack", slowly, "resource \"terraform_data\" \"it\" {}\noutput \"last\" { value = 1 }"))
	c.AwaitReady(t, "stack") // the first one is none the worse
}

// F52, P5: whenever everything is killed, and however often, the next start
// finds the truth; what it cannot know it asks.
func TestEverythingKilledAgainAndAgain(t *testing.T) {
	p, c, w := alone(t)
	stacks := []*torn{{name: "one", w: w}, {name: "two", w: p.World(t)}, {name: "three", w: p.World(t)}}
	for _, s := range stacks {
		s.w.Fault(testkit.WorldFault{Do: "delay", Delay: "100ms"})
	}
	for round := range 10 {
		for _, s := range stacks {
			s.round = round
			s.ask(t, c)
		}
		before := len(w.Calls())
		testkit.Eventually(t, testkit.Patience, "something happens", func(context.Context) error {
			if s := c.Stack(t, "one"); len(w.Calls()) <= before+2*round && testkit.IsReady(s) != nil && !stuck(t, s) {
				return errNot("another call")
			}
			return nil
		})
		kill(t, p)
		p.KillSupervisors(t)
		start(t, p)
	}
	for _, s := range stacks {
		s.w.Fault()
		s.settle(t, c)
		if stuck(t, c.Stack(t, s.name)) {
			verify(t, c, s.w, s.name)
			s.ask(t, c)
			s.settle(t, c)
		}
		if err := testkit.IsReady(c.Stack(t, s.name)); err != nil {
			t.Errorf("%s: %v: %s", s.name, err, message(c.Stack(t, s.name)))
		}
		verify(t, c, s.w, s.name)
		made(t, s.w, s.names()...)
	}
}

// torn is a stack that is killed in every round, and a person who repairs it.
type torn struct {
	name  string
	w     *testkit.World
	round int
}

// names are other ones in every round, so that each makes and removes things.
func (s *torn) names() []string {
	return []string{fmt.Sprint("a", s.round), fmt.Sprint("b", s.round), "c"}
}

// ask asks for what this round is about. If the stack waits for a person, the
// person looks at the world, brings in what the state does not know, and
// approves; or says that there is nothing.
func (s *torn) ask(t *testing.T, c *testkit.Cluster) {
	t.Helper()
	spec := strings.Replace(slowly, "out", "out-"+s.name, 1)
	names, hcl := s.names(), ""
	if s.round > 0 && stuck(t, c.Stack(t, s.name)) {
		t.Logf("round %d: %s waits for a person", s.round, s.name)
		leaked := s.w.Leaked(stateOf(t, c, s.name))
		for _, thing := range leaked {
			hcl += fmt.Sprintf("\nimport {\n  to = world_thing.%s\n  id = %q\n}\n", thing.Name, thing.ID)
			if !slices.Contains(names, thing.Name) {
				names = append(names, thing.Name)
			}
		}
		if len(leaked) == 0 {
			gap := memoryOf(t, c.Stack(t, s.name)).Untracked
			c.Patch(t, s.name, `{"metadata":{"annotations":{"terrier.dev/ignore-untracked":"`+gap.Run+`"}}}`)
			c.AwaitReady(t, s.name)
		} else {
			c.Apply(t, inline(s.name, spec, chain(s.w, fmt.Sprint("round ", s.round), names...)+hcl))
			pending := c.AwaitPending(t, s.name).Status.Plan.Pending
			c.Patch(t, s.name, `{"spec":{"approvePlan":"`+pending+`"}}`)
			s.settle(t, c)
		}
	}
	c.Apply(t, inline(s.name, spec, chain(s.w, fmt.Sprint("round ", s.round), s.names()...)))
}

// settle waits until the stack is ready or waits for a person.
func (s *torn) settle(t *testing.T, c *testkit.Cluster) {
	t.Helper()
	c.Await(t, s.name, func(o *v1alpha2.Terraform) error {
		if stuck(t, o) {
			return nil
		}
		return testkit.IsReady(o)
	})
}

// stuck reports whether a stack waits for a person because of what an apply
// that was killed may have left.
func stuck(t *testing.T, s *v1alpha2.Terraform) bool {
	t.Helper()
	return testkit.HasReason("StateIncomplete")(s) == nil ||
		memoryOf(t, s).Untracked != nil && testkit.HasReason("TerraformPlannedWithChanges")(s) == nil
}

// began counts the calls of a kind that began.
func began(w *testkit.World, call, name string) int {
	n := 0
	for _, c := range w.Calls() {
		if begun(call, name)(c) {
			n++
		}
	}
	return n
}

// made expects each of these things to exist exactly once, and no others.
func made(t *testing.T, w *testkit.World, names ...string) {
	t.Helper()
	var got []string
	for _, thing := range w.Things() {
		got = append(got, thing.Name)
	}
	slices.Sort(got)
	if !slices.Equal(got, slices.Sorted(slices.Values(names))) {
		t.Errorf("the world holds %v, want %v", got, names)
	}
}

// An apply that a user cancels is interrupted once: what it created is in the state, the
// rest is not begun, and Terrier does not repeat it by itself.
func TestCancelledApply(t *testing.T) {
	c := cluster(t)
	p := platform(t)
	w := p.World(t)
	w.Fault(testkit.WorldFault{Call: "create", Name: "b", Do: "hang", Times: 1})
	c.Apply(t, inline("stack", "approvePlan: auto\ninterval: 1h\nretryInterval: 1s", things(w, "x", "a", "b")))
	w.Await(t.Context(), begun("create", "b"))
	c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
		if s.Status.Terrier == nil || s.Status.Terrier.Run == nil || s.Status.Terrier.Run.Kind != "apply" {
			return errNot("the run in the status")
		}
		return nil
	})
	if said := c.TryTerrier(t, "cancel", "stack"); said.Code == 0 {
		t.Errorf("cancel without an answer exits with 0 and says %q%q", said.Stdout, said.Stderr)
	}
	c.Terrier(t, "cancel", "stack", "-y")
	s := c.AwaitReason(t, "stack", "RunCancelled")
	if !strings.Contains(message(s), "terrier replan") || began(w, "create", "b") != 1 {
		t.Errorf("the message is %q, and b was begun %d times", message(s), began(w, "create", "b"))
	}
	if said := c.TryTerrier(t, "cancel", "stack", "-y"); said.Code != 5 || !strings.Contains(said.Stderr, "no run") {
		t.Errorf("cancel without a run exits with %d and says %q", said.Code, said.Stderr)
	}
	var what []audit.What
	for _, e := range auditLog(t, p, c.Namespace) {
		what = append(what, e.What)
	}
	if !slices.Contains(what, audit.CancelAsked) || !slices.Contains(what, audit.ApplyFailed) {
		t.Errorf("the audit log has %v, want who cancelled, and what became of the apply", what)
	}
	c.Terrier(t, "replan", "stack")
	c.AwaitReady(t, "stack")
	made(t, w, "a", "b")
	verify(t, c, w, "stack")
}

// thingID is the id of the one thing of a name.
func thingID(t *testing.T, w *testkit.World, name string) string {
	t.Helper()
	found := w.Named(name)
	if len(found) != 1 {
		t.Fatalf("the world holds %+v, want one %s", found, name)
	}
	return found[0].ID
}
