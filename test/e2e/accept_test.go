package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// patched writes files, has the real git apply a patch to them, and returns them.
func patched(t *testing.T, files map[string]string, patch string) map[string]string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(t.TempDir(), "drift.patch")
	if err := os.WriteFile(file, []byte(patch), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"init", "--quiet"}, {"apply", file}} {
		c := exec.CommandContext(t.Context(), "git", args...)
		c.Dir = dir
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s\n%s", args, err, out, patch)
		}
	}
	out := map[string]string{}
	for name := range files {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		out[name] = string(text)
	}
	return out
}

// acceptable is a module of things that something else will change, delete, extend and rename.
func acceptable(w *testkit.World) map[string]string {
	return map[string]string{
		"provider.tf": w.HCL() + "\n",
		"main.tf": `# What the team owns.
resource "world_thing" "sized" {
  name = "sized"
  size = var.size # set below
}

resource "world_thing" "gone" { # is not needed any more
  name = "gone"
}

resource "world_thing" "tagged" {
  name = "tagged"
  tags = {
    team = "a" # the owner
  }
}

resource "world_thing" "named" {
  name  =   "before" # its name
  value = "x"
}
`,
		"vars.tf": "variable \"size\" {\n  default = 3\n}\n",
	}
}

// fromGit is a stack whose module is in the GitRepository code.
func fromGit(name, spec string) string {
	return "apiVersion: infra.contrib.fluxcd.io/v1alpha2\nkind: Terraform\nmetadata: {name: " + name + "}\nspec:\n  interval: 1s\n  sourceRef: {kind: GitRepository, name: code}\n" + indent(2, spec) + "\n"
}

// fetchNow has the source fetched at once.
func fetchNow(t *testing.T, c *testkit.Cluster) {
	t.Helper()
	c.Kubectl(t, "annotate", "--overwrite", "gitrepository/code", "reconcile.fluxcd.io/requestedAt=now")
}

// writes counts the calls that changed the world.
func writes(w *testkit.World) int {
	n := 0
	for _, call := range w.Calls() {
		if call.Phase == "done" && (call.Call == "create" || call.Call == "update" || call.Call == "delete") {
			n++
		}
	}
	return n
}

// changeAll is what something else does to them.
func changeAll(w *testkit.World) {
	w.Edit(func(thing *testkit.WorldThing) bool {
		switch thing.Name {
		case "sized":
			thing.Size = 8
		case "gone":
			return false
		case "tagged":
			thing.Tags["extra"] = "1"
		case "before":
			thing.Name = "after"
		}
		return true
	})
}

// Drift of all sorts is accepted by a patch that the real git applies: once it is merged, the plan
// has no changes, nothing was changed, and the audit log has who accepted it.
func TestDriftIsAccepted(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	git := testkit.NewGit(t)
	files := acceptable(w)
	git.Commit(files)
	c.Apply(t, git.Manifest("code")+"---\n"+fromGit("net", "approvePlan: auto"))
	c.AwaitReady(t, "net")
	c.Patch(t, "net", `{"spec":{"approvePlan":""}}`)
	c.AwaitReason(t, "net", "NoDrift")
	changeAll(w)
	c.Await(t, "net", func(s *v1alpha2.Terraform) error {
		if m := statusOf(s); m.Drift == nil || m.Drift.Changes.Change != 2 || m.Drift.Changes.Add != 2 {
			return errNot("all of the drift yet: " + message(s))
		}
		return nil
	})
	if out := c.Terrier(t, "drift", "show", "net"); !strings.Contains(out, "world_thing.sized was changed\n  size: configured 3, is 8") || !strings.Contains(out, "world_thing.gone is not there") {
		t.Errorf("terrier drift show says\n%s", out)
	}
	drift := statusOf(c.Stack(t, "net")).Pending.Digest
	patch := c.Terrier(t, "drift", "accept", "net", "--reason", "the incident 4711")
	c.Patch(t, "net", `{"spec":{"approvePlan":"auto"}}`) // which would enforce the configuration
	c.Await(t, "net", func(s *v1alpha2.Terraform) error {
		if got := message(s); !strings.Contains(got, "Drift accepted: ") || !strings.Contains(got, "Reason: the incident 4711.") {
			return errNot("waiting for the change yet: " + got)
		}
		return nil
	})
	awaitChecks(t, w, 2)
	awaitAccepted := func() {
		t.Helper()
		c.Await(t, "net", func(s *v1alpha2.Terraform) error {
			if m := statusOf(s); m.Pending == nil || m.Pending.Digest != drift || !strings.Contains(message(s), "Drift accepted: ") {
				return errNot("waiting for the change again yet: " + message(s))
			}
			return nil
		})
	}
	ranOnce(t, w, "sized", func() { c.Terrier(t, "replan", "net") })
	awaitAccepted()
	ranOnce(t, w, "sized", func() {
		c.Kubectl(t, "patch", "terraform/net", "--subresource=status", "--type=merge", "-p", `{"status":null}`)
	})
	awaitAccepted()
	if all := w.Named("after"); len(all) != 1 {
		t.Errorf("the world holds %+v, want what something else made of it", all)
	}
	after := patched(t, files, patch)
	if !strings.Contains(after["main.tf"], "    team = \"a\" # the owner\n    extra = \"1\"\n") || !strings.Contains(after["main.tf"], "  name  =   \"after\" # its name\n") ||
		strings.Contains(after["main.tf"], "gone") || after["vars.tf"] != "variable \"size\" {\n  default = 8\n}\n" {
		t.Errorf("the patch makes\n%s\n%s", after["main.tf"], after["vars.tf"])
	}
	before, accepted := writes(w), 0
	git.Commit(after)
	fetchNow(t, c)
	c.Await(t, "net", func(s *v1alpha2.Terraform) error {
		if m := statusOf(s); m.Drift != nil || m.Pending != nil {
			return errNot("without drift yet: " + message(s))
		}
		return testkit.IsReady(s)
	})
	if n := writes(w); n != before {
		t.Errorf("%d resources were changed, want none", n-before)
	}
	for _, e := range auditLog(t, platform(t), c.Namespace) {
		if e.What != audit.DriftAccepted {
			continue
		}
		if accepted++; e.Who == "" || e.Details["drift"] != drift || e.Details["way"] != "configuration" || e.Why != "the incident 4711" {
			t.Errorf("the audit log has %+v, want who accepted the drift %s", e, drift)
		}
	}
	if accepted != 1 {
		t.Errorf("the audit log has %d acceptances, want one", accepted)
	}
}

