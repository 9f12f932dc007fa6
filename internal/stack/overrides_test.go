package stack

import (
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/policy"
)

// frozen is a stack whose plan p1 is withheld by a freeze that users may override.
func frozen(mode Mode, approved string) Observation {
	o := judged(mode, approved)
	o.Spec.Words.Argument = "net"
	o.Spec.Times.Freezes = []policy.Freeze{{Policy: "ClusterPolicy/f", From: o.Now.Add(-time.Hour), To: o.Now.Add(time.Hour), Override: &policy.Approval{Groups: []string{"ops"}}}}
	return o
}

// overriddenBy has users of the group ops override the windows for a plan.
func overriddenBy(o Observation, plan string, users ...string) Observation {
	o.Spec.OverridesWindow = plan + " now"
	for _, u := range users {
		o.Spec.Overrides = append(o.Spec.Overrides, policy.Given{Plan: plan, By: u, Groups: []string{"ops"}})
	}
	o.Status.Overrides = Approvers{}.WithStamps(o.Status, o.Spec, o.Now).Overrides
	return o
}

// A user may have exactly one plan applied in a freeze, if the policy lets the user do so.
func TestOverridesOfAFreeze(t *testing.T) {
	const offer = " A user with update on terraforms/windows may have it applied now, which needs 1 approval by a member of ops: run terrier approve net p1 --override-window."
	for name, tt := range map[string]struct {
		o      Observation
		reason Reason
		says   string
	}{
		"no user yet":      {frozen(Auto, "auto"), ApplyWithheld, offer},
		"a user":           {overriddenBy(frozen(Auto, "auto"), "p1", "ann"), Applying, ""},
		"of another plan":  {overriddenBy(frozen(Auto, "auto"), "p0", "ann"), ApplyWithheld, offer},
		"of its digest":    {overriddenBy(frozen(Auto, "auto"), frozen(Auto, "auto").Status.Pending.Approvable(), "ann"), Applying, ""},
		"and not approved": {overriddenBy(frozen(Manual, ""), "p1", "ann"), AwaitingApproval, ""},
		"and approved":     {overriddenBy(frozen(Manual, "p1"), "p1", "ann"), Applying, ""},
		"taken back": {func() Observation {
			o := overriddenBy(frozen(Auto, "auto"), "p1", "ann")
			o.Spec.OverridesWindow = ""
			return o
		}(), ApplyWithheld, offer},
		"without the right": {func() Observation {
			o := overriddenBy(frozen(Auto, "auto"), "p1")
			o.Status.Powerless = []string{"eve"}
			return o
		}(), ApplyWithheld, "; the override of eve does not count: this user lacks update on terraforms/windows: run terrier approve net p1 --override-window."},
		"not proven": {func() Observation {
			o := overriddenBy(frozen(Auto, "auto"), "p1", "ann")
			o.Status.Unproven = "the API server does not record it."
			return o
		}(), ApplyWithheld, " No override of this can be verified: the API server does not record it."},
		"another policy lets no user": {func() Observation {
			o := overriddenBy(frozen(Auto, "auto"), "p1", "ann")
			o.Spec.Times.Windows = []policy.Windows{{Policy: "ClusterPolicy/w"}}
			return o
		}(), ApplyWithheld, " The override of ann does not suffice: no user may override what withholds the plan."},
		"the destroys of the hour": {func() Observation {
			o := overriddenBy(frozen(Auto, "auto"), "p1", "ann")
			o.Spent = policy.Withheld{Policy: "ClusterPolicy/h", Rule: policy.MaxDestroysPerHour, Why: "w"}
			return o
		}(), ApplyWithheld, "No time is known"},
		"a destroy that is not planned": {func() Observation {
			o := overriddenBy(frozen(Auto, "auto"), "p1", "ann")
			o.Deleting, o.Spec.DestroyLast, o.Status.Created, o.Spec.Policies, o.Spec.ApproveDestroy = true, true, true, "", false
			return o
		}(), ApplyWithheld, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if d := Decide(tt.o); d.Reason != tt.reason || !strings.HasSuffix(d.Message, tt.says) && !strings.Contains(d.Message, tt.says) {
				t.Errorf("Decide() = %s: %s\nwant %s: …%s", d.Reason, d.Message, tt.reason, tt.says)
			}
		})
	}
	o := overriddenBy(frozen(Auto, "auto"), "p1", "ann")
	if by := Overrode(o); len(by) != 1 || by[0] != "ann" {
		t.Errorf("Overrode() = %q, want ann", by)
	}
	if o.Now = o.Now.Add(2 * time.Hour); Overrode(o) != nil || WantsOverride(o) {
		t.Error("an override is named although nothing withholds the plan")
	}
	if next := Reviewed(Status{Plans: Plans{Pending: &Plan{Name: "p1", Digest: "d"}}}, judgedBy(holdsIt), o.Spec.ApprovedNames()...); next.Pending.Name == "p1" {
		t.Error("a plan that was overridden before its verdict keeps its name")
	}
}

// The object may name another plan now, and this one again later: the stamps of a name that
// was approved are no approval of a plan that gets this name.
func TestNamesOfFormerApprovals(t *testing.T) {
	s := Spec{Mode: Auto, Approvals: []policy.Given{{Plan: "p1", By: "ann"}}}
	if got := (Status{}).NameFor("p1", "p1-long", "d9", s.ApprovedNames()...); got != "p1-long" {
		t.Errorf("NameFor() = %s, want no name that a user has approved", got)
	}
}
