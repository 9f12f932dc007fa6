package faults

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// scenario is something that people do with Terrier, told so that it comes to
// its end however often Terrier has to be started again.
type scenario struct {
	name string
	play func(*testing.T, *round)
}

var scenarios = []scenario{
	{"auto", playAuto},
	{"manual", playManual},
	{"delete", playDelete},
	{"chain", playChain},
}

const calmly = "interval: 1h\nretryInterval: 1s\nparallelism: 1\n"

// playAuto: a stack is asked for, and is there with its outputs.
func playAuto(t *testing.T, r *round) {
	spec := calmly + "approvePlan: auto\nwriteOutputsToSecret: {name: out}"
	r.ask(t, "stack", spec, r.module("x", "a", "b"))
	r.ready(t, "stack", spec, r.module("x", "a", "b"))
	r.holds(t, "x", "a", "b")
	if got, want := r.Secret(t, "out")["last"], r.world.Named("b")[0].ID; got != want {
		t.Errorf("the outputs say %q, want %q", got, want)
	}
}

// playManual: a person approves, changes, and has a foreign change undone.
func playManual(t *testing.T, r *round) {
	r.ask(t, "stack", calmly, r.module("x", "a", "b"))
	r.approve(t, "stack", "x")
	r.holds(t, "x", "a", "b")

	r.ask(t, "stack", calmly, r.module("y", "a", "b"))
	r.approve(t, "stack", "y")
	r.holds(t, "y", "a", "b")

	defaced := "defaced"
	r.world.Edit(func(thing *testkit.WorldThing) bool {
		if thing.Name == "a" {
			thing.Value = &defaced
		}
		return true
	})
	r.Patch(t, "stack", `{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"now"}}}`)
	r.approve(t, "stack", "y")
	r.holds(t, "y", "a", "b")
}

// playDelete: the resources are destroyed, and then the object is deleted.
func playDelete(t *testing.T, r *round) {
	spec := calmly + "approvePlan: auto\ndestroyResourcesOnDeletion: true"
	r.ask(t, "stack", spec, r.module("x", "a", "b"))
	r.ready(t, "stack", spec, r.module("x", "a", "b"))
	r.Delete(t, "stack")
	r.AwaitGone(t, "stack")
	r.holds(t, "x")
}

// playChain: one stack waits for another, and continues from a foreign state.
func playChain(t *testing.T, r *round) {
	spec := calmly + "approvePlan: auto\nwriteOutputsToSecret: {name: net-out}"
	after := calmly + "approvePlan: auto\ndependsOn: [{name: net}]\nvarsFrom: [{kind: Secret, name: net-out, varsKeys: [last]}]"
	app := strings.Replace(r.module("x", "c"), "value = \"x\"", "value = var.last", 1) + "\nvariable \"last\" { type = string }\n"
	r.ask(t, "app", after, app)
	r.ask(t, "net", spec, r.module("x", "a"))
	r.ready(t, "net", spec, r.module("x", "a"))
	r.ready(t, "app", after, app)
	things := r.world.Things()
	var names []string
	for _, thing := range things {
		names = append(names, thing.Name)
	}
	if slices.Sort(names); !slices.Equal(names, []string{"a", "c"}) {
		t.Fatalf("the world holds %v, want a and c", names)
	}
	if c := r.world.Named("c")[0]; *c.Value != r.world.Named("a")[0].ID {
		t.Errorf("c is %q, want what net put out", *c.Value)
	}
}

// module is a chain of things of one value.
func (r *round) module(value string, names ...string) string {
	hcl := r.world.HCL()
	for i, n := range names {
		after := ""
		if i > 0 {
			after = "  depends_on = [world_thing." + names[i-1] + "]\n"
		}
		hcl += fmt.Sprintf("\nresource \"world_thing\" %q {\n  name  = %[1]q\n  value = %q\n%s}\n", n, value, after)
	}
	if len(names) == 0 {
		return hcl
	}
	return hcl + fmt.Sprintf("\noutput \"last\" { value = world_thing.%s.id }\n", names[len(names)-1])
}

// ask asks for a stack.
func (r *round) ask(t *testing.T, name, spec, hcl string) {
	t.Helper()
	if !slices.Contains(r.stacks, name) {
		r.stacks = append(r.stacks, name)
	}
	r.Apply(t, inline(name, spec, hcl))
}

