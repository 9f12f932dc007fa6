package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// reviewed is a stack out of git whose plans a person approves.
const reviewed = `---
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: reviewed}
spec:
  interval: 1h
  path: ./stack
  sourceRef: {kind: GitRepository, name: code}
  varsFrom: [{kind: Secret, name: inputs}]
`

func reviewedModule(w *testkit.World) map[string]string {
	return map[string]string{"stack/main.tf": w.HCL() + `
variable "greeting" {}
resource "world_thing" "a" {
  name  = "a"
  value = var.greeting
}
`}
}

// P3: what was approved is what is applied.
func TestApprovalIsOfOnePlan(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	g := testkit.NewGit(t)
	hash := g.Commit(reviewedModule(w))
	c.PutSecret(t, "inputs", map[string]string{"greeting": "reviewed"})
	c.Apply(t, g.Manifest("code")+reviewed)
	s := c.AwaitPending(t, "reviewed")
	name := "plan-main-" + hash[:10]
	if s.Status.Plan.Pending != name {
		t.Fatalf("the plan is called %q, want %q", s.Status.Plan.Pending, name)
	}
	if got, want := message(s), `Plan generated: set approvePlan: "`+name+`" to approve this plan.`; got != want {
		t.Errorf("the message is %q, want %q", got, want)
	}

	for _, other := range []string{"plan-main", "plan-main-" + hash, "plan-main-0123456789", "yes"} {
		t.Run("not by "+other, func(t *testing.T) {
			c.Patch(t, "reviewed", `{"spec":{"approvePlan":"`+other+`"}}`)
			s := c.AwaitPending(t, "reviewed")
			if !strings.Contains(message(s), "not this plan") || len(w.Things()) != 0 {
				t.Errorf("approvePlan: %s is answered with %q, and the world holds %+v", other, message(s), w.Things())
			}
		})
	}

	t.Run("not after its inputs changed", func(t *testing.T) {
		c.PutSecret(t, "inputs", map[string]string{"greeting": "other"})
		changed := c.Await(t, "reviewed", pendingOther(name))
		c.Patch(t, "reviewed", `{"spec":{"approvePlan":"`+name+`"}}`)
		s := c.Await(t, "reviewed", func(s *v1alpha2.Terraform) error { return testkit.HasReason("TerraformPlannedWithChanges")(s) })
		if s.Status.Plan.Pending != changed.Status.Plan.Pending || len(w.Things()) != 0 {
			t.Errorf("the old approval led to the plan %q and the world %+v", s.Status.Plan.Pending, w.Things())
		}
		for _, want := range []string{"inputs changed", "not this plan"} {
			if !strings.Contains(message(s), want) {
				t.Errorf("the message is %q, want it to say %q", message(s), want)
			}
		}
	})

	t.Run("by its name", func(t *testing.T) {
		pending := c.Stack(t, "reviewed").Status.Plan.Pending
		c.Patch(t, "reviewed", `{"spec":{"approvePlan":"`+pending+`"}}`)
		s := c.AwaitReady(t, "reviewed")
		all := w.Named("a")
		if len(all) != 1 || *all[0].Value != "other" || s.Status.Plan.LastApplied != pending || s.Status.Plan.Pending != "" {
			t.Errorf("the world holds %+v and the status %+v, want exactly the plan %s applied", all, s.Status.Plan, pending)
		}
		if want := "main@sha1:" + hash; s.Status.LastAppliedRevision != want {
			t.Errorf("the revision is %q, want %q", s.Status.LastAppliedRevision, want)
		}
	})
}

// An approval that is written before the Secret changes is void when it is read
// after.
func TestApprovalIsVoidOnceInputsChange(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	g := testkit.NewGit(t)
	g.Commit(reviewedModule(w))
	c.PutSecret(t, "inputs", map[string]string{"greeting": "reviewed"})
	c.Apply(t, g.Manifest("code")+reviewed)
	name := c.AwaitPending(t, "reviewed").Status.Plan.Pending
	c.Patch(t, "reviewed", `{"spec":{"suspend":true}}`)
	c.Patch(t, "reviewed", `{"spec":{"approvePlan":"`+name+`"}}`)
	c.PutSecret(t, "inputs", map[string]string{"greeting": "NOT-REVIEWED"})
	c.Patch(t, "reviewed", `{"spec":{"suspend":false}}`)
	s := c.Await(t, "reviewed", pendingOther(name))
	if len(w.Things()) != 0 || !strings.Contains(message(s), "inputs changed") {
		t.Errorf("the world holds %+v, and the message is %q", w.Things(), message(s))
	}
}

