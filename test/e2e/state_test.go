package e2e

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// packed is what the state Secret of a stack holds.
func packed(t *testing.T, c *testkit.Cluster, name string) []byte {
	t.Helper()
	var s corev1.Secret
	c.Get(t, "tfstate-default-"+name, &s)
	return s.Data["tfstate"]
}

// restore puts bytes into the state Secret of a stack, as a person or a backup
// does that knows nothing of Terrier.
func restore(t *testing.T, c *testkit.Cluster, name string, content []byte) {
	t.Helper()
	var s corev1.Secret
	c.Get(t, "tfstate-default-"+name, &s)
	s.Data["tfstate"] = content
	if err := c.Client.Update(t.Context(), &s); err != nil {
		t.Fatal(err)
	}
}

// serials are those of the versions that are kept, newest first.
func serials(t *testing.T, c *testkit.Cluster, name string) []string {
	t.Helper()
	var kept struct {
		Versions []struct{ Serial json.Number }
	}
	if err := json.Unmarshal([]byte(c.Terrier(t, "state", "versions", name, "-o", "json")), &kept); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, v := range slices.Backward(kept.Versions) {
		out = append(out, v.Serial.String())
	}
	return out
}

// TB-16: a damaged state stops everything, a destroy too, with a message, and is
// restored by one command.
func TestTamperedStateStopsRuns(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	c.Apply(t, inline("stack", kept+"\nretryInterval: 1s", things(w, "x", "a")))
	c.AwaitReady(t, "stack")
	made(t, w, "a")
	newest := serials(t, c, "stack")[0]

	restore(t, c, "stack", []byte("hello"))
	c.Terrier(t, "replan", "stack")
	s := c.AwaitReason(t, "stack", "StateTampered")
	if text := message(s); !strings.Contains(text, "terrier state rollback stack") {
		t.Errorf("the message is %q, want a way out", text)
	}
	c.Delete(t, "stack")
	c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
		if !strings.Contains(message(s), "terrier.dev/deletion=retain") {
			return errors.New("the message does not name the way out of a deletion")
		}
		return nil
	})
	made(t, w, "a")
	c.Terrier(t, "state", "rollback", "stack", newest, "--yes")
	c.AwaitGone(t, "stack")
	made(t, w)
}

// F18: a backup that is restored over a newer state would have things built
// twice.
func TestStateThatGoesBackStopsRuns(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	c.Apply(t, inline("stack", kept+"\nretryInterval: 1s", things(w, "x", "a")))
	c.AwaitReady(t, "stack")
	backup := packed(t, c, "stack")
	c.Apply(t, inline("stack", kept+"\nretryInterval: 1s", things(w, "x", "a", "b")))
	c.AwaitReady(t, "stack")
	made(t, w, "a", "b")

	restore(t, c, "stack", backup)
	c.Terrier(t, "replan", "stack")
	c.AwaitReason(t, "stack", "StateRegressed")
	if n := began(w, "create", "b"); n != 1 {
		t.Errorf("b was created %d times, want once", n)
	}
	c.Terrier(t, "state", "rollback", "stack", serials(t, c, "stack")[0], "--yes")
	c.AwaitReady(t, "stack")
	made(t, w, "a", "b")
	if n := began(w, "create", "b"); n != 1 {
		t.Errorf("b was created %d times after the newest state was taken back, want once", n)
	}

	// A user may also want it.
	c.Terrier(t, "state", "lock", "stack", "--reason", "a test of locks")
	restore(t, c, "stack", backup)
	c.Terrier(t, "replan", "stack")
	c.Patch(t, "stack", `{"spec":{"approvePlan":""}}`)
	c.AwaitReason(t, "stack", "StateRegressed")
	c.Terrier(t, "state", "accept", "stack", "--yes")
	s := c.AwaitReason(t, "stack", "LockHeld")
	if text := message(s); !strings.Contains(text, "a test of locks") {
		t.Errorf("the message is %q, want why it is locked", text)
	}
	c.Terrier(t, "state", "unlock", "stack")
	c.AwaitReason(t, "stack", "DriftDetected") // to create b again, which a person has to agree to
	w.Edit(func(th *testkit.WorldThing) bool { return th.Name != "b" })
	c.Patch(t, "stack", `{"spec":{"approvePlan":"auto"}}`)
	c.AwaitReady(t, "stack")
	made(t, w, "a", "b")
}

