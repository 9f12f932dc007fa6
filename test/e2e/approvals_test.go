package e2e

import (
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
