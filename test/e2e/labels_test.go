package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// A search for stacks by their status finds those, and no others. Users ask for
// pending plans first.
func TestStacksAreFoundByTheirStatus(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	c.Apply(t, inline("kept", "interval: 1s", things(w, "right", "a")))
	c.Apply(t, inline("other", "approvePlan: auto\ninterval: 1h", `output "a" { value = 1 }`))
	c.Apply(t, inline("broken", "approvePlan: auto\ninterval: 1h", `output "a" { value = nothing.there }`))
	pending := c.AwaitPending(t, "kept").Status.Plan.Pending
	c.AwaitReady(t, "other")
	found(t, c, "terrier.dev/pending-plan=true", "kept")
	found(t, c, "terrier.dev/failing=true", "broken")
	found(t, c, "terrier.dev/drifted=true")

	t.Run("whatever somebody does to the labels", func(t *testing.T) {
		c.Kubectl(t, "label", "terraform", "kept", "terrier.dev/pending-plan-")
		c.Kubectl(t, "label", "terraform", "other", "terrier.dev/drifted=true", "team=net")
		found(t, c, "terrier.dev/drifted=true")
		found(t, c, "team=net", "other")
		if got := c.Stack(t, "kept").Status.Plan.Pending; got != pending {
			t.Errorf("a label made another plan: %s, then %s", pending, got)
		}
	})
	t.Run("as long as it is so", func(t *testing.T) {
		c.Patch(t, "kept", `{"spec":{"approvePlan":"`+pending+`"}}`)
		c.AwaitReason(t, "kept", "NoDrift")
		found(t, c, "terrier.dev/pending-plan=true")
		w.Edit(func(thing *testkit.WorldThing) bool {
			wrong := "wrong"
			thing.Value = &wrong
			return true
		})
		repair := c.AwaitReason(t, "kept", "DriftDetected").Status.Plan.Pending
		found(t, c, "terrier.dev/drifted=true", "kept")
		found(t, c, "terrier.dev/pending-plan=true,terrier.dev/drifted=true", "kept")
		c.Patch(t, "kept", `{"spec":{"approvePlan":"`+repair+`"}}`)
		c.AwaitReason(t, "kept", "NoDrift")
		found(t, c, "terrier.dev/drifted=true")
	})
	t.Run("and otherwise without a write", func(t *testing.T) {
		version := c.Stack(t, "kept").ResourceVersion
		awaitChecks(t, w, 4)
		if s := c.Stack(t, "kept"); s.ResourceVersion != version {
			t.Errorf("the object went from version %s to %s while nothing happened; its labels are %v", version, s.ResourceVersion, s.Labels)
		}
	})
}

// found waits until kubectl finds exactly these stacks.
func found(t *testing.T, c *testkit.Cluster, selector string, want ...string) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, fmt.Sprintf("-l %s finds %q", selector, want), func(context.Context) error {
		got := strings.Fields(c.Kubectl(t, "get", "tf", "-l", selector, "-o", "jsonpath={.items[*].metadata.name}"))
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("it finds %q", got)
		}
		return nil
	})
}