// The change is pushed as a branch of a real git server, with the credentials of a Secret.
func TestDriftIsAcceptedOnABranch(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	git := testkit.NewGit(t)
	files := acceptable(w)
	git.Commit(files)
	c.Apply(t, git.Manifest("code")+"---\n"+fromGit("branch", ""))
	first := c.AwaitPending(t, "branch").Status.Plan.Pending
	c.Patch(t, "branch", `{"spec":{"approvePlan":"`+first+`"}}`)
	c.AwaitReady(t, "branch")
	w.Edit(func(thing *testkit.WorldThing) bool {
		if thing.Name == "sized" {
			thing.Size = 8
		}
		return true
	})
	c.AwaitReason(t, "branch", "DriftDetected")
	out := c.Terrier(t, "drift", "accept", "branch", "--branch", "drift/size")
	if !strings.Contains(out, "as the branch drift/size") {
		t.Fatalf("terrier drift accept says\n%s", out)
	}
	git.Do("fetch", "--quiet", "origin", "drift/size")
	git.Do("merge", "--quiet", "--no-edit", "FETCH_HEAD")
	git.Do("push", "--quiet", "origin", "main")
	fetchNow(t, c)
	c.Await(t, "branch", func(s *v1alpha2.Terraform) error {
		if m := statusOf(s); m.Drift != nil || m.Pending != nil {
			return errNot("without drift yet: " + message(s))
		}
		return testkit.IsReady(s)
	})
	testkit.Eventually(t, testkit.Patience, "the branch is merged", func(context.Context) error {
		if all := w.Named("sized"); len(all) != 1 || all[0].Size != 8 {
			return errNot("as something else made it")
		}
		return nil
	})
}

// With --ignore-changes the engine ignores the attribute from now on: its plan has no changes, also
// when something else changes it again, and the audit log has which way the user chose.
func TestDriftIsIgnoredFromNowOn(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	git := testkit.NewGit(t)
	files := acceptable(w)
	git.Commit(files)
	c.Apply(t, git.Manifest("code")+"---\n"+fromGit("ignored", ""))
	first := c.AwaitPending(t, "ignored").Status.Plan.Pending
	c.Patch(t, "ignored", `{"spec":{"approvePlan":"`+first+`"}}`)
	c.AwaitReady(t, "ignored")
	resize := func(size int64) {
		w.Edit(func(thing *testkit.WorldThing) bool {
			if thing.Name == "sized" {
				thing.Size = size
			}
			return true
		})
	}
	resize(8)
	c.AwaitReason(t, "ignored", "DriftDetected")
	after := patched(t, files, c.Terrier(t, "drift", "accept", "ignored", "--ignore-changes", "--reason", "autoscaling"))
	if got := after["main.tf"]; !strings.Contains(got, "size = var.size # set below") || !strings.Contains(got, "ignore_changes = [size]") {
		t.Errorf("the patch makes\n%s", got)
	}
	before, ignored := writes(w), 0
	git.Commit(after)
	fetchNow(t, c)
	settled := func(s *v1alpha2.Terraform) error {
		if m := statusOf(s); m.Drift != nil || m.Pending != nil {
			return errNot("without drift yet: " + message(s))
		}
		return testkit.IsReady(s)
	}
	c.Await(t, "ignored", settled)
	resize(9)
	ranOnce(t, w, "sized", func() { c.Terrier(t, "replan", "ignored", "--wait") })
	c.Await(t, "ignored", settled)
	if n := writes(w); n != before {
		t.Errorf("%d resources were changed, want none", n-before)
	}
	for _, e := range auditLog(t, platform(t), c.Namespace) {
		if e.What == audit.DriftAccepted && e.Who != "" && e.Details["way"] == "ignore-changes" && e.Why == "autoscaling" {
			ignored++
		}
	}
	if ignored != 1 {
		t.Errorf("the audit log has %d acceptances by ignore_changes, want one", ignored)
	}
}
