package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// byHand is a directory in which a user runs the engine on the state of a stack.
func byHand(t *testing.T, c *testkit.Cluster, stack, hcl string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "main.tf", hcl)
	write(t, dir, "backend.tf", "terraform {\n  backend \"kubernetes\" {\n    secret_suffix = \""+stack+"\"\n    namespace     = \""+c.Namespace+"\"\n    config_path   = \""+c.Kubeconfig+"\"\n  }\n}\n")
	testkit.Engine(t, dir, nil, "init", "-input=false", "-no-color")
	return dir
}

// A migration from another controller, or from none, keeps the state where it is,
// and the resources.
func TestExistingStateIsAdopted(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	hcl := things(w, "x", "a", "b")
	testkit.Engine(t, byHand(t, c, "stack", hcl), nil, "apply", "-input=false", "-no-color", "-auto-approve")
	made(t, w, "a", "b")
	c.Apply(t, inline("stack", kept, hcl))
	s := c.AwaitReason(t, "stack", "TerraformPlannedNoChanges")
	if s.Status.Plan.LastApplied != "" {
		t.Errorf("the plan %q was applied to what was true already", s.Status.Plan.LastApplied)
	}
	made(t, w, "a", "b")
	c.Delete(t, "stack")
	c.AwaitGone(t, "stack")
	made(t, w)
}

// P1 holds against people, too: the lock is the one that they take.
func TestApplyLocksOutTheEngineOfAUser(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	hcl := things(w, "x", "a")
	dir := byHand(t, c, "stack", hcl)
	gate := filepath.Join(filepath.Dir(w.Path), "gate")
	c.Apply(t, inline("stack", "approvePlan: auto", hcl+`
resource "terraform_data" "gate" {
  depends_on = [world_thing.a]
  provisioner "local-exec" {
    command = "while ! test -e `+gate+`; do sleep 0.1; done"
  }
}
`))
	w.Await(t.Context(), func(call testkit.WorldCall) bool { return call.Call == "create" && call.Phase == "done" })
	if r := testkit.TryEngine(t, dir, nil, "plan", "-input=false", "-no-color", "-lock-timeout=0s"); r.Code != 1 || !strings.Contains(r.Stderr, "Error acquiring the state lock") || !strings.Contains(r.Stderr, "terrier") {
		t.Errorf("the engine by hand ended with %d and said %s; want that Terrier holds the lock", r.Code, r.Stderr)
	}
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	c.AwaitReady(t, "stack")
	write(t, dir, "main.tf", hcl)
	testkit.Engine(t, dir, nil, "plan", "-input=false", "-no-color", "-lock-timeout=0s") // no client holds it now
}
