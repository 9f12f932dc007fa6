package e2e

import (
	"testing"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// Tools that write objects back without their status, and people, delete the status
// of a stack. Untracked resources are not created a second time for it.
func TestUntrackedOutlivesItsStatus(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	w.Fault(testkit.WorldFault{Call: "create", Name: "b", Do: "crash-after", Times: 1})
	c.Apply(t, inline("stack", kept+"\nretryInterval: 1s", chain(w, "x", "a", "b", "c")))
	c.AwaitReason(t, "stack", "StateIncomplete")
	cut := memoryOf(t, c.Stack(t, "stack")).Untracked

	meddle(t, c, `{"status":null}`)
	s := c.AwaitReason(t, "stack", "StateIncomplete") // without a request
	if gap := memoryOf(t, s).Untracked; gap == nil || gap.Run != cut.Run {
		t.Errorf("the gap is %+v, want that of run %s", gap, cut.Run)
	}
	c.Terrier(t, "replan", "stack")
	c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
		if s.Status.Plan.Pending == "" {
			return errNot("a plan that waits")
		}
		return nil
	})
	if n := began(w, "create", "b"); n != 1 {
		t.Fatalf("b was made %d times, and nobody approved that", n)
	}
	c.Terrier(t, "repair", "stack", "--id", "world_thing.b="+w.Named("b")[0].ID, "--yes")
	c.AwaitReady(t, "stack")
	made(t, w, "a", "b", "c")
	verify(t, c, w, "stack")
}

// Where the engine keeps the state, a provider that crashed while it created a
// resource leaves it untracked, too; and a stack that lost its status still destroys
// its resources.
func TestAStateElsewhereOutlivesItsStatus(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	w.Fault(testkit.WorldFault{Call: "create", Name: "b", Do: "crash-after", Times: 1})
	custom := "\nretryInterval: 1s\nbackendConfig:\n  customConfiguration: |\n    backend \"local\" {\n      path = \"" + platform(t).Shared(t) + "/state\"\n    }"
	c.Apply(t, inline("stack", kept+custom, chain(w, "x", "a", "b", "c")))
	s := c.AwaitReason(t, "stack", "StateIncomplete")
	if gap := memoryOf(t, s).Untracked; len(gap.Objects) != 1 || gap.Objects[0].Address != "world_thing.b" {
		t.Errorf("the gap is %+v, want b alone: the state holds a", gap)
	}
	c.Terrier(t, "repair", "stack", "--id", "world_thing.b="+w.Named("b")[0].ID, "--yes")
	c.AwaitReady(t, "stack")
	made(t, w, "a", "b", "c")

	c.Terrier(t, "suspend", "stack") // so that no plan finds out what there is
	meddle(t, c, `{"status":null}`)
	c.Delete(t, "stack")
	c.AwaitGone(t, "stack")
	if things := w.Things(); len(things) > 0 {
		t.Errorf("the stack is gone, and the world still holds %+v", things)
	}
}
