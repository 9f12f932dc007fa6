package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/afterapply"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// stepOf waits until the condition of a step is so, and returns its message.
func stepOf(t *testing.T, c *testkit.Cluster, name, step, want, says string) string {
	t.Helper()
	kind := afterapply.ConditionPrefix + step
	s := c.Await(t, name, func(s *v1alpha2.Terraform) error {
		is := meta.FindStatusCondition(s.Status.Conditions, kind)
		if got := conditionOf(s, kind); got != want || !strings.Contains(is.Message, says) {
			return fmt.Errorf("the step %s is %s, want %s with %q", step, got, want, says)
		}
		return nil
	})
	return meta.FindStatusCondition(s.Status.Conditions, kind).Message
}

// afterApplyOf is what the status of a stack holds of its steps.
func afterApplyOf(t *testing.T, memory []byte) stack.AfterApply {
	t.Helper()
	var m stack.Status
	if err := json.Unmarshal(memory, &m); err != nil {
		t.Fatal(err)
	}
	if m.AfterApply == nil {
		return stack.AfterApply{}
	}
	return *m.AfterApply
}

// followed is a stack of a source with steps after its applies.
func followed(name, spec, steps string) string {
	return "apiVersion: infra.contrib.fluxcd.io/v1alpha2\nkind: Terraform\nmetadata:\n  name: " + name + "\n  annotations:\n    terrier.dev/after-apply: |\n" +
		indent(6, steps) + "\nspec:\n" + indent(2, spec+"\npath: stack\nsourceRef: {kind: GitRepository, name: code}") + "\n"
}

// reread has a source fetched again.
func reread(t *testing.T, c *testkit.Cluster, revision string) {
	t.Helper()
	c.Kubectl(t, "annotate", "gitrepository/code", "--overwrite", "reconcile.fluxcd.io/requestedAt="+revision)
}

// moduleOf is a module with one thing and an output, and a program that says it.
func moduleOf(w *testkit.World, zone, program string) map[string]string {
	return map[string]string{
		"stack/main.tf":  things(w, "1", "vm") + "\noutput \"zone\" { value = \"" + zone + "\" }\noutput \"token\" {\n  value     = \"canary-step-5c1\"\n  sensitive = true\n}\n",
		"stack/bin/say":  program,
		"stack/other.md": zone,
	}
}

