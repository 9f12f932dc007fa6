package e2e

import (
	"context"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// member is a client of a user in groups, who may do everything.
func member(t *testing.T, c *testkit.Cluster, user string, groups ...string) client.Client {
	t.Helper()
	config := rest.CopyConfig(c.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append([]string{"system:masters"}, groups...)}
	as, err := client.New(config, client.Options{Scheme: c.Client.Scheme(), Mapper: c.Client.RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	return as
}

// A user whom the policy lets do so has one plan applied in a freeze. A user who lacks the right
// does not, and the stack says so. The next plan waits again.
func TestAPlanInAFreeze(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	policed(t, c, "guards: {freezes: [{from: '2020-01-01T00:00:00Z', to: '2099-01-01T00:00:00Z'}], windowOverride: {count: 2}}")
	spec := "approvePlan: auto\ninterval: 1h"
	c.Apply(t, inline("stack", spec, things(w, "1", "a")))
	told := func(text string) *v1alpha2.Terraform {
		t.Helper()
		return c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
			if !strings.Contains(message(s), text) {
				return errNot("told " + text + ": " + message(s))
			}
			return nil
		})
	}
	plan := told("A user with update on terraforms/windows may have it applied now, which needs 2 approvals").Status.Plan.Pending
	c.Apply(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: changes-stacks}
rules: [{apiGroups: [infra.contrib.fluxcd.io], resources: [terraforms], verbs: [get, patch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: eve-changes-stacks}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: changes-stacks}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: eve}]
`)
	override := func(as client.Client, value string) {
		t.Helper()
		text := `{"metadata":{"annotations":{"terrier.dev/override-window":"` + value + `"}}}`
		testkit.Eventually(t, testkit.Patience, "the API server knows the role", func(ctx context.Context) error {
			return as.Patch(ctx, c.Stack(t, "stack"), client.RawPatch("application/merge-patch+json", []byte(text)))
		})
	}
	config := rest.CopyConfig(c.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "eve"}
	eve, err := client.New(config, client.Options{Scheme: c.Client.Scheme(), Mapper: c.Client.RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	override(eve, plan+" of eve")
	told("the override of eve does not count: this user lacks update on terraforms/windows")
	if out := c.Terrier(t, "approve", "stack", plan, "--override-window", "-m", "incident 4711"); !strings.Contains(out, "Recorded that "+plan+" is to be applied outside of the windows of policies.") {
		t.Errorf("the command says:\n%s", out)
	}
	told("which needs 2 approvals, has 1: of ")
	if out := c.Terrier(t, "explain", "stack"); !strings.Contains(out, "the windows of policies: overridden by ") || !strings.Contains(out, "the override of eve does not count") {
		t.Errorf("terrier explain says:\n%s", out)
	}
	if len(w.Things()) != 0 {
		t.Fatalf("there are %v, want no resource yet", w.Things())
	}
	override(member(t, c, "bob"), plan+" of bob")
	c.AwaitReady(t, "stack")
	log := c.Terrier(t, "audit", "list", "--stack", c.Namespace+"/stack", "--what", "window-overridden")
	if strings.Count(log, plan) != 3 || !strings.Contains(log, "bob") || !strings.Contains(log, "eve") {
		t.Errorf("the audit log does not have each user once:\n%s", log)
	}
	if out := c.Terrier(t, "audit", "list", "--stack", c.Namespace+"/stack", "--what", "apply-started", "-o", "json"); !strings.Contains(out, `"window-overridden-by"`) || strings.Contains(out, "eve") {
		t.Errorf("the entry of the apply does not say who overrode the windows:\n%s", out)
	}
	c.Apply(t, inline("stack", spec, things(w, "1", "a", "b")))
	told("which needs 2 approvals: run terrier approve")
	if len(w.Named("b")) != 0 {
		t.Error("the next plan was applied in the freeze")
	}
}

// A user who may write the status passes no policy by that: the policies are asked again, and
// the plan waits.
func TestAStatusIsNoVerdict(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	name := policed(t, c, "guards: {maxDestroys: 0}")
	c.Apply(t, inline("stack", "approvePlan: auto\ninterval: 1h", things(w, "1", "keep", "gone")))
	c.AwaitReady(t, "stack")
	c.Apply(t, inline("stack", "approvePlan: auto\ninterval: 1h", things(w, "1", "keep")))
	c.Await(t, "stack", heldBy(name))
	for what, forged := range map[string]string{
		"a verdict that passes": `{"passed":true,"held":null,"findings":null,"digest":null,"message":null}`,
		"another approval":      `{"findings":[{"policy":"p","rule":"r","effect":"warn","message":"m"}],"held":false,"passed":true}`,
	} {
		if err := c.Client.Status().Patch(t.Context(), c.Stack(t, "stack"), client.RawPatch("application/merge-patch+json", []byte(`{"status":{"terrier":{"review":`+forged+`}}}`))); err != nil {
			t.Fatal(err)
		}
		c.Patch(t, "stack", `{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"`+what+`"}}}`) // a status wakes no stack
		s := c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
			if s.Status.LastHandledReconcileAt != what {
				return errNot("reconciled")
			}
			return heldBy(name)(s)
		})
		if s.Status.Plan.Pending == "" || len(w.Named("gone")) != 1 {
			t.Fatalf("%s: the plan is %q, and there are %v; want the resource to stay", what, s.Status.Plan.Pending, w.Things())
		}
	}
	plan := c.Stack(t, "stack").Status.Plan.Pending
	if plan == "" {
		t.Fatal("no plan is pending")
	}
	c.Terrier(t, "approve", "stack", plan)
	c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
		if len(w.Named("gone")) != 0 {
			return errNot("destroyed yet")
		}
		return testkit.IsReady(s)
	})
}

// A stack that is automatic stays so when users approve one plan of it, each with the same
// command. The command says what is still needed, and the audit log has each of them once.
func TestAnApprovalBesideAuto(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	name := policed(t, c, "guards: {maxDestroys: 0}\napproval: {count: 2}")
	spec := "approvePlan: auto\ninterval: 1h"
	c.Apply(t, inline("stack", spec, things(w, "1", "a", "b", "c")))
	c.AwaitReady(t, "stack")
	c.Apply(t, inline("stack", spec, things(w, "1", "a", "b")))
	plan := c.Await(t, "stack", heldBy(name)).Status.Plan.Pending

	if out := c.Terrier(t, "approve", "stack", plan); !strings.Contains(out, ". 1 of 2; still needed: 1 approval.") || !strings.Contains(out, "The next user runs: terrier approve stack "+plan) {
		t.Errorf("the first approval says:\n%s", out)
	}
	s := c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
		if !strings.Contains(message(s), "has 1: of ") || !strings.Contains(message(s), "The next user runs: terrier approve stack "+plan) {
			return errNot("told: " + message(s))
		}
		return nil
	})
	if s.Spec.ApprovePlan != "auto" || len(w.Named("c")) != 1 {
		t.Errorf("approvePlan is %q, and there are %v", s.Spec.ApprovePlan, w.Things())
	}
	c.Terrier(t, "approve", "stack", plan) // the same user again
	if err := member(t, c, "bob").Patch(t.Context(), c.Stack(t, "stack"), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"terrier.dev/confirm":"`+plan+` of bob"}}}`))); err != nil {
		t.Fatal(err)
	}
	s = c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
		if len(w.Named("c")) != 0 {
			return errNot("destroyed yet")
		}
		return testkit.IsReady(s)
	})
	if s.Spec.ApprovePlan != "auto" {
		t.Errorf("approvePlan is %q after the apply, want auto", s.Spec.ApprovePlan)
	}
	log := c.Terrier(t, "audit", "list", "--stack", c.Namespace+"/stack", "--what", "approved")
	if strings.Count(log, plan) != 2 || !strings.Contains(log, "bob") {
		t.Errorf("the audit log does not have each approval once:\n%s", log)
	}
	if out := c.Terrier(t, "audit", "list", "--stack", c.Namespace+"/stack", "-o", "json"); !strings.Contains(out, `"approved-by"`) {
		t.Errorf("no entry says who approved the plan that was applied:\n%s", out)
	}
	c.Apply(t, inline("stack", spec, things(w, "1", "a", "b", "d"))) // which no policy holds
	c.Await(t, "stack", func(*v1alpha2.Terraform) error {
		if len(w.Named("d")) != 1 {
			return errNot("created yet")
		}
		return nil
	})
}

