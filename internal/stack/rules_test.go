package stack

import (
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
)

// What is blocked waits as long as its kind of failure says.
func TestBlocked(t *testing.T) {
	for name, tt := range map[string]struct {
		kind  fault.Kind
		ready Readiness
		wait  time.Duration
	}{
		"an invalid spec waits for an edit":   {fault.Invalid, Stalled, 0},
		"a denied source is asked again":      {fault.Denied, Stalled, time.Minute},
		"a missing source is looked for":      {fault.Missing, Reconciling, time.Minute},
		"a broken one is tried again as well": {fault.Broken, Reconciling, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			o := Observation{Spec: Spec{RetryEvery: time.Minute}, Blocked: &Blocked{Kind: tt.kind, Reason: SourceFailed, Message: "m"}}
			d := Decide(o)
			if d.Ready != tt.ready || d.Action != (Wait{tt.wait}) || d.Reason != SourceFailed || d.Message != "m" {
				t.Errorf("Decide() = %+v, want %s and a wait of %v", d, tt.ready, tt.wait)
			}
		})
	}
}

// A rejected plan is shown as rejected; an approved one is applied.
func TestRejected(t *testing.T) {
	basis := PlanInputs{Source: "s"}
	plan := &Plan{Name: "p1", Digest: "d", PlanInputs: basis}
	o := Observation{Now: time.Unix(1e9, 0), PlanInputs: basis, Spec: Spec{Mode: Manual, Rejected: "p1"}, Status: Status{Plans: Plans{Planned: basis, Pending: plan}}}
	if d := Decide(o); d.Reason != AwaitingApproval || !strings.Contains(d.Message, "was rejected") {
		t.Errorf("Decide() = %s %q, want to be told of the rejection", d.Reason, d.Message)
	}
	o.Spec.Approved = "p1"
	if d := Decide(o); d.Reason != Applying {
		t.Errorf("Decide() = %s, want the approval to count", d.Reason)
	}
}
