package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// With one slot, a stack that waits for it says so, once; leaves the queue if it is
// deleted or suspended meanwhile; and has its turn although the controller died with
// an active run. At no time are there two runs.
func TestWhoWaitsForARunIsNotLost(t *testing.T) {
	t.Parallel()
	p := testkit.Up(t, "--max-runs=1")
	c, w := p.Cluster(t), p.World(t)
	g := newGate(t, p)
	c.Apply(t, inline("busy", slowly, g.held(w, "busy")))
	g.reached(t)

	versions := map[string]string{}
	for _, name := range []string{"waits", "deleted", "suspended"} {
		c.Apply(t, inline(name, "approvePlan: auto\ninterval: 1h", things(w, "x", name)))
		s := c.Await(t, name, waitsFor("Waiting for its turn: 1 run may run at once"))
		versions[name] = s.ResourceVersion
	}
	c.Delete(t, "deleted")
	c.AwaitGone(t, "deleted")
	c.Patch(t, "suspended", `{"spec":{"suspend":true}}`)
	c.Await(t, "suspended", func(s *v1alpha2.Terraform) error {
		if s.Status.Terrier.Phase != "Suspended" {
			return fmt.Errorf("it is %s", s.Status.Terrier.Phase)
		}
		return nil
	})
	if got := c.Stack(t, "waits").ResourceVersion; got != versions["waits"] {
		t.Errorf("the stack that waits went from version %s to %s while it waited", versions["waits"], got)
	}
	kill(t, p)
	start(t, p)
	// The controller that found the run counts it.
	c.Apply(t, inline("later", "approvePlan: auto\ninterval: 1h", things(w, "x", "later")))
	c.Await(t, "later", waitsFor("Waiting for its turn: 1 run may run at once"))
	if runs := p.Supervisors(); len(runs) != 1 || len(w.Calls()) != 0 {
		t.Errorf("%d runs are at work, and the world saw %+v; want the one run, which is held up", len(runs), w.Calls())
	}
	g.open(t)
	testkit.Eventually(t, testkit.Patience, "the one that waited is ready", func(context.Context) error {
		// A run that has ended frees its slot a moment before its process is gone.
		if runs := p.Supervisors(); len(runs) > 1 && !slices.ContainsFunc(w.Calls(), func(c testkit.WorldCall) bool { return c.Call == "create" && c.Name == "busy" && c.Phase == "done" }) {
			t.Fatalf("%d runs are at work, with one allowed", len(runs))
		}
		return testkit.IsReady(c.Stack(t, "waits"))
	})
	c.AwaitReady(t, "busy")
	c.AwaitReady(t, "later")
	if began(w, "create", "suspended")+began(w, "create", "deleted") != 0 {
		t.Error("something was made for a stack that gave up its place")
	}
	c.Patch(t, "suspended", `{"spec":{"suspend":false}}`)
	c.AwaitReady(t, "suspended")
}

// waitsFor is met by a stack whose readiness has a message that contains text.
func waitsFor(text string) func(*v1alpha2.Terraform) error {
	return func(s *v1alpha2.Terraform) error {
		for _, cond := range s.Status.Conditions {
			if cond.Type == "Ready" && strings.Contains(cond.Message, text) {
				return nil
			}
		}
		return fmt.Errorf("it does not say %q", text)
	}
}