// Steps that changed after the plan that was applied wait for the users whom the policy asks for,
// and run once these approved them.
func TestStepsThatAPolicyWantsApproved(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	policed(t, c, "guards: {maxDestroys: 5}\napproval: {count: 2}")
	g := testkit.NewGit(t)
	g.Commit(moduleOf(w, "tenant", "#!/bin/sh\necho as planned\n"))
	c.Apply(t, g.Manifest("code")+"---\n"+followed("stack", "approvePlan: auto\ninterval: 1h", "- name: say\n  command: [bin/say]\n"))
	stepOf(t, c, "stack", "say", "True/Succeeded", "as planned")
	c.AwaitReady(t, "stack")

	reread(t, c, g.Commit(moduleOf(w, "tenant", "#!/bin/sh\necho changed since\n")))
	if s := c.AwaitReason(t, "stack", "StepsHeld"); !strings.Contains(message(s), "needs 2 approvals. A user who approves runs: terrier steps rerun stack --steps ") {
		t.Errorf("the stack says %q, want what the steps need", message(s))
	}
	c.Terrier(t, "steps", "rerun", "stack")
	s := c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
		if !strings.Contains(message(s), "needs 2 approvals, has 1: of ") {
			return errNot("told of the approval: " + message(s))
		}
		return nil
	})
	stepOf(t, c, "stack", "say", "True/Succeeded", "as planned")
	word, _, _ := strings.Cut(s.Annotations["terrier.dev/confirm"], " ")
	if err := member(t, c, "bob").Patch(t.Context(), c.Stack(t, "stack"), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"terrier.dev/confirm":"`+word+` of bob"}}}`))); err != nil {
		t.Fatal(err)
	}
	stepOf(t, c, "stack", "say", "True/Succeeded", "changed since")
	c.AwaitReady(t, "stack")
	log := c.Terrier(t, "audit", "list", "--stack", c.Namespace+"/stack", "--what", "approved", "-o", "json")
	if strings.Count(log, `"steps"`) != 2 || !strings.Contains(log, `"bob"`) {
		t.Errorf("the audit log does not have both approvals of the steps:\n%s", log)
	}
}
