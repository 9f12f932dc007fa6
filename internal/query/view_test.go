package query

import (
	"testing"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
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
