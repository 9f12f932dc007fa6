package cluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// errand is the work of some stacks, each of which applies and waits at a gate.
type errand struct {
	*fleet
	witness *testkit.Witness
	names   []string
	worlds  []*testkit.World
	gates   []gate
	pods    map[string]corev1.Pod
}

// begin lets stacks apply until they are at their gates.
func (f *fleet) begin(t *testing.T, names ...string) *errand {
	t.Helper()
	e := &errand{fleet: f, witness: f.stacks.Witness(t, f.Platform), names: names}
	for _, name := range names {
		w := f.World(t)
		g := newGate(t, w)
		e.worlds, e.gates = append(e.worlds, w), append(e.gates, g)
		f.stacks.Apply(t, f.stackOf(t, name, approved, gated(w, g)))
	}
	for _, w := range e.worlds {
		w.Await(t.Context(), func(c testkit.WorldCall) bool { return c.Call == "create" && c.Name == "a" && c.Phase == "done" })
	}
	if e.pods = f.release.pods(t, "terrier.dev/run-kind=apply"); len(e.pods) != len(names) {
		t.Fatalf("the pods %v apply, want %d", e.pods, len(names))
	}
	return e
}

// untouched compares the pods that apply with those of before.
func (e *errand) untouched(t *testing.T) {
	t.Helper()
	if now := e.release.pods(t, "terrier.dev/run-kind=apply"); !sameRunning(e.pods, now) {
		t.Errorf("the pods %v apply, want %v as before", now, e.pods)
	}
}

// pass lets all applies but the last one pass their gates.
func (e *errand) pass(t *testing.T) {
	t.Helper()
	e.untouched(t)
	for _, g := range e.gates[:len(e.gates)-1] {
		g.open(t)
	}
}

// end lets the last apply pass, and destroys everything again: each resource was created once,
// by the pod that was there at first, and none is left.
func (e *errand) end(t *testing.T) {
	t.Helper()
	last := e.names[len(e.names)-1]
	for name, p := range e.release.pods(t, "terrier.dev/run-kind=apply") {
		if p.Annotations["terrier.dev/stack"] == e.Namespace+"/"+last && e.pods[name].UID != p.UID {
			t.Errorf("the pod %s applies %s, and it is none of those of before", name, last)
		}
	}
	e.gates[len(e.gates)-1].open(t)
	for i, name := range e.names {
		e.stacks.AwaitReady(t, name)
		made(t, e.worlds[i], "a", "b")
		if leaked := e.worlds[i].Leaked(e.stacks.State(t, name)); len(leaked) > 0 {
			t.Errorf("of the stack %s %+v is in no state", name, leaked)
		}
	}
	e.witness.Collect()
	for i, name := range e.names {
		e.stacks.Delete(t, name)
		e.stacks.AwaitGone(t, name)
		made(t, e.worlds[i])
	}
	e.awaitNoPods(t)
	e.witness.Collect() // what was destroyed
	e.witness.CatchUp()
	e.witness.Judge(true)
}