// TB-07: steps follow an apply that succeeded, with its outputs. They are carried out again
// for what is new, and a step that fails is said beside the apply that did not.
func TestStepsAfterAnApply(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	g := testkit.NewGit(t)
	const say = "#!/bin/sh\necho \"$TERRIER_STEP of $1 has $(cat \"$2\")\"\n"
	g.Commit(moduleOf(w, "tenant", say))
	c.Apply(t, g.Manifest("code")+"---\n"+followed("app", "approvePlan: auto\ndestroyResourcesOnDeletion: true", `
- name: first
  command: [bin/say, "$HOME", "terrier-step:outputs.json"]
- name: second
  command: [bin/say, again, "terrier-step:outputs.json"]
  outputs: [token]
`))
	said := stepOf(t, c, "app", "first", "True/Succeeded", `first of $HOME has {"zone":"tenant"}`)
	if strings.Contains(said, "canary-step-5c1") {
		t.Errorf("a step that names no sensitive output has it: %s", said)
	}
	if said := stepOf(t, c, "app", "second", "True/Succeeded", "second of again has "); strings.Contains(said, "canary-step-5c1") || !strings.Contains(said, `"token":`) {
		t.Errorf("the step says %s, want the sensitive output, and not its value", said)
	}
	s := c.AwaitReady(t, "app")
	if len(w.Named("vm")) != 1 {
		t.Errorf("the steps came before the resources: %+v", w.Things())
	}
	ran := s.Status.Terrier.Memory

	// A commit that touches neither outputs nor the files of a step carries out none.
	files := moduleOf(w, "tenant", say)
	files["stack/other.md"] = "changed"
	revision := g.Commit(files)
	reread(t, c, revision)
	s = c.Await(t, "app", func(s *v1alpha2.Terraform) error {
		if !strings.HasSuffix(s.Status.LastPlannedRevision, revision) {
			return fmt.Errorf("it has planned %s, want %s", s.Status.LastPlannedRevision, revision)
		}
		return testkit.IsReady(s)
	})
	if was, is := afterApplyOf(t, ran.Raw), afterApplyOf(t, s.Status.Terrier.Memory.Raw); was.Run != is.Run {
		t.Errorf("the steps were carried out again, as %s after %s", is.Run, was.Run)
	}

	// Another output, and then another program, do.
	reread(t, c, g.Commit(moduleOf(w, "dmz", say)))
	stepOf(t, c, "app", "first", "True/Succeeded", `has {"zone":"dmz"}`)
	reread(t, c, g.Commit(moduleOf(w, "dmz", "#!/bin/sh\necho no route to the host >&2\nexit 4\n")))
	stepOf(t, c, "app", "first", "False/Failed", "exit code 4: no route to the host")
	s = c.AwaitReason(t, "app", "StepsFailed")
	if !strings.Contains(message(s), "the step first failed: exit code 4: no route to the host") || s.Status.ReconciliationFailures != 0 || !meta.IsStatusConditionTrue(s.Status.Conditions, "Apply") {
		t.Errorf("Ready says %q after %d failures, want the step that failed, and an apply that did not", message(s), s.Status.ReconciliationFailures)
	}
	if got := conditionOf(s, afterapply.ConditionPrefix+"second"); got != "Unknown/Pending" {
		t.Errorf("the step after it is %s, want Pending", got)
	}
	before := afterApplyOf(t, s.Status.Terrier.Memory.Raw).Run
	c.Kubectl(t, "annotate", "terraform.infra.contrib.fluxcd.io/app", "terrier.dev/rerun-steps=once-more")
	c.Await(t, "app", func(s *v1alpha2.Terraform) error {
		if is := afterApplyOf(t, s.Status.Terrier.Memory.Raw); is.Run == before || is.Rerun != "once-more" {
			return fmt.Errorf("the steps were carried out last as %s for %q", is.Run, is.Rerun)
		}
		return testkit.HasReason("StepsFailed")(s)
	})
	reread(t, c, g.Commit(moduleOf(w, "dmz", say)))
	c.AwaitReady(t, "app")
	stepOf(t, c, "app", "second", "True/Succeeded", "")

	// A deletion runs no steps.
	c.Delete(t, "app")
	c.AwaitGone(t, "app")
	if left := w.Things(); len(left) != 0 {
		t.Errorf("the deletion has left %+v", left)
	}
}

// Where plans need an approval, nothing follows that was not approved: neither before the
// apply, nor when the program of a step is another one after it.
func TestStepsNeedTheApprovalOfTheirPlan(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	g := testkit.NewGit(t)
	g.Commit(moduleOf(w, "tenant", "#!/bin/sh\necho as approved\n"))
	c.Apply(t, g.Manifest("code")+"---\n"+followed("app", "interval: 1h", "- name: say\n  command: [bin/say]\n"))
	s := c.AwaitPending(t, "app")
	if got := conditionOf(s, afterapply.ConditionPrefix+"say"); got != "none" || len(w.Things()) != 0 {
		t.Errorf("before the approval the step is %s, and there are %+v", got, w.Things())
	}
	c.Patch(t, "app", `{"spec":{"approvePlan":"`+s.Status.Plan.Pending+`"}}`)
	stepOf(t, c, "app", "say", "True/Succeeded", "as approved")
	c.AwaitReady(t, "app")

	reread(t, c, g.Commit(moduleOf(w, "tenant", "#!/bin/sh\necho hostile\n")))
	s = c.AwaitReason(t, "app", "StepsHeld")
	_, token, found := strings.Cut(message(s), "terrier.dev/rerun-steps=")
	if said := stepOf(t, c, "app", "say", "True/Succeeded", "as approved"); !found || strings.Contains(said, "hostile") {
		t.Fatalf("Ready says %q, and the step %q; want the step held, and a way to run it", message(s), said)
	}
	c.Kubectl(t, "annotate", "terraform.infra.contrib.fluxcd.io/app", "terrier.dev/rerun-steps="+token)
	stepOf(t, c, "app", "say", "True/Succeeded", "hostile")
	c.AwaitReady(t, "app")
}