// F39: what is asked for now decides, once the apply that goes on is over.
func TestChangeDuringApplyIsPlannedAfterIt(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	w.Fault(testkit.WorldFault{Call: "create", Name: "a", Do: "hold", Times: 1})
	c.Apply(t, inline("stack", "approvePlan: auto", things(w, "first", "a")))
	w.Await(t.Context(), begun("create", "a"))
	c.Apply(t, inline("stack", "approvePlan: auto", things(w, "second", "a")))
	w.Fault()
	c.AwaitReady(t, "stack")
	if all := w.Named("a"); len(all) != 1 || *all[0].Value != "second" {
		t.Errorf("the world holds %+v, want one thing as it was asked for last", all)
	}
	if open := w.Overlaps(); len(open) > 0 {
		t.Errorf("writers overlap: %v", open)
	}
}

// pendingOther waits for a plan that is not called name.
func pendingOther(name string) func(*v1alpha2.Terraform) error {
	return func(s *v1alpha2.Terraform) error {
		if p := s.Status.Plan.Pending; p == "" || p == name {
			return errNot("another plan pending than " + name)
		}
		return testkit.HasReason("TerraformPlannedWithChanges")(s)
	}
}

type errNot string

func (e errNot) Error() string { return "there is not " + string(e) }

// message is that of the Ready condition.
func message(s *v1alpha2.Terraform) string {
	if c := meta.FindStatusCondition(s.Status.Conditions, "Ready"); c != nil {
		return c.Message
	}
	return ""
}

// A rejection that comes too late says so; one that comes in time holds. No rejection is
// taken and the plan applied all the same.
func TestRejectionRightAfterAnApproval(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	p := platform(t)
	w := p.World(t)
	g := newGate(t, p)
	c.Apply(t, inline("stack", "interval: 1h", g.held(w, "a")))
	pending := c.AwaitPending(t, "stack").Status.Plan.Pending

	c.Terrier(t, "approve", "stack", pending)
	said := c.TryTerrier(t, "reject", "stack", pending, "-m", "no, wait")
	if said.Code == 0 {
		s := c.AwaitReason(t, "stack", "PlanRejected")
		if len(w.Things()) != 0 || !strings.Contains(message(s), "no, wait") {
			t.Errorf("the plan was rejected, the world holds %+v, and the message is %q", w.Things(), message(s))
		}
		c.Terrier(t, "approve", "stack", pending)
	} else if said.Code != 5 || !strings.Contains(said.Stderr, "too late") {
		t.Errorf("reject exits with %d and says %q, want 5 and that it came too late", said.Code, said.Stderr)
	}
	g.reached(t)

	// The apply goes on for certain.
	late := c.TryTerrier(t, "reject", "stack", pending)
	if late.Code != 5 || !strings.Contains(late.Stderr, "applies the plan "+pending+" already") {
		t.Errorf("reject during the apply exits with %d and says %q, want 5 and the run", late.Code, late.Stderr)
	}
	if again := c.TryTerrier(t, "approve", "stack"); again.Code != 0 || !strings.Contains(again.Stdout, "applies the plan "+pending) {
		t.Errorf("approve during the apply exits with %d and says %q%q", again.Code, again.Stdout, again.Stderr)
	}
	g.open(t)
	c.AwaitReady(t, "stack")
	made(t, w, "a")
	after := c.TryTerrier(t, "reject", "stack", pending)
	if after.Code != 5 || !strings.Contains(after.Stderr, "was applied at ") {
		t.Errorf("reject after the apply exits with %d and says %q, want 5 and that the plan was applied", after.Code, after.Stderr)
	}
	if again := c.TryTerrier(t, "approve", "stack", pending); again.Code != 0 || !strings.Contains(again.Stdout, "Nothing is pending: the plan "+pending) {
		t.Errorf("approve after the apply exits with %d and says %q%q", again.Code, again.Stdout, again.Stderr)
	}
	testkit.Eventually(t, testkit.Patience, "the audit log has the rejection that came too late", func(context.Context) error {
		if !slices.ContainsFunc(auditLog(t, p, c.Namespace), func(e audit.Entry) bool { return e.What == audit.RejectedLate && e.Plan == pending }) {
			return errNot("the rejection")
		}
		return nil
	})
}

// Lists and explanations show a rejection.
func TestRejectionIsShown(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	c.Apply(t, inline("stack", "interval: 1h", things(w, "x", "a")))
	pending := c.AwaitPending(t, "stack").Status.Plan.Pending
	c.Terrier(t, "reject", "stack", "-m", "not on a Friday")
	s := c.AwaitReason(t, "stack", "PlanRejected")
	if s.Status.Terrier.Phase != "PlanRejected" {
		t.Errorf("the phase is %s, want the rejection", s.Status.Terrier.Phase)
	}
	found(t, c, "terrier.dev/pending-plan=true")
	for command, want := range map[string]string{
		"get":      pending + " +1 ~0 -0 (rejected)",
		"describe": pending + " was rejected",
		"explain":  "not on a Friday",
	} {
		if said := c.Terrier(t, command, "stack"); !strings.Contains(said, want) {
			t.Errorf("terrier %s says %q, want %q", command, said, want)
		}
	}
	c.Terrier(t, "approve", "stack", pending)
	c.AwaitReady(t, "stack")
	made(t, w, "a")
}
