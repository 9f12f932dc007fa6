package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/sandbox"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// A real provider, launched by the engine out of the mirror, in the sandbox.
func TestRealProviderEndToEnd(t *testing.T) {
	c := cluster(t)
	c.Apply(t, inline("pet", "approvePlan: auto\ninterval: 1h\nwriteOutputsToSecret: {name: pet-outputs}", `
resource "random_pet" "it" { length = 3 }
output "name" { value = random_pet.it.id }
`))
	c.AwaitReady(t, "pet")
	if name := c.Secret(t, "pet-outputs")["name"]; strings.Count(name, "-") != 2 {
		t.Errorf("the pet is called %q, want three words", name)
	}
}

// file is a stack that keeps one file as it should be.
func file(name, spec, path, content string) string {
	return inline(name, spec, fmt.Sprintf("resource \"local_file\" \"it\" {\n  filename = %q\n  content  = %q\n}\n", path, content))
}

func TestDriftIsShownInManualMode(t *testing.T) {
	c := cluster(t)
	path := filepath.Join(platform(t).Shared(t), "motd")
	c.Apply(t, file("motd", "interval: 1s", path, "welcome"))
	first := c.AwaitPending(t, "motd").Status.Plan.Pending
	c.Patch(t, "motd", `{"spec":{"approvePlan":"`+first+`"}}`)
	c.AwaitReady(t, "motd")
	edit(t, path, "defaced")

	s := c.AwaitReason(t, "motd", "DriftDetected")
	pending := s.Status.Plan.Pending
	if pending == "" || pending == first || !s.Status.Plan.IsDriftDetectionPlan || s.Status.LastDriftDetectedAt == nil {
		t.Errorf("the plan that repairs the drift is %+v, drift seen at %v; want one to approve that is not %s", s.Status.Plan, s.Status.LastDriftDetectedAt, first)
	}
	if got := read(t, path); got != "defaced" {
		t.Errorf("the file holds %q before anybody approved anything", got)
	}
	c.Patch(t, "motd", `{"spec":{"approvePlan":"`+pending+`"}}`)
	c.AwaitReady(t, "motd")
	if got := read(t, path); got != "welcome" {
		t.Errorf("the file holds %q after the repair was approved", got)
	}
}

func TestDriftIsRepairedInAutoMode(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	c.Apply(t, inline("drift", "approvePlan: auto\ninterval: 1s", things(w, "right", "a")))
	c.AwaitReady(t, "drift")
	w.Edit(func(thing *testkit.WorldThing) bool {
		wrong := "wrong"
		thing.Value = &wrong
		return true
	})
	s := c.Await(t, "drift", func(s *v1alpha2.Terraform) error {
		if s.Status.LastAppliedByDriftDetectionAt == nil {
			return fmt.Errorf("no drift was repaired")
		}
		return testkit.IsReady(s)
	})
	if all := w.Named("a"); len(all) != 1 || *all[0].Value != "right" {
		t.Errorf("the world holds %+v, want one thing that is right", all)
	}
	if s.Status.ReconciliationFailures != 0 {
		t.Errorf("repairing drift counts %d failures", s.Status.ReconciliationFailures)
	}
}

// The drift check of a settled stack costs one engine process and no write.
func TestQuietCheckWritesNothing(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	c.Apply(t, inline("quiet", "approvePlan: auto\ninterval: 1s", things(w, "x", "a")))
	s := c.AwaitReason(t, "quiet", "NoDrift")
	awaitChecks(t, w, 4) // the first may have begun before; the last may not be folded yet
	after := c.Stack(t, "quiet")
	if after.ResourceVersion != s.ResourceVersion {
		t.Errorf("the object went from version %s to %s while nothing happened: %+v", s.ResourceVersion, after.ResourceVersion, after.Status)
	}
	var report runner.Report
	if err := json.Unmarshal(platform(t).Record(t, "stacks/"+string(s.UID)+"/runs/check/report.json"), &report); err != nil {
		t.Fatal(err)
	}
	var engines []string
	for _, step := range report.Steps {
		if !strings.HasPrefix(step.Name, "provider ") { // which the engine would have started, and more often
			engines = append(engines, step.Name)
		}
	}
	if len(engines) != 1 || engines[0] != "plan" || !report.InitSkipped {
		t.Errorf("a quiet look took the engine processes %v, init skipped %v; want one plan and no init", engines, report.InitSkipped)
	}
}

// checks counts how often the things of these names were read; all things without a name.
func checks(w *testkit.World, names ...string) int {
	n := 0
	for _, call := range w.Calls() {
		if call.Call == "read" && call.Phase == "done" && (len(names) == 0 || slices.Contains(names, call.Name)) {
			n++
		}
	}
	return n
}

// awaitChecks waits until the things of these names were read so many times more.
func awaitChecks(t *testing.T, w *testkit.World, more int, names ...string) {
	t.Helper()
	before := checks(w, names...)
	testkit.Eventually(t, testkit.Patience, fmt.Sprintf("%d more drift checks are over", more), func(context.Context) error {
		if n := checks(w, names...) - before; n < more {
			return fmt.Errorf("there were %d", n)
		}
		return nil
	})
}

// edit changes a file manually.
func edit(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := sandbox.ChownWork(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
