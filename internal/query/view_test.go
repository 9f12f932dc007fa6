package query

import (
	"slices"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/identity"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/stack"
)

// What fails is told beside what was applied, and only as long as it fails.
func TestViewTellsWhatFails(t *testing.T) {
	o := &v1alpha2.Terraform{}
	o.Status.LastAppliedRevision = "main@sha1:good"
	m := stack.Status{Failure: stack.Failure{Failures: 2, FailedFor: stack.PlanInputs{Revision: "main@sha1:bad"}, FailedWith: "no such bucket"}}
	of := func(m stack.Status) *Object {
		return &Object{Object: o, Stack: dialect.Stack{Status: m}, View: infra.Dialect{}.View(o)}
	}
	if s := View(of(m)); s.Revision != "main@sha1:good" || s.FailedRevision != "main@sha1:bad" || s.FailedWith != "no such bucket" {
		t.Errorf("View() has the revisions %q and %q, and %q; want what was applied, what fails and with what", s.Revision, s.FailedRevision, s.FailedWith)
	}
	m.Failures = 0
	if s := View(of(m)); s.FailedRevision+s.FailedWith != "" {
		t.Errorf("View() of a stack that is well has %q, want nothing that fails", s.FailedRevision+s.FailedWith)
	}
}

// What the runs of a stack sign in with is shown for both phases. An annotation that cannot be
// read shows nothing.
func TestIdentitiesOfRuns(t *testing.T) {
	o := &v1alpha2.Terraform{}
	of := func(text string) Stack {
		o.Annotations = map[string]string{identity.Annotation: text}
		return View(&Object{Object: o, View: infra.Dialect{}.View(o)})
	}
	const arn = "arn:aws:iam::123456789012:role/"
	s := of("aws: {role: '" + arn + "apply', planRole: '" + arn + "plan'}\nkubernetes: {server: 'https://k.example.com'}\ntokens: [{name: ci, audience: ci, planAudience: ci-plan}]")
	want := []string{
		"aws: applies " + arn + "apply, audience sts.amazonaws.com; plans " + arn + "plan, audience sts.amazonaws.com",
		"kubernetes: audience https://k.example.com",
		"ci: applies audience ci; plans audience ci-plan",
	}
	var got []string
	for _, i := range s.Identities {
		got = append(got, i.String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("the identities are %q, want %q", got, want)
	}
	told := facts(s, stack.Status{})
	for _, i := range want {
		if !slices.Contains(told, "its runs sign in to "+i) {
			t.Errorf("the facts are %q, want them to have %s", told, i)
		}
	}
	if broken := of("aws: {role: none}"); broken.Identities != nil {
		t.Errorf("an annotation that cannot be read shows %v", broken.Identities)
	}
}

// The users who want a plan to be applied outside of windows are named, and those who may not.
func TestWhoOverridesWindows(t *testing.T) {
	o := &v1alpha2.Terraform{}
	o.Status.Plan.Pending = "p1"
	plan := stack.Plan{Name: "p1", Digest: "d"}
	for want, m := range map[string]stack.Approving{
		"": {},
		"users with update on terraforms/windows may override them for one plan": {Overridable: true},
		"overridden by ann": {Overridable: true, Overrides: []policy.Given{{Plan: "p0", By: "bob"}, {Plan: "p1", By: "ann"}}},
		"overridden by ann; the override of eve does not count, because this user lacks update on terraforms/windows": {Overrides: []policy.Given{{Plan: "p1", By: "ann"}}, Powerless: []string{"eve"}},
		"no override can be verified: the API server does not say it":                                                 {Unproven: "the API server does not say it."},
	} {
		st := dialect.Stack{Status: stack.Status{Plans: stack.Plans{Pending: &plan}}}
		st.Status.Approving = m
		s := View(&Object{Object: o, Stack: st, View: infra.Dialect{}.View(o)})
		switch {
		case want == "":
			if s.Override != nil {
				t.Errorf("a plan that nothing withholds has %+v", s.Override)
			}
		case s.Override == nil || s.Override.Text() != want:
			t.Errorf("the override is %+v, want %q", s.Override, want)
		case !slices.Contains(facts(s, stack.Status{}), "the windows of policies: "+want):
			t.Errorf("the facts are %q, want them to have %q", facts(s, stack.Status{}), want)
		}
	}
}

// Who approved or rejected a plan is shown as verified only if the controller has verified it.
// What an object says may be of any user.
func TestWhetherTheUserOfADecisionIsVerified(t *testing.T) {
	plan := stack.Plan{Name: "p1", Digest: "d"}
	ann := &stack.Decider{Plan: "p1", By: "ann"}
	for name, tt := range map[string]struct {
		by       string // that the object names
		rejected bool
		applied  bool
		decided  *stack.Decider
		want     string // among the facts
	}{
		"verified":              {"ann", false, false, ann, "the plan p1 is approved by ann (verified): "},
		"said by the object":    {"eve", false, false, ann, "the plan p1 is approved by eve (said by the object, not verified): "},
		"before it is verified": {"ann", false, false, nil, "the plan p1 is approved by ann (said by the object, not verified): "},
		"no user":               {"", false, false, nil, "the plan p1 is approved: "},
		"rejected":              {"ann", true, false, ann, "the plan p1 was rejected by ann (verified): no: "},
		"rejected, by its word": {"ann", true, false, nil, "the plan p1 was rejected by ann (said by the object, not verified): no: "},
		"applied":               {"ann", false, true, ann, ", approved by ann (verified)"},
		"applied, by its word":  {"eve", false, true, ann, ", approved by eve (said by the object, not verified)"},
		"applied, and no user":  {"", false, true, nil, ", approved"},
	} {
		o := &v1alpha2.Terraform{}
		o.Annotations = map[string]string{kube.DecidedBy: tt.by, kube.Comment: "no"}
		st := dialect.Stack{Spec: stack.Spec{Mode: stack.Manual}, Status: stack.Status{Answers: stack.Answers{Decider: tt.decided}}}
		if tt.rejected {
			st.Spec.Rejected = "p1"
		} else {
			o.Spec.ApprovePlan, st.Spec.Approved = "p1", "p1"
		}
		if tt.applied {
			st.Status.Applied = &plan
		} else {
			o.Status.Plan.Pending, st.Status.Pending = "p1", &plan
		}
		s := View(&Object{Object: o, Stack: st, View: infra.Dialect{}.View(o)})
		told := facts(s, st.Status)
		if !slices.ContainsFunc(told, func(fact string) bool { return strings.Contains(fact, tt.want) }) {
			t.Errorf("%s: the facts are %q, want %q among them", name, told, tt.want)
		}
		if s.DecidedBy != tt.by || s.DecidedByVerified != (tt.decided != nil && tt.decided.By == tt.by) {
			t.Errorf("%s: decided by %q, verified: %t", name, s.DecidedBy, s.DecidedByVerified)
		}
	}
}

// Of the approvals that a policy asks for, those count as verified that the controller has seen.
func TestWhichApprovalsAreVerified(t *testing.T) {
	a := Approvals{By: []string{"ann", "bob"}, Claimed: []string{"bob"}}
	if got, want := a.Users(), "ann (verified), bob (said by the object, not verified)"; got != want {
		t.Errorf("Users() = %q, want %q", got, want)
	}
	plan := &stack.Plan{Name: "p1", Digest: "d"}
	o := &v1alpha2.Terraform{}
	o.Status.Plan.Pending, o.Spec.ApprovePlan = "p1", "p1"
	st := dialect.Stack{Spec: stack.Spec{Mode: stack.Manual, Approved: "p1", Approvals: []policy.Given{{Plan: "p1", By: "ann"}, {Plan: "p1", By: "bob"}}}}
	st.Status.Pending = plan
	st.Status.Review = &stack.Verdict{Plan: "d", Held: true, Findings: []policy.Finding{{Policy: "p", Effect: policy.Hold, Approval: &policy.Approval{Count: 2}}}}
	st.Status.Approvals = []policy.Given{{Plan: "p1", By: "ann"}}
	s := View(&Object{Object: o, Stack: st, View: infra.Dialect{}.View(o)})
	if s.Approvals == nil || !slices.Equal(s.Approvals.By, a.By) || !slices.Equal(s.Approvals.Claimed, a.Claimed) {
		t.Errorf("the approvals are %+v, want those of ann and bob, of whom bob is not verified", s.Approvals)
	}
}

// An entry of the audit log whose user was not verified says so.
func TestUsersInTheAuditLog(t *testing.T) {
	for want, e := range map[string]AuditEntry{
		"ann":                                    {Who: "ann", Via: "kubectl"},
		"Terrier":                                {Via: "controller"},
		"unknown":                                {Via: "kubectl"},
		"eve (said by the object, not verified)": {Claimed: "eve", Via: "kubectl"},
	} {
		if got := AuditWho(e); got != want {
			t.Errorf("AuditWho() = %q, want %q", got, want)
		}
	}
}
