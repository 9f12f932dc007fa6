package command_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

func TestApprove(t *testing.T) {
	c := newCluster(t)
	for name, tt := range map[string]struct {
		spec    func(*v1alpha2.TerraformSpec)
		pending query.PlanInfo
		want    fault.Kind
		reason  string
	}{
		"the plan that was shown":              {nil, shown, fault.None, ""},
		"another plan waits":                   {nil, query.PlanInfo{Name: "plan-main-0000000000", Digest: "sha256:other"}, fault.Conflict, query.ReasonPlanChanged},
		"another plan waits by the same name":  {nil, query.PlanInfo{Name: shown.Name, Digest: "sha256:other"}, fault.Conflict, query.ReasonPlanChanged},
		"no plan waits":                        {nil, query.PlanInfo{}, fault.Conflict, query.ReasonNoPlan},
		"every plan is applied without asking": {func(s *v1alpha2.TerraformSpec) { s.ApprovePlan = "auto" }, shown, fault.Invalid, query.ReasonNotManual},
		"no plan is ever applied":              {func(s *v1alpha2.TerraformSpec) { s.PlanOnly = true }, shown, fault.Invalid, query.ReasonNotManual},
		"the stack is only watched":            {func(s *v1alpha2.TerraformSpec) { s.ApprovePlan = "disable" }, shown, fault.Invalid, query.ReasonNotManual},
	} {
		t.Run(name, func(t *testing.T) {
			c := c
			c.t = t
			c.spec(func(s *v1alpha2.TerraformSpec) {
				s.ApprovePlan, s.PlanOnly = "", false
				if tt.spec != nil {
					tt.spec(s)
				}
			})
			before := c.object().Spec.ApprovePlan
			c.status(waits(t, tt.pending.Name, tt.pending.Digest))
			_, err := c.stacks(interceptor.Funcs{}).Approve(t.Context(), c.key(), shown, "")
			if fault.Of(err) != tt.want || fault.Reason(err, "") != tt.reason {
				t.Errorf("Approve() is %v, want %s %s", err, tt.want, tt.reason)
			}
			want := shown.Name
			if tt.want != fault.None {
				want = before
			}
			if got := c.object().Spec.ApprovePlan; got != want {
				t.Errorf("approvePlan is %q, want %q", got, want)
			}
		})
	}
}

// Between the look and the edit another plan takes the place: the approval must
// not reach it, though the edit itself would be possible.
func TestApproveNeverReachesAnotherPlan(t *testing.T) {
	c := newCluster(t)
	c.status(waits(t, shown.Name, shown.Digest))
	edited := false
	_, err := c.stacks(interceptor.Funcs{Patch: func(ctx context.Context, k client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		if !edited {
			edited = true
			c.status(waits(t, shown.Name, "sha256:other"))
		}
		return k.Patch(ctx, o, p, opts...)
	}}).Approve(t.Context(), c.key(), shown, "")
	if fault.Of(err) != fault.Conflict || fault.Reason(err, "") != query.ReasonPlanChanged {
		t.Errorf("Approve() is %v, want a conflict about the plan", err)
	}
	if got := c.object().Spec.ApprovePlan; got != "" {
		t.Errorf("approvePlan is %q, want nothing", got)
	}
}

// A change that has nothing to do with the plan does not stand in the way.
func TestApproveSurvivesOtherWrites(t *testing.T) {
	c := newCluster(t)
	c.status(waits(t, shown.Name, shown.Digest))
	writes := 0
	_, err := c.stacks(interceptor.Funcs{Patch: func(ctx context.Context, k client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		if writes < 3 {
			writes++
			c.status(func(s *v1alpha2.TerraformStatus) { s.ReconciliationFailures++ })
		}
		return k.Patch(ctx, o, p, opts...)
	}}).Approve(t.Context(), c.key(), shown, "")
	if err != nil {
		t.Fatal(err)
	}
	if got := c.object().Spec.ApprovePlan; got != shown.Name {
		t.Errorf("approvePlan is %q, want %q", got, shown.Name)
	}
}

