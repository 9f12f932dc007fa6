package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/internal/testkit/sshgit"
)

// thingOf is a module with one thing, whose name is a variable.
func thingOf(w *testkit.World, value string) map[string]string {
	return map[string]string{"main.tf": w.HCL() + `
variable "thing" {}
resource "world_thing" "a" {
  name  = var.thing
  value = "` + value + `"
}
`}
}

// stackOfThing is a stack of scripts with such a module.
func stackOfThing(name, annotations, url string) string {
	return `
apiVersion: alustan.io/v1alpha1
kind: Terraform
metadata: {name: ` + name + `, annotations: {` + annotations + `}}
spec:
  variables: {thing: ` + name + `}
  scripts:
    apply: {inline: "terraform apply -auto-approve"}
    destroy: {inline: "terraform destroy -auto-approve"}
  gitRepo: {url: "` + url + `", branch: main}
`
}

// awaitValue waits until the world has one thing of a name, with this value.
func awaitValue(t *testing.T, w *testkit.World, name, value string) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, name+" has the value "+value, func(context.Context) error {
		if all := w.Named(name); len(all) != 1 || *all[0].Value != value {
			return fmt.Errorf("the world holds %+v", all)
		}
		return nil
	})
}

// linesIn counts the lines that scripts have appended to a file.
func linesIn(t *testing.T, path string) int {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Count(string(text), "\n")
}

// A resource that was changed outside of Terrier is what the module says after the next
// run of the script. With terrier.dev/drift: report the drift is shown, and stays until a
// user approves its plan.
func TestScriptsRepairDrift(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	g := testkit.NewGit(t)
	g.Username = ""
	hash := g.Commit(thingOf(w, "right"))
	repaired := scriptedFrom(t, c, stackOfThing("repaired", "terrier.dev/interval: 2s", g.URL))
	reported := scriptedFrom(t, c, stackOfThing("reported", "terrier.dev/interval: 2s, terrier.dev/drift: report", g.URL))
	repaired.await(t, "Success", hash, hash)
	reported.await(t, "Success", hash, hash)
	w.Edit(func(thing *testkit.WorldThing) bool {
		wrong := "wrong"
		thing.Value = &wrong
		return true
	})
	awaitValue(t, w, "repaired", "right")
	repaired.await(t, "Success", hash, hash)
	reported.await(t, "", "Drift detected", "")
	// Two more checks change nothing either.
	awaitChecks(t, w, 2, "reported")
	reported.await(t, "", "Drift detected", "")
	if all := w.Named("reported"); len(all) != 1 || *all[0].Value != "wrong" {
		t.Errorf("with terrier.dev/drift: report the world holds %+v, want what was changed outside", all)
	}
	// What terrier explain advises is taken, also of a stack that needs no approval otherwise.
	if said := c.Terrier(t, "explain", "terraform.alustan.io/reported"); !strings.Contains(said, "Approve the plan") {
		t.Errorf("terrier explain says\n%s\nwant it to advise an approval", said)
	}
	c.Terrier(t, "approve", "terraform.alustan.io/reported", "--yes")
	testkit.Eventually(t, testkit.Patience, "the approved plan repairs the resource", func(context.Context) error {
		if all := w.Named("reported"); len(all) != 1 || *all[0].Value != "right" {
			return fmt.Errorf("the world holds %+v", all)
		}
		return nil
	})
	reported.await(t, "Success", hash, hash)
	for _, s := range []scripted{repaired, reported} {
		s.delete(t)
		s.awaitGone(t)
	}
}

// With terrier.dev/approval: manual a plan comes first, and no script is run before a user
// approves it; neither for the first plan nor for that of another commit. What was approved
// can be destroyed.
func TestScriptWaitsForApproval(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	ran := filepath.Join(platform(t).Shared(t), "ran")
	g := testkit.NewGit(t)
	g.Username = ""
	first := g.Commit(thingOf(w, "one"))
	s := scriptedFrom(t, c, strings.Replace(stackOfThing("reviewed", "terrier.dev/approval: manual", g.URL),
		`"terraform apply`, `"echo run >> `+ran+`; terraform apply`, 1))
	s.await(t, "", "plan-main-"+first[:10], "")
	if n := linesIn(t, ran); n != 0 || len(w.Things()) != 0 {
		t.Errorf("before an approval the script ran %d times, and the world holds %+v", n, w.Things())
	}
	c.Terrier(t, "approve", "terraform.alustan.io/reviewed", "--yes")
	s.await(t, "Success", first, first)
	if n, all := linesIn(t, ran), w.Named("reviewed"); n != 1 || len(all) != 1 || *all[0].Value != "one" {
		t.Errorf("after the approval the script ran %d times, and the world holds %+v", n, all)
	}
	second := g.Commit(thingOf(w, "two"))
	s.lookNow(t)
	s.await(t, "", "plan-main-"+second[:10], "")
	if n, all := linesIn(t, ran), w.Named("reviewed"); n != 1 || len(all) != 1 || *all[0].Value != "one" {
		t.Errorf("before the second approval the script ran %d times, and the world holds %+v", n, all)
	}
	c.Terrier(t, "approve", "terraform.alustan.io/reviewed", "--yes")
	s.await(t, "Success", second, second)
	if n, all := linesIn(t, ran), w.Named("reviewed"); n != 2 || len(all) != 1 || *all[0].Value != "two" {
		t.Errorf("after the second approval the script ran %d times, and the world holds %+v", n, all)
	}
	s.delete(t)
	s.awaitGone(t)
	if all := w.Things(); len(all) != 0 {
		t.Errorf("after the deletion the world holds %+v", all)
	}
}

