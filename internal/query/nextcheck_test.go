package query

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/fault"
)

// lastChecks are records of nothing but drift checks.
type lastChecks struct {
	Records
	is  DriftCheck
	err error
}

func (c lastChecks) NextCheck(context.Context, StackID) (DriftCheck, error) { return c.is, c.err }

// What the record says of the next check is shown as long as it is so: a plan or an apply begins
// another interval, and a suspended stack is not checked.
func TestTheNextCheckIsShownWhileItIsSo(t *testing.T) {
	last := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	usual := DriftCheck{Last: last, Next: last.Add(time.Hour)}
	waits := DriftCheck{Last: last, Next: last.Add(time.Hour), Why: "the check waits for a budget"}
	for name, tt := range map[string]struct {
		is     DriftCheck
		change func(*Object)
		want   DriftCheck
		fact   string
	}{
		"a stack that is checked at its interval": {usual, func(*Object) {}, usual, ""},
		"one that was applied since":              {usual, func(o *Object) { o.Status.AppliedAt = last.Add(time.Minute) }, DriftCheck{Last: last}, ""},
		"one that was planned since":              {usual, func(o *Object) { o.Status.PlannedAt = last.Add(time.Minute) }, DriftCheck{Last: last}, ""},
		"one that waits for a budget":             {waits, func(o *Object) { o.Status.PlannedAt = last.Add(time.Minute) }, waits, "drift is checked next at 2026-03-01T01:00:00Z: the check waits for a budget"},
		"one that is suspended":                   {waits, func(o *Object) { o.Spec.Suspended = true }, DriftCheck{Last: last}, ""},
	} {
		s := New(nil, kinds.All(), lastChecks{is: tt.is}, time.Now)
		o := &Object{Object: &v1alpha2.Terraform{}}
		tt.change(o)
		got, err := s.nextCheck(t.Context(), o)
		if diff := cmp.Diff(got, tt.want); diff != "" || err != nil {
			t.Errorf("%s (-got +want): %v\n%s", name, err, diff)
		}
		if fact := s.nextCheckFact(t.Context(), o); fact != tt.fact {
			t.Errorf("%s: the fact is %q, want %q", name, fact, tt.fact)
		}
	}
	unknown := New(nil, kinds.All(), lastChecks{err: fault.New(fault.Missing, "NotChecked", errors.New("no drift check is known"))}, time.Now)
	if fact := unknown.nextCheckFact(t.Context(), &Object{Object: &v1alpha2.Terraform{}}); fact != "" {
		t.Errorf("of a stack that was never checked it is said %q", fact)
	}
	broken := New(nil, kinds.All(), lastChecks{err: context.DeadlineExceeded}, time.Now)
	if fact := broken.nextCheckFact(t.Context(), &Object{Object: &v1alpha2.Terraform{}}); !strings.HasPrefix(fact, "it is not known when drift is checked next: ") {
		t.Errorf("without records it is said %q", fact)
	}
}