// TB-10: targets of a monitoring are there after the apply, and gone with the machines.
func TestTargetsOfAMonitoring(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	text := inline("tenant", "approvePlan: auto\ndestroyResourcesOnDeletion: true", things(w, "1", "vm")+"\noutput \"hosts\" { value = { vm = \"10.100.0.10\" } }\n")
	c.Apply(t, strings.Replace(text, "metadata: {name: tenant}", "metadata:\n  name: tenant\n  annotations:\n    terrier.dev/after-apply: |\n      - {name: metrics, targets: {hostsFrom: hosts, port: 9100, labels: {team: a}}}\n", 1))
	stepOf(t, c, "tenant", "metrics", "True/Succeeded", "1 target")
	c.AwaitReady(t, "tenant")
	var written corev1.ConfigMap
	c.Get(t, "tenant-targets", &written)
	if got := written.Data["metrics.json"]; got != `[{"targets":["10.100.0.10:9100"],"labels":{"host":"vm","team":"a"}}]` {
		t.Errorf("the targets are %s, want the host with its labels", got)
	}
	c.Delete(t, "tenant")
	c.AwaitGone(t, "tenant")
	if c.Exists(t, "tenant-targets", &corev1.ConfigMap{}) {
		t.Error("the deletion has left the targets")
	}
}

// A status that is lost has no step run again, and a user can still ask for them.
func TestStepsOutliveTheStatus(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	g := testkit.NewGit(t)
	g.Commit(moduleOf(w, "tenant", "#!/bin/sh\necho ran\n"))
	c.Apply(t, g.Manifest("code")+"---\n"+followed("stack", "approvePlan: auto\ninterval: 1h", "- name: say\n  command: [bin/say]\n"))
	stepOf(t, c, "stack", "say", "True/Succeeded", "ran")
	before := afterApplyOf(t, c.AwaitReady(t, "stack").Status.Terrier.Memory.Raw)

	meddle(t, c, `{"status":null}`)
	c.Terrier(t, "replan", "stack")
	s := c.AwaitReady(t, "stack")
	if is := afterApplyOf(t, s.Status.Terrier.Memory.Raw); is.Run != before.Run || is.Done != before.Done {
		t.Errorf("after the status was lost the steps ran as %s for %s, want as before, %s for %s", is.Run, is.Done, before.Run, before.Done)
	}
	stepOf(t, c, "stack", "say", "True/Succeeded", "ran")
	c.Terrier(t, "steps", "rerun", "stack")
	c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
		if is := afterApplyOf(t, s.Status.Terrier.Memory.Raw); is.Run == before.Run {
			return fmt.Errorf("the steps were run last as %s, before the request", is.Run)
		}
		return testkit.IsReady(s)
	})
}

// operatorOfPrometheus is the definition of ScrapeConfigs, as far as an API server needs it.
const operatorOfPrometheus = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: scrapeconfigs.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {kind: ScrapeConfig, listKind: ScrapeConfigList, plural: scrapeconfigs, singular: scrapeconfig}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// TB-10: the operator of Prometheus finds the targets in an object of its own, which is gone
// with the machines.
func TestTargetsOfTheOperatorOfPrometheus(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	c.Apply(t, operatorOfPrometheus)
	c.Kubectl(t, "wait", "--for=condition=Established", "crd/scrapeconfigs.monitoring.coreos.com", "--timeout=5m")
	text := inline("tenant", "approvePlan: auto\ndestroyResourcesOnDeletion: true", things(w, "1", "vm")+"\noutput \"hosts\" { value = { vm = \"10.100.0.10\" } }\n")
	c.Apply(t, strings.Replace(text, "metadata: {name: tenant}", "metadata:\n  name: tenant\n  annotations:\n    terrier.dev/after-apply: |\n      - {name: metrics, targets: {hostsFrom: hosts, port: 9100, scrapeConfig: {labels: {release: prometheus}}}}\n", 1))
	stepOf(t, c, "tenant", "metrics", "True/Succeeded", "1 target")
	c.AwaitReady(t, "tenant")
	if got := c.Kubectl(t, "get", "scrapeconfigs", "-l", "release=prometheus", "-o", "jsonpath={.items[*].metadata.name} {.items[*].spec.staticConfigs}"); got != `tenant-metrics [{"labels":{"host":"vm"},"targets":["10.100.0.10:9100"]}]` {
		t.Errorf("the ScrapeConfigs are %s, want that of the step, with the host", got)
	}
	c.Delete(t, "tenant")
	c.AwaitGone(t, "tenant")
	if got := c.Kubectl(t, "get", "scrapeconfigs", "-o", "name"); got != "" {
		t.Errorf("the deletion has left %s", got)
	}
}

