package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// awaitExplained waits until terrier explain says something of a stack.
func awaitExplained(t *testing.T, c *testkit.Cluster, stack, want string) string {
	t.Helper()
	var out string
	testkit.Eventually(t, testkit.Patience, "terrier explain "+stack+" says "+want, func(context.Context) error {
		if out = c.Terrier(t, "explain", stack); !strings.Contains(out, want) {
			return errNot("said yet:\n" + out)
		}
		return nil
	})
	return out
}

// awaitNoRun waits until no run of a stack is under way, nor waits to be recorded.
func awaitNoRun(t *testing.T, p *testkit.Platform, s *v1alpha2.Terraform) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, "no run of "+s.Name+" is under way", func(context.Context) error {
		runs, err := filepath.Glob(filepath.Join(p.Dir, "runner", "runs", string(s.UID), "*"))
		if err == nil && len(runs) > 0 {
			err = fmt.Errorf("there are %v", runs)
		}
		return err
	})
}

// ranOnce has something done and waits until a thing was read since.
func ranOnce(t *testing.T, w *testkit.World, thing string, do func()) {
	t.Helper()
	before := checks(w, thing)
	do()
	testkit.Eventually(t, testkit.Patience, thing+" is read", func(context.Context) error {
		if checks(w, thing) == before {
			return fmt.Errorf("it was read %d times before, and not since", before)
		}
		return nil
	})
}

// Two stacks with an interval of a second share a budget of one check an hour. Both wait for it and
// say so, keep their status, and write nothing to the API server. What a user requests does not
// wait. A larger budget counts at once.
func TestDriftChecksWaitForTheirBudget(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	for stack, thing := range map[string]string{"one": "a", "two": "b"} {
		c.Apply(t, inline(stack, "approvePlan: auto\ninterval: 1s", things(w, "right", thing)))
	}
	for _, stack := range []string{"one", "two"} {
		c.AwaitReason(t, stack, "NoDrift")
	}
	name := policed(t, c, "drift: {budgets: [{per: Tenant, checksPerHour: 1}]}")
	waits := "waits for a budget of drift checks: that of the tenant " + c.Namespace + ", which spec.drift.budgets[0] of " + name + " has"
	awaitExplained(t, c, "one", waits)
	awaitExplained(t, c, "two", waits)
	if out := c.Terrier(t, "drift", "show", "one"); !strings.Contains(out, "Next drift check: ") || !strings.Contains(strings.Join(strings.Fields(out), " "), waits) {
		t.Errorf("terrier drift show says\n%s", out)
	}
	held := c.Stack(t, "two")
	if err := testkit.IsReady(held); err != nil {
		t.Errorf("a stack whose check waits is not ready: %v", err)
	}
	ranOnce(t, w, "a", func() { c.Terrier(t, "replan", "one") })
	if after := c.Stack(t, "two"); after.ResourceVersion != held.ResourceVersion {
		t.Errorf("the object went from version %s to %s while its check waits", held.ResourceVersion, after.ResourceVersion)
	}
	ranOnce(t, w, "b", func() { policed(t, c, "drift: {budgets: [{per: Tenant, checksPerHour: 36000}]}") })
}

// Without drift the pauses of a stack grow with the time since it was applied, and it says why. The
// check comes no sooner than its policy has it, although the object says every second; a policy with
// a shortest pause alone makes no check rarer than the object.
func TestDriftChecksFollowFromRisk(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	c.Apply(t, inline("paced", "approvePlan: auto\ninterval: 1s", things(w, "right", "a")))
	c.AwaitReason(t, "paced", "NoDrift")
	name := policed(t, c, "drift: {interval: {min: 2h, max: 24h}}")
	awaitExplained(t, c, "paced", "spec.drift.interval of "+name+" has pauses from 2h to 24h, and the pause is an eighth of the time since it was applied at ")
	awaitNoRun(t, platform(t), c.Stack(t, "paced")) // one that began before
	before := checks(w, "a")
	w.Edit(func(thing *testkit.WorldThing) bool { wrong := "wrong"; thing.Value = &wrong; return true })
	if out := c.Terrier(t, "get", "paced"); !strings.Contains(out, "paced") {
		t.Errorf("terrier get says\n%s", out)
	}
	if n := checks(w, "a"); n != before {
		t.Errorf("the stack was checked %d times within its pause of two hours, want never", n-before)
	}
	policed(t, c, "drift: {interval: {min: 1s}}")
	testkit.Eventually(t, testkit.Patience, "the drift is found and fixed", func(context.Context) error {
		if all := w.Named("a"); len(all) != 1 || *all[0].Value != "right" {
			return errNot("fixed yet")
		}
		return nil
	})
}
