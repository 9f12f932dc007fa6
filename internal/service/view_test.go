package service

import (
	"testing"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/stack"
)

// What fails is told beside what was applied, and only as long as it fails.
func TestViewTellsWhatFails(t *testing.T) {
	o := &v1alpha2.Terraform{}
	o.Status.LastAppliedRevision = "main@sha1:good"
	m := stack.Memory{Failures: 2, FailedFor: stack.Basis{Revision: "main@sha1:bad"}}
	if s := viewOf(o, dialect.Stack{Memory: m}); s.Revision != "main@sha1:good" || s.FailedRevision != "main@sha1:bad" {
		t.Errorf("viewOf() has the revisions %q and %q, want what was applied and what fails", s.Revision, s.FailedRevision)
	}
	m.Failures = 0
	if s := viewOf(o, dialect.Stack{Memory: m}); s.FailedRevision != "" {
		t.Errorf("viewOf() of a stack that is well has %q, want nothing that fails", s.FailedRevision)
	}
}