// A controller and a supervisor that are killed in the middle of a step lose nothing: the
// steps before it are not run again, it is, and the object says so.
func TestKilledInTheMiddleOfAStep(t *testing.T) {
	p, c, w := alone(t)
	gate := newGate(t, p)
	g := testkit.NewGit(t)
	files := moduleOf(w, "tenant", "#!/bin/sh\necho x >> "+gate.begun+"-first\nwc -l < "+gate.begun+"-first\n")
	files["stack/bin/wait"] = "#!/bin/sh\necho begun >> " + gate.begun + "\nread answer < " + gate.pipe + "\nwc -l < " + gate.begun + "\n"
	g.Commit(files)
	c.Apply(t, g.Manifest("code")+"---\n"+followed("app", "approvePlan: auto", "- name: first\n  command: [bin/say]\n- name: gate\n  command: [bin/wait]\n"))
	gate.reached(t)
	stepOf(t, c, "app", "gate", "Unknown/Running", "")
	kill(t, p)
	p.KillSupervisors(t)
	start(t, p)
	stepOf(t, c, "app", "gate", "Unknown/Running", "it was run again, since its run died in the middle of it")
	gate.open(t)
	stepOf(t, c, "app", "gate", "True/Succeeded", "2")
	if said := stepOf(t, c, "app", "first", "True/Succeeded", ""); said != "1" {
		t.Errorf("the step before it says %q, want that it was run once", said)
	}
	c.AwaitReady(t, "app")
}

// TB-08: hosts.yml is written back to the branch of the source, with the credentials of the
// controller alone, and what others wrote stays. A stack that only verifies it fails honestly,
// and is right once its steps run again.
func TestHostsAreWrittenBack(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	g := testkit.NewGit(t)
	g.AllowPush()
	files := func(hosts, yml string) map[string]string {
		return map[string]string{
			"stack/main.tf": things(w, "1", "vm") + "\noutput \"hosts\" { value = " + hosts + " }\n",
			"hosts.yml":     yml,
		}
	}
	const byHand = "# by hand\nall:\n  hosts:\n    old01: {ansible_host: 10.0.0.100} # stays\n"
	g.Commit(files(`{ web01 = "10.0.0.1", db01 = { ip = "10.0.0.2", groups = ["db"] } }`, byHand))
	c.Apply(t, g.Manifest("code")+"---\n"+followed("app", "approvePlan: auto\ndestroyResourcesOnDeletion: true", `
- name: hosts
  inventory: {path: ../hosts.yml, hostsFrom: hosts, mode: commit}
`)+"---\n"+followed("watch", "approvePlan: auto", `
- name: verified
  inventory: {path: ../hosts.yml, hostsFrom: hosts}
`))
	stepOf(t, c, "app", "hosts", "True/Succeeded", "wrote hosts.yml to the branch main: ")
	stepOf(t, c, "watch", "verified", "False/Failed", "+ web01: ansible_host 10.0.0.1")
	text := g.Bare("show", "main:hosts.yml")
	for _, want := range []string{"# by hand", "old01: {ansible_host: 10.0.0.100} # stays", "web01", "10.0.0.2", "/" + c.Namespace + "/app"} {
		if !strings.Contains(text, want) {
			t.Errorf("the file has no %q:\n%s", want, text)
		}
	}
	revision := strings.TrimSpace(g.Bare("rev-parse", "main"))
	reread(t, c, revision)
	c.Await(t, "app", func(s *v1alpha2.Terraform) error { return testkit.IsReady(s) })
	stepOf(t, c, "watch", "verified", "True/Succeeded", "hosts.yml has the 2 hosts of the output hosts")
	if is := strings.TrimSpace(g.Bare("rev-parse", "main")); is != revision {
		t.Errorf("after its own commit Terrier has committed %s over %s", is, revision)
	}

	// A machine that is destroyed vanishes, and what others wrote stays.
	g.Do("pull", "--quiet", "origin", "main")
	reread(t, c, g.Commit(files(`{ web01 = "10.0.0.1" }`, text)))
	stepOf(t, c, "app", "hosts", "True/Succeeded", "wrote hosts.yml to the branch main: ")
	testkit.Eventually(t, testkit.Patience, "db01 vanishes", func(context.Context) error {
		if text := g.Bare("show", "main:hosts.yml"); strings.Contains(text, "db01") || !strings.Contains(text, "# stays") {
			return fmt.Errorf("the file is:\n%s", text)
		}
		return nil
	})

	// So do all of them, once the stack is deleted.
	c.Delete(t, "app")
	c.AwaitGone(t, "app")
	if text := g.Bare("show", "main:hosts.yml"); strings.Contains(text, "web01") || !strings.Contains(text, "# stays") {
		t.Errorf("after the deletion of the stack the file is:\n%s", text)
	}
}
