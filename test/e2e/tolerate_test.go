package e2e

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// statusOf is what the controller keeps of a stack in its object.
func statusOf(s *v1alpha2.Terraform) stack.Status {
	var m stack.Status
	if t := s.Status.Terrier; t != nil && t.Memory != nil {
		if err := json.Unmarshal(t.Memory.Raw, &m); err != nil {
			panic(err) // the controller wrote it
		}
	}
	return m
}

// mayDrift waits until a status says that this many attributes drifted and may.
func mayDrift(n int) func(*v1alpha2.Terraform) error {
	return func(s *v1alpha2.Terraform) error {
		if t := statusOf(s).Tolerated; t.Total() != n {
			return errNot("seen yet: " + message(s))
		}
		return testkit.IsReady(s)
	}
}

// Drift in an attribute that a rule lets drift starts no apply of a stack that is automatic, and
// a check that finds it again writes nothing. Drift in another attribute is fixed, and the
// plan resets both. A rule that ends brings its attribute back.
func TestAttributesThatMayDrift(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	c.Apply(t, inline("noise", "approvePlan: auto\ninterval: 1s", things(w, "right", "a")))
	c.AwaitReady(t, "noise")
	name := policed(t, c, "drift: {tolerate: [{types: [world_thing], attributes: [size], reason: autoscaling}]}")
	awaitPolicy(t, c, func(status map[string]any) bool { return status["selected"] == int64(1) })
	w.Edit(func(thing *testkit.WorldThing) bool { thing.Size = 5; return true })

	s := c.Await(t, "noise", mayDrift(1))
	if got := message(s); !strings.Contains(got, "Rules let 1 attribute of 1 resource drift, as size of world_thing.a") || s.Labels["terrier.dev/drifted"] != "" {
		t.Errorf("the stack says %q with labels %v, want what may drift and no drift", got, s.Labels)
	}
	awaitChecks(t, w, 4)
	after := c.Stack(t, "noise")
	if after.ResourceVersion != s.ResourceVersion {
		t.Errorf("the object went from version %s to %s while nothing happened: %+v", s.ResourceVersion, after.ResourceVersion, after.Status)
	}
	if all := w.Named("a"); len(all) != 1 || all[0].Size != 5 {
		t.Errorf("the world holds %+v, want the size that something else gave", all)
	}
	if out := c.Terrier(t, "explain", "noise"); !strings.Contains(out, "may drift: size of world_thing.a, by "+name+": autoscaling") {
		t.Errorf("terrier explain says\n%s", out)
	}
	if out := c.Terrier(t, "get", "-o", "wide"); !strings.Contains(out, "MAY DRIFT") {
		t.Errorf("terrier get says\n%s", out)
	}

	w.Edit(func(thing *testkit.WorldThing) bool { wrong := "wrong"; thing.Value = &wrong; return true })
	testkit.Eventually(t, testkit.Patience, "drift that counts is fixed", func(context.Context) error {
		if all := w.Named("a"); len(all) != 1 || *all[0].Value != "right" || all[0].Size != 1 {
			return errNot("fixed yet")
		}
		return nil
	})
}

// A rule without a reason is refused by name, in a policy and in an annotation. The annotation of
// a stack adds a rule of its own, and its end is told.
func TestRulesOfAStackForDrift(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	c.Apply(t, inline("own", "interval: 1s", things(w, "right", "a")))
	c.Patch(t, "own", `{"metadata":{"annotations":{"terrier.dev/tolerate-drift":"[{attributes: [size]}]"}}}`)
	c.Await(t, "own", func(s *v1alpha2.Terraform) error {
		if got := message(s); !strings.Contains(got, "the annotation terrier.dev/tolerate-drift[0].reason: is missing: say why size may drift") {
			return errNot("refused yet: " + got)
		}
		return nil
	})
	c.Patch(t, "own", `{"metadata":{"annotations":{"terrier.dev/tolerate-drift":"[{attributes: [size], reason: tests, until: 2999-01-01}]"}}}`)
	first := c.AwaitPending(t, "own").Status.Plan.Pending
	c.Patch(t, "own", `{"spec":{"approvePlan":"`+first+`"}}`)
	c.AwaitReady(t, "own")

	w.Edit(func(thing *testkit.WorldThing) bool { thing.Size = 7; return true })
	c.Await(t, "own", mayDrift(1))
	w.Edit(func(thing *testkit.WorldThing) bool { wrong := "wrong"; thing.Value = &wrong; return true })
	s := c.AwaitReason(t, "own", "DriftDetected")
	if got := message(s); !strings.Contains(got, "The plan also resets 1 attribute of 1 resource that may drift, as size of world_thing.a.") {
		t.Errorf("the stack says %q, want what the plan also resets", got)
	}
	if out := c.Terrier(t, "plan", "own"); !strings.Contains(out, "also resets") || !strings.Contains(out, "2999-01-01") {
		t.Errorf("terrier plan says\n%s", out)
	}

	w.Edit(func(thing *testkit.WorldThing) bool { right := "right"; thing.Value = &right; return true })
	c.Await(t, "own", mayDrift(1))
	c.Patch(t, "own", `{"metadata":{"annotations":{"terrier.dev/tolerate-drift":"[{attributes: [size], reason: tests, until: 2020-01-01}]"}}}`)
	s = c.AwaitReason(t, "own", "DriftDetected")
	if got := message(s); !strings.Contains(got, "by which size of world_thing.a could drift ended at 2020-01-01T00:00:00Z") {
		t.Errorf("the stack says %q, want that the rule has ended", got)
	}
}
