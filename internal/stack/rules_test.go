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
	o := Observation{
		Now: time.Unix(1e9, 0), PlanInputs: basis, Status: Status{Plans: Plans{Planned: basis, PlannedAt: time.Unix(1e9, 0), Pending: plan}},
		Spec: Spec{Mode: Manual, Interval: time.Hour, Rejected: "p1", RejectedBy: "ann", RejectedFor: "not on a Friday"},
	}
	if d := Decide(o); d.Reason != PlanRejected || d.Ready != Held || d.Action != (Wait{}) || !strings.Contains(d.Message, "was rejected, by ann: not on a Friday") {
		t.Errorf("Decide() = %+v, want to be told of the rejection", d)
	}
	forced := o
	forced.Spec.Force = true
	if d := Decide(forced); d.Reason != PlanRejected {
		t.Errorf("Decide() of a forced stack = %+v, want the rejection to count", d)
	}
	forced.Spec.Rejected = "p0"
	if d := Decide(forced); d.Reason != Applying {
		t.Errorf("Decide() after the rejection of another plan = %+v, want the plan to be applied", d)
	}
	drift := o
	drift.Status.Drift = &Drift{}
	if d := Decide(drift); d.Reason != PlanRejected || d.Action != (Wait{time.Hour}) || drift.Recheck(d) != time.Hour {
		t.Errorf("Decide() with drift = %+v, want the rejection, and the next drift check", d)
	}
	gone := o
	gone.Deleting, gone.Spec.DestroyLast, gone.Spec.ApproveDestroy, gone.Status.Created = true, true, true, true
	gone.Status.Pending = &Plan{Name: "p1", Digest: "d", PlanInputs: basis, Destroy: true, Whole: true}
	if d := Decide(gone); d.Reason != PlanRejected || !strings.Contains(d.Message, "terrier.dev/deletion=retain") {
		t.Errorf("Decide() of a deleted stack = %+v, want the rejection and the way out", d)
	}
	gone.Replan = "t1"
	if a, ok := Decide(gone).Action.(Start); !ok || !a.Destroy {
		t.Errorf("Decide() of a request = %+v, want another plan of the destroy", Decide(gone))
	}
	o.Spec.Approved = "p1"
	if d := Decide(o); d.Reason != Applying {
		t.Errorf("Decide() = %s, want the approval to count", d.Reason)
	}
}

// A Secret that does not exist yet is no news while the stack waits for the one
// that will write it.
func TestMissingInputsOfADependency(t *testing.T) {
	missing := &Blocked{Kind: fault.Missing, Reason: InputsFailed, Message: "Secret a does not exist"}
	waiting := &Blocked{Kind: fault.Later, Reason: DependencyNotReady, Message: "waiting for a"}
	for name, tt := range map[string]struct {
		o    Observation
		want Reason
	}{
		"while it waits":               {Observation{Blocked: missing, Waiting: waiting}, DependencyNotReady},
		"with ready dependencies":      {Observation{Blocked: missing}, InputsFailed},
		"an input that is wrong":       {Observation{Blocked: &Blocked{Kind: fault.Invalid, Reason: InputsFailed}, Waiting: waiting}, InputsFailed},
		"a source that does not exist": {Observation{Blocked: &Blocked{Kind: fault.Missing, Reason: SourceNotReady}, Waiting: waiting}, SourceNotReady},
	} {
		if d := Decide(tt.o); d.Reason != tt.want {
			t.Errorf("%s: Decide() = %s, want %s", name, d.Reason, tt.want)
		}
	}
}

// What no retry repairs is not retried: a change of what failed, or a request,
// starts a plan.
func TestPermanentFailures(t *testing.T) {
	inputs := PlanInputs{Source: "s"}
	run := Run{ID: "plan-1", Kind: PlanRun, Cause: Cause{PlanInputs: inputs}, Done: true, Outcome: Failed, Step: "init", Message: "m.", Permanent: true, At: time.Unix(1e9, 0)}
	o := Observation{Now: time.Unix(1e9, 0).Add(time.Hour), PlanInputs: inputs, Spec: Spec{Mode: Auto, RetryEvery: time.Minute}, Status: Status{}.Record(run)}
	if d := Decide(o); d.Ready != Stalled || d.Action != (Wait{}) || d.Reason != ModuleInvalid || !strings.HasPrefix(d.Message, "m. Terrier plans again when") {
		t.Errorf("Decide() = %+v, want the stack stalled without a retry", d)
	}
	for name, change := range map[string]func(*Observation){
		"another source":  func(o *Observation) { o.PlanInputs.Source = "t" },
		"other variables": func(o *Observation) { o.PlanInputs.Inputs = "i" },
		"a request":       func(o *Observation) { o.Replan = "now" },
		"a failure that may pass": func(o *Observation) {
			run.Permanent = false
			o.Status = Status{}.Record(run)
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := o
			change(&o)
			if d := Decide(o); d.Reason != Planning {
				t.Errorf("Decide() = %+v, want a plan", d)
			}
		})
	}
}