// With terrier.dev/deletion: approve the destroy script of a stack that applies without an
// approval waits for one all the same, and runs once it has it.
func TestDestroyScriptWaitsForApproval(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	g := testkit.NewGit(t)
	g.Username = ""
	hash := g.Commit(thingOf(w, "one"))
	s := scriptedFrom(t, c, stackOfThing("kept", "terrier.dev/deletion: approve", g.URL))
	s.await(t, "Success", hash, hash)
	s.delete(t)
	s.await(t, "", "plan-main-"+hash[:10], "")
	if all := w.Named("kept"); len(all) != 1 {
		t.Errorf("before the approval of the destroy the world holds %+v", all)
	}
	c.Terrier(t, "approve", "terraform.alustan.io/kept", "--yes")
	s.awaitGone(t)
	if all := w.Things(); len(all) != 0 {
		t.Errorf("after the deletion the world holds %+v", all)
	}
}

// A destroy script that succeeds without destroying is believed, and the events say what it
// has left. A stack of the same name continues with that.
func TestDestroyScriptLeavesResources(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	g := testkit.NewGit(t)
	g.Username = ""
	hash := g.Commit(thingOf(w, "one"))
	s := scriptedFrom(t, c, strings.Replace(stackOfThing("left", "", g.URL), `"terraform destroy -auto-approve"`, `"exit 0"`, 1))
	s.await(t, "Success", hash, hash)
	s.delete(t)
	s.awaitGone(t)
	if all := w.Named("left"); len(all) != 1 {
		t.Errorf("after a destroy script that does nothing the world holds %+v", all)
	}
	testkit.Eventually(t, testkit.Patience, "an event says what is left", func(context.Context) error {
		if events := c.Kubectl(t, "get", "events", "-o", "jsonpath={range .items[*]}{.type} {.message}{\"\\n\"}{end}"); !strings.Contains(events, "Warning The destroy script succeeded. Resources that it left in the state, which is kept: 1") {
			return fmt.Errorf("the events are %q", events)
		}
		return nil
	})
	s = scriptedFrom(t, c, stackOfThing("left", `terrier.dev/adopt-state: "true"`, g.URL))
	s.await(t, "Success", hash, hash)
	s.delete(t)
	s.awaitGone(t)
	if all := w.Things(); len(all) != 0 {
		t.Errorf("after the deletion the world holds %+v", all)
	}
}

// Retries are counted over restarts of the controller: with terrier.dev/retries: 2 a
// script that fails is run three times, though the controller is killed after each of them.
func TestRetriesOutliveTheController(t *testing.T) {
	t.Parallel() // most of it is the pauses between retries
	p := testkit.Up(t)
	c := p.Cluster(t)
	ran := filepath.Join(p.Shared(t), "ran")
	g := testkit.NewGit(t)
	g.Username = ""
	hash := g.Commit(map[string]string{"README": "nothing to plan\n"})
	manifest := func(name, annotations, script string) string {
		return `
apiVersion: alustan.io/v1alpha1
kind: Terraform
metadata: {name: ` + name + `, annotations: {` + annotations + `}}
spec:
  scripts: {apply: {inline: "` + script + `"}, destroy: {inline: "exit 0"}}
  gitRepo: {url: "` + g.URL + `", branch: main}
`
	}
	s := scriptedFrom(t, c, manifest("failing", `terrier.dev/retries: "2"`, "echo run >> "+ran+"; echo 'the cloud is down' >&2; exit 1"))
	for n := 1; n <= 3; n++ {
		s.awaitStatus(t, fmt.Sprintf("failure %d is counted", n), func(status map[string]any) bool {
			return fmt.Sprint(status["failures"]) == fmt.Sprint(n) && status["state"] == "Failed"
		})
		if got := linesIn(t, ran); got != n {
			t.Fatalf("after failure %d the script ran %d times", n, got)
		}
		kill(t, p)
		start(t, p)
	}
	// A stack that came later is applied: the controller has come to both.
	later := scriptedFrom(t, c, manifest("later", "", "exit 0"))
	later.await(t, "Success", hash, hash)
	s.await(t, "Failed", "the cloud is down", "")
	if got := s.condition(t, "Stalled"); got == "" {
		t.Error("the stack is not Stalled, want the limit of its retries")
	}
	if got := linesIn(t, ran); got != 3 {
		t.Errorf("the script ran %d times, want once and two retries", got)
	}
	for _, s := range []scripted{s, later} {
		s.delete(t)
		s.awaitGone(t)
	}
}