// A state that the plain engine continued is followed, and after a bad apply an
// older one leads to a plan that restores.
func TestStateIsContinuedAndRolledBack(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	c.Apply(t, inline("stack", kept, things(w, "x", "a", "b")))
	c.AwaitReady(t, "stack")
	good := serials(t, c, "stack")[0]

	dir := byHand(t, c, "stack", things(w, "x", "a", "b"))
	testkit.Engine(t, dir, nil, "state", "rm", "world_thing.b")
	c.Patch(t, "stack", `{"spec":{"approvePlan":""}}`)
	c.Terrier(t, "replan", "stack")
	c.AwaitReason(t, "stack", "DriftDetected") // the state forgot b, so that it would be built again
	versions := c.Terrier(t, "state", "versions", "stack")
	if !strings.Contains(versions, "outside") {
		t.Errorf("the versions are\n%s\nwant one that was written outside", versions)
	}

	out := c.Terrier(t, "state", "rollback", "stack", good, "--yes")
	if !strings.Contains(out, "+ world_thing.b (added to the state)") {
		t.Errorf("terrier state rollback says %q, want b to come back", out)
	}
	c.AwaitReady(t, "stack")
	made(t, w, "a", "b")
	if n := began(w, "create", "b"); n != 1 {
		t.Errorf("b was created %d times, want once", n)
	}
	file := filepath.Join(t.TempDir(), "pulled")
	c.Terrier(t, "state", "pull", "stack", "-o", file)
	pulled, err := os.ReadFile(file)
	if err != nil || !slices.Equal(pulled, stateOf(t, c, "stack")) {
		t.Errorf("terrier state pull wrote %d bytes, %v; want the state", len(pulled), err)
	}
	testkit.Engine(t, dir, nil, "plan", "-input=false", "-no-color", "-detailed-exitcode") // it follows ours
}

// LQ-39: two stacks that name one place destroy each other's things by turns.
func TestStateOfTwoStacksIsRefused(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	c.Apply(t, inline("first", kept+"\nretryInterval: 1s\nbackendConfig: {secretSuffix: one}", things(w, "x", "a")))
	c.AwaitReady(t, "first")
	c.Apply(t, inline("second", kept+"\nretryInterval: 1s\nbackendConfig: {secretSuffix: one}", things(w, "x", "b")))
	s := c.AwaitReason(t, "second", "StateShared")
	if text := message(s); !strings.Contains(text, "first") {
		t.Errorf("the message is %q, want it to name the other stack", text)
	}
	made(t, w, "a")

	place := platform(t).Shared(t)
	custom := "\nretryInterval: 1s\nbackendConfig:\n  customConfiguration: |\n    backend \"local\" {\n      path = \"" + place + "/state\"\n    }"
	c.Apply(t, inline("third", kept+custom, things(w, "x", "c")))
	c.AwaitReady(t, "third")
	c.Apply(t, inline("fourth", kept+custom, things(w, "x", "d")))
	c.AwaitReason(t, "fourth", "StateShared")
	made(t, w, "a", "c")
}

// F40: a state that no Secret has room for.
func TestStateLargerThanASecret(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	hcl := `
resource "terraform_data" "large" {
  count = 16
  input = join("", [for i in range(900) : sha512("${count.index}/${i}")])
}
`
	c.Apply(t, inline("stack", "approvePlan: auto\ninterval: 1h\ndestroyResourcesOnDeletion: true", hcl))
	c.AwaitReady(t, "stack")
	if list := c.Terrier(t, "state", "list"); !strings.Contains(list, "outgrown") {
		t.Errorf("terrier state list says\n%s\nwant that the state has outgrown its Secret", list)
	}
	if n := strings.Count(c.Terrier(t, "state", "list", "stack"), "terraform_data.large["); n != 16 {
		t.Errorf("the state lists %d resources, want 16", n)
	}
	dir := t.TempDir()
	write(t, dir, "main.tf", "terraform {\n  backend \"kubernetes\" {\n    secret_suffix = \"stack\"\n    namespace     = \""+c.Namespace+"\"\n    config_path   = \""+c.Kubeconfig+"\"\n  }\n}\n"+hcl)
	testkit.TryEngine(t, dir, nil, "init", "-input=false", "-no-color")
	if r := testkit.TryEngine(t, dir, nil, "apply", "-input=false", "-no-color", "-auto-approve"); r.Code == 0 {
		t.Errorf("the plain engine took the state for an empty one: %s", r.Stdout)
	}
	c.Terrier(t, "replan", "stack", "--wait")
	c.AwaitReady(t, "stack") // nothing is to be changed
	c.Delete(t, "stack")
	c.AwaitGone(t, "stack")
}
