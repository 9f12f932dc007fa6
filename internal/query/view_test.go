package query

import (
	"slices"
	"testing"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/identity"
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