// The destroy script of the last run destroys the resources, though the ConfigMap that had
// both scripts was deleted before the stack.
func TestDestroyWithoutTheConfigMap(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	g := testkit.NewGit(t)
	g.Username = ""
	hash := g.Commit(thingOf(w, "right"))
	s := scriptedFrom(t, c, `
apiVersion: v1
kind: ConfigMap
metadata: {name: scripts}
data: {apply: "terraform apply -auto-approve\n", destroy: "terraform destroy -auto-approve\n"}
---
apiVersion: alustan.io/v1alpha1
kind: Terraform
metadata: {name: orphan}
spec:
  variables: {thing: orphan}
  scripts:
    apply: {configMapRef: {name: scripts, key: apply}}
    destroy: {configMapRef: {name: scripts, key: destroy}}
  gitRepo: {url: "`+g.URL+`", branch: main}
`)
	s.await(t, "Success", hash, hash)
	if all := w.Named("orphan"); len(all) != 1 {
		t.Fatalf("the world holds %+v", all)
	}
	if err := c.Client.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "scripts"}}); err != nil {
		t.Fatal(err)
	}
	s.delete(t)
	s.awaitGone(t)
	if all := w.Things(); len(all) != 0 {
		t.Errorf("after the deletion the world holds %+v", all)
	}
}

// The key of a git server is in its Secret, and nowhere else that a user can read: in no
// object or event of the namespace, in no log of a run, and in no log of the controller.
// The script cannot read it either.
func TestGitKeyIsNowhereElse(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	p := platform(t)
	g := testkit.NewGit(t)
	hash := g.Commit(map[string]string{"terraform/README": "nothing to plan\n"})
	identity, public := sshgit.NewIdentity(t, "")
	host, _ := sshgit.NewSigner(t, "ed25519")
	server := sshgit.Serve(t, g.Root, public, host)
	c.PutSecret(t, "git", map[string]string{"id": identity, "known_hosts": string(server.Known(host))})
	at, err := url.Parse(g.URL)
	if err != nil {
		t.Fatal(err)
	}
	s := scriptedFrom(t, c, `
apiVersion: alustan.io/v1alpha1
kind: Terraform
metadata: {name: keyed}
spec:
  scripts: {apply: {inline: "env; grep -rs 'PRIVATE KEY' .. $HOME $TMPDIR; echo searched"}, destroy: {inline: "exit 0"}}
  gitRepo: {url: "ssh://git@`+server.Address+at.Path+`/terraform", branch: main, sshKeySecret: {name: git, key: id}}
`)
	s.await(t, "Success", hash, hash)
	if server.Sessions.Load() == 0 {
		t.Error("the code did not come over ssh")
	}
	s.patch(t, `{"spec":{"scripts":{"apply":{"inline":"echo failing >&2; exit 1"}}}}`)
	s.await(t, "Failed", "failing", "")

	kinds := []string{"terraforms.alustan.io", "gitrepositories", "ocirepositories", "events", "configmaps", "leases", "pods", "jobs"}
	seen := map[string]string{
		"the objects":               c.Kubectl(t, "get", strings.Join(kinds, ","), "-o", "yaml"),
		"the Secrets":               c.Kubectl(t, "get", "secrets", "--field-selector", "metadata.name!=git", "-o", "yaml"),
		"the log of the controller": p.Log(),
	}
	var runs struct{ Items []struct{ ID string } }
	if err := json.Unmarshal([]byte(c.Terrier(t, "runs", "terraform.alustan.io/keyed", "-o", "json")), &runs); err != nil {
		t.Fatal(err)
	}
	for _, run := range runs.Items {
		seen["the log of "+run.ID] = c.Terrier(t, "logs", "terraform.alustan.io/keyed", "--run", run.ID)
	}
	if len(seen) < 5 || !strings.Contains(fmt.Sprint(seen), "searched") || !strings.Contains(seen["the objects"], "keyed") {
		t.Errorf("seen are %v, want the logs of both runs", seen)
	}
	secrets := []string{base64.StdEncoding.EncodeToString([]byte(identity))[:60]}
	for line := range strings.Lines(identity) {
		secrets = append(secrets, strings.TrimSpace(line))
	}
	for where, text := range seen {
		for _, line := range secrets {
			if strings.Contains(text, line) {
				t.Errorf("%s has a line of the key", where)
			}
		}
	}
	s.delete(t)
	s.awaitGone(t)
}