// ready waits until a stack is ready. If it waits for a person because of what a
// crash may have left, the person does what it asks for.
func (r *round) ready(t *testing.T, name, spec, hcl string) {
	t.Helper()
	s := r.Await(t, name, orStuck(testkit.IsReady))
	if stuck(s) {
		r.repair(t, name, spec, hcl)
	}
}

// approve approves whatever waits until the stack is ready with its things at
// value.
func (r *round) approve(t *testing.T, name, value string) {
	t.Helper()
	for range 4 { // a plan may be made again after a crash, and then is another one
		s := r.Await(t, name, func(s *v1alpha2.Terraform) error {
			if s.Status.Plan.Pending != "" && s.Spec.ApprovePlan != s.Status.Plan.Pending && pendingShown(s) || stuck(s) {
				return nil
			}
			if err := testkit.IsReady(s); err != nil {
				return err
			}
			if !r.all(value) {
				return errors.New("it is ready, and the world is not as it was asked for")
			}
			return nil
		})
		switch {
		case stuck(s):
			r.repair(t, name, calmly, r.module(value, "a", "b"))
		case s.Status.Plan.Pending != "":
			r.Patch(t, name, `{"spec":{"approvePlan":"`+s.Status.Plan.Pending+`"}}`)
		}
		s = r.Await(t, name, orStuck(func(s *v1alpha2.Terraform) error {
			if testkit.HasReason("TerraformPlannedWithChanges")(s) == nil && s.Status.Plan.Pending != s.Spec.ApprovePlan {
				return nil // another plan, to be reviewed again
			}
			return testkit.IsReady(s)
		}))
		if !stuck(s) && testkit.IsReady(s) == nil && r.all(value) {
			return
		}
	}
	t.Fatal("four approvals did not bring it about")
}

// pendingShown reports whether a plan waits for a person.
func pendingShown(s *v1alpha2.Terraform) bool {
	return testkit.HasReason("TerraformPlannedWithChanges")(s) == nil || testkit.HasReason("DriftDetected")(s) == nil
}

// all reports whether every thing has a value.
func (r *round) all(value string) bool {
	things := r.world.Things()
	for _, thing := range things {
		if thing.Value == nil || *thing.Value != value {
			return false
		}
	}
	return len(things) > 0
}

// holds expects the world to hold each of these things once, with this value.
func (r *round) holds(t *testing.T, value string, names ...string) {
	t.Helper()
	var got []string
	for _, thing := range r.world.Things() {
		got = append(got, thing.Name+"="+*thing.Value)
	}
	var want []string
	for _, n := range names {
		want = append(want, n+"="+value)
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Fatalf("the world holds %v, want %v", got, want)
	}
}

// repair repairs a stack with untracked resources as a person does: looks at the
// world, imports what exists, and approves.
func (r *round) repair(t *testing.T, name, spec, hcl string) {
	t.Helper()
	r.verify(t)
	t.Logf("%s waits for a person", name)
	looked := hcl + "\n# somebody looked\n"
	var states [][]byte // the world is one for all stacks of a round
	for _, s := range r.stacks {
		states = append(states, r.State(t, s))
	}
	for _, thing := range r.world.Leaked(states...) {
		looked += fmt.Sprintf("\nimport {\n  to = world_thing.%s\n  id = %q\n}\n", thing.Name, thing.ID)
	}
	r.Apply(t, inline(name, spec, looked))
	pending := r.AwaitPending(t, name).Status.Plan.Pending
	r.Patch(t, name, `{"spec":{"approvePlan":"`+pending+`"}}`)
	r.AwaitReady(t, name)
	r.Apply(t, inline(name, spec, hcl))
	if strings.Contains(spec, "auto") {
		r.AwaitReady(t, name)
	}
}

// stuck reports whether a stack waits for a person because of what an apply that
// was cut short may have left.
func stuck(s *v1alpha2.Terraform) bool {
	m, err := testkit.StatusOf(s)
	return err == nil && (testkit.HasReason("StateIncomplete")(s) == nil ||
		m.Untracked != nil && testkit.HasReason("TerraformPlannedWithChanges")(s) == nil)
}

func orStuck(until func(*v1alpha2.Terraform) error) func(*v1alpha2.Terraform) error {
	return func(s *v1alpha2.Terraform) error {
		if stuck(s) {
			return nil
		}
		return until(s)
	}
}