func TestReject(t *testing.T) {
	c := newCluster(t)
	c.status(waits(t, shown.Name, shown.Digest))
	s := c.stacks(interceptor.Funcs{})
	if _, err := s.Approve(t.Context(), c.key(), shown, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Reject(t.Context(), c.key(), shown, ""); err != nil {
		t.Fatal(err)
	}
	o := c.object()
	if o.Spec.ApprovePlan != "" || o.Annotations[dialect.Rejected] != shown.Name {
		t.Errorf("approvePlan is %q and rejected %q, want the approval taken back and a note", o.Spec.ApprovePlan, o.Annotations[dialect.Rejected])
	}
	if _, err := s.Approve(t.Context(), c.key(), shown, ""); err != nil {
		t.Fatal(err)
	}
	if note, has := c.object().Annotations[dialect.Rejected]; has {
		t.Errorf("rejected is still %q after an approval", note)
	}
}

// A rejection of a plan that a run applies is noted, and its author is told that it
// came too late.
func TestRejectTooLate(t *testing.T) {
	c := newCluster(t)
	s := c.stacks(interceptor.Funcs{})
	for name, tt := range map[string]struct {
		reason  string
		cancels bool // the hint names terrier cancel
		status  func(*v1alpha2.TerraformStatus)
	}{
		"a run applies it": {query.ReasonTooLate, true, func(s *v1alpha2.TerraformStatus) {
			waits(t, shown.Name, shown.Digest)(s)
			s.Terrier.Run = &v1alpha2.RunStatus{ID: "apply-1", Kind: "apply"}
		}},
		"it was applied": {query.ReasonWasApplied, false, func(s *v1alpha2.TerraformStatus) {
			raw, err := json.Marshal(stack.Status{Resources: stack.Resources{Applied: &stack.Plan{Name: shown.Name, Digest: shown.Digest}, AppliedAt: noon}})
			if err != nil {
				t.Fatal(err)
			}
			s.Plan.Pending, s.Terrier = "", &v1alpha2.TerrierStatus{Phase: "Applied", Memory: &apiextensionsv1.JSON{Raw: raw}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := c
			c.t = t
			c.status(tt.status)
			c.spec(func(s *v1alpha2.TerraformSpec) { s.ApprovePlan = shown.Name })
			_, err := s.Reject(t.Context(), c.key(), shown, "no, wait")
			if fault.Of(err) != fault.Conflict || fault.Reason(err, "") != tt.reason {
				t.Errorf("Reject() is %v, want a conflict: %s", err, tt.reason)
			}
			if hint := command.Hint(err); strings.Contains(hint, "terrier cancel") != tt.cancels || hint == "" {
				t.Errorf("Hint() is %q, want it to name terrier cancel: %v", hint, tt.cancels)
			}
			if o := c.object(); o.Annotations[dialect.Rejected] != shown.Name || o.Annotations[dialect.Comment] != "no, wait" {
				t.Errorf("the annotations are %v, want the rejection for the audit log", o.Annotations)
			}
		})
	}
}

// A second approval of a plan that was applied meanwhile is told so.
func TestPendingOfAnAppliedPlan(t *testing.T) {
	s := query.Stack{Namespace: "apps", Name: "net", Approved: shown.Name, DecidedBy: "ann", Applied: &shown, AppliedAt: noon}
	if got, err := command.Pending(s, shown.Name); err != nil || got.Digest != shown.Digest {
		t.Errorf("Pending() of its name is %+v, %v; want the plan", got, err)
	}
	_, err := command.Pending(s, "")
	if want := "the plan plan-main-b8e362c206 was approved by ann (said by the object, not verified), and was applied at "; fault.Reason(err, "") != query.ReasonNoPlan || !strings.Contains(err.Error(), want) {
		t.Errorf("Pending() is %v, want %q", err, want)
	}
	if _, err := command.Pending(s, "plan-main-0"); fault.Reason(err, "") != query.ReasonNoPlan {
		t.Errorf("Pending() of another plan is %v, want that there is none", err)
	}
}

// A user who has the right has one plan applied outside of windows. It is approved if it needs an
// approval, and a stack that is automatic stays so.
func TestAWindowIsOverriddenByThoseWhoMay(t *testing.T) {
	c := newCluster(t)
	people, err := command.NewPeople(c.Config, kinds.All(), nil, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	bind(t, c.Cluster, "edits", rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: "ann"}, editStacks)
	bind(t, c.Cluster, "edits-too", rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: "eve"}, editStacks)
	windows := rbacv1.PolicyRule{APIGroups: []string{"infra.contrib.fluxcd.io"}, Resources: []string{"terraforms/windows"}, Verbs: []string{"update"}}
	bind(t, c.Cluster, "overrides", rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: "ann"}, windows)
	override := func(user string) error {
		person, err := people.As(access.User{Name: user, Groups: []string{"system:authenticated"}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = person.Stacks.OverrideWindow(t.Context(), c.key(), shown, "incident")
		return err
	}
	c.status(waits(t, shown.Name, shown.Digest))
	if err := settled(func() error { return override("ann") })(); err != nil {
		t.Fatalf("ann, who may: %v", err)
	}
	if o := c.object(); o.Spec.ApprovePlan != shown.Name || !strings.HasPrefix(o.Annotations[dialect.OverrideWindow], shown.Name+" ") {
		t.Errorf("approvePlan is %q with %v, want the plan approved and overridden", o.Spec.ApprovePlan, o.Annotations)
	}
	if err := override("eve"); fault.Reason(err, "") != access.ReasonAccessDenied || !strings.Contains(err.Error(), "update on terraforms/windows in the namespace "+c.Namespace) {
		t.Errorf("eve, who may only edit: %v", err)
	}
	c.spec(func(s *v1alpha2.TerraformSpec) { s.ApprovePlan = "auto" })
	if err := override("ann"); err != nil {
		t.Fatal(err)
	}
	if o := c.object(); o.Spec.ApprovePlan != "auto" || o.Annotations[dialect.Confirm] != "" || !strings.HasPrefix(o.Annotations[dialect.OverrideWindow], shown.Name+" ") {
		t.Errorf("approvePlan is %q with %v, want an automatic stack that needs no approval", o.Spec.ApprovePlan, o.Annotations)
	}
	c.spec(func(s *v1alpha2.TerraformSpec) { s.ApprovePlan = "disable" })
	if err := override("ann"); fault.Reason(err, "") != query.ReasonNotManual {
		t.Errorf("a stack that applies nothing: %v", err)
	}
}

// A stack that applies plans by itself waits for an approval of a plan that a reviewer holds,
// and of changes that come back. It is taken then.
func TestApproveIsTakenWhereAnAutomaticStackWaits(t *testing.T) {
	c := newCluster(t)
	plan := stack.Plan{Name: shown.Name, Digest: shown.Digest, Addresses: "a"}
	for name, status := range map[string]stack.Status{
		"a reviewer holds the plan":  {Plans: stack.Plans{Pending: &plan, Review: &stack.Verdict{Plan: shown.Digest, Held: true}}},
		"the same changes come back": {Plans: stack.Plans{Pending: &plan}, Resources: stack.Resources{Recurrence: &stack.Recurrence{Key: plan.RecurrenceKey(), Applies: 3}}},
	} {
		t.Run(name, func(t *testing.T) {
			c := c
			c.t = t
			c.spec(func(s *v1alpha2.TerraformSpec) { s.ApprovePlan = "auto" })
			c.status(func(s *v1alpha2.TerraformStatus) {
				raw, err := json.Marshal(status)
				if err != nil {
					t.Fatal(err)
				}
				s.Plan.Pending = shown.Name
				s.Terrier = &v1alpha2.TerrierStatus{Memory: &apiextensionsv1.JSON{Raw: raw}}
			})
			if _, err := c.stacks(interceptor.Funcs{}).Approve(t.Context(), c.key(), shown, ""); err != nil || c.object().Spec.ApprovePlan != "auto" || !strings.HasPrefix(c.object().Annotations[dialect.Confirm], shown.Name+" ") {
				t.Errorf("Approve() is %v, approvePlan %q with %v, want it approved and automatic", err, c.object().Spec.ApprovePlan, c.object().Annotations)
			}
		})
	}
}
