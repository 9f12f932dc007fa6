package stack

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Health is asked for after each apply, and again after a pause if it is bad.
func TestHealthIsAskedFor(t *testing.T) {
	applied := &Plan{Name: "p", Digest: "d", PlanInputs: calmBasis}
	o := calmly(Spec{Mode: Auto, CheckDrift: true, Health: "h"}, Status{Plans: Plans{Planned: calmBasis, PlannedAt: calm, Pending: applied}})
	o.Status = o.Status.Record(Run{ID: "a1", Kind: ApplyRun, Done: true, Outcome: Succeeded, Cause: Cause{PlanInputs: calmBasis, Plan: applied}, State: "st", At: calm})
	asks := func() bool {
		a, ok := Decide(o).Action.(Start)
		return ok && a.Kind == HealthRun
	}
	ask := func(id string, outcome Outcome) {
		o.Status = o.Status.Record(Run{ID: id, Kind: HealthRun, Done: true, Outcome: outcome, Cause: Cause{PlanInputs: calmBasis, Health: HealthKey("h", o.Status.LastWrite)}, Message: "no answer", At: o.Now})
	}
	if !asks() {
		t.Fatalf("Decide() = %+v, want health to be asked for", Decide(o))
	}
	ask("h1", Failed)
	if d := Decide(o); d.Reason != RetryLater || d.Message != "no answer" {
		t.Fatalf("Decide() = %+v, want a pause", d)
	}
	if o.Now = o.Now.Add(time.Minute); !asks() {
		t.Fatalf("Decide() = %+v, want only the health to be asked for again", Decide(o))
	}
	if d := Decide(o); d.Reason != RetryLater || d.Message != "no answer" {
		t.Fatalf("Decide() = %+v, want it to stay as it was while it is asked again", d)
	}
	o.Run = &Run{ID: "h2", Kind: HealthRun}
	if d := Decide(o); d.Action != (Wait{}) || d.Reason != RetryLater || d.Message != "no answer" {
		t.Fatalf("Decide() = %+v, want it to stay as it was while it is asked again", d)
	}
	o.Run = nil
	ask("h2", Succeeded)
	if d := Decide(o); !d.Reason.Settled() || o.Status.Failures != 0 {
		t.Fatalf("Decide() = %+v, want it settled", d)
	}
	o.Status = o.Status.Record(Run{ID: "a2", Kind: ApplyRun, Done: true, Outcome: Succeeded, Cause: Cause{PlanInputs: calmBasis, Plan: applied}, State: "st2", At: o.Now})
	if !asks() {
		t.Errorf("Decide() after another apply = %+v, want health to be asked for anew", Decide(o))
	}
}

// ill is a stack whose health check fails, n times by now.
func ill(spec Spec, n int) Observation {
	spec.CheckDrift, spec.Health = true, "h"
	applied := &Plan{Name: "p", Digest: "d", PlanInputs: calmBasis}
	o := calmly(spec, Status{Plans: Plans{Planned: calmBasis, PlannedAt: calm, Pending: applied}})
	o.Status = o.Status.Record(Run{ID: "a1", Kind: ApplyRun, Done: true, Outcome: Succeeded, Cause: Cause{PlanInputs: calmBasis, Plan: applied}, State: "st", At: calm})
	for i := range n {
		o.Status = o.Status.Record(Run{ID: fmt.Sprint("h", i), Kind: HealthRun, Done: true, Outcome: Failed, Cause: Cause{PlanInputs: calmBasis, Health: HealthKey("h", "a1")}, Message: "no answer", At: calm})
	}
	return o
}

// Checks that are taken off while they fail leave nothing to be tried again.
func TestNoHealthIsNoFailure(t *testing.T) {
	o := ill(Spec{Mode: Auto}, 3)
	if m := o.Status.WithoutOldFailure(o.Spec); m.Failures != 3 {
		t.Fatalf("a stack that is still asked for its health has %d failures, want 3", m.Failures)
	}
	o.Spec.Health = ""
	o.Status = o.Status.WithoutOldFailure(o.Spec)
	if d := Decide(o); !d.Reason.Settled() || o.Status.Failures != 0 {
		t.Errorf("Decide() = %+v after %d failures, want it settled", d, o.Status.Failures)
	}
	o = calmly(Spec{Mode: Auto}, Status{Failure: Failure{Failures: 2, FailedKind: ApplyRun, FailedFor: calmBasis}})
	if m := o.Status.WithoutOldFailure(o.Spec); m.Failures != 2 {
		t.Error("another failure was forgotten, too")
	}
}

// looked ends a drift check with the drift that it found, nil for none.
func looked(o Observation, found *Plan) Observation {
	o.Status = o.Status.Record(Run{ID: "c1", Kind: CheckRun, Done: true, Outcome: Succeeded, Cause: Cause{PlanInputs: calmBasis}, Plan: found, State: "st", Exists: true, At: o.Now})
	o.CheckedAt, o.Run = o.Now, nil
	return o
}

// A health check that fails does not blind the stack: drift is looked for at
// every interval, and what is shown stays what it was.
func TestDriftIsLookedForWhileHealthIsBad(t *testing.T) {
	one := 1
	for name, tt := range map[string]struct {
		retries *int
		ready   Readiness
		reason  Reason
	}{
		"between two looks at its health":    {nil, Reconciling, RetryLater},
		"after too many looks at its health": {&one, Stalled, RetryLimitReached},
	} {
		t.Run(name, func(t *testing.T) {
			same := func(when string, d Decision) {
				if d.Ready != tt.ready || d.Reason != tt.reason || d.Message != "no answer" {
					t.Errorf("%s: %+v, want that it does not work", when, d)
				}
			}
			o := ill(Spec{Mode: Auto, MaxRetries: tt.retries}, 2)
			same("before", Decide(o))
			o.Now = calm.Add(o.Spec.Interval)
			d := Decide(o)
			if a, ok := d.Action.(Start); !ok || a.Kind != CheckRun {
				t.Fatalf("after an interval: %+v, want a look for drift", d)
			}
			same("after an interval", d)
			o.Run = &Run{ID: "c1", Kind: CheckRun, Cause: Cause{PlanInputs: calmBasis}}
			same("while it goes on", Decide(o))
			memory := o.Status
			o = looked(o, nil)
			same("after it", Decide(o))
			if o.Status.Failures != 2 || !o.Status.FailedAt.Equal(memory.FailedAt) {
				t.Errorf("a look that finds nothing counts %d failures since %v, want those there were", o.Status.Failures, o.Status.FailedAt)
			}
			if tt.retries != nil {
				if w, ok := Decide(o).Action.(Wait); !ok || w.For != o.Spec.Interval {
					t.Errorf("after it: %+v, want the next look after an interval", Decide(o))
				}
				if got := o.Recheck(Decide(o)); got != o.Spec.Interval {
					t.Errorf("it says that it is looked at every %v, want %v", got, o.Spec.Interval)
				}
			}
		})
	}
}

// Drift that is found while the health is bad is fixed or shown as ever.
func TestDriftIsFixedWhileHealthIsBad(t *testing.T) {
	one := 1
	drift := &Plan{Name: "p2", Digest: "d2", PlanInputs: calmBasis, Drift: true, Changes: Changes{Change: 1}}
	find := func(spec Spec) Observation {
		o := ill(spec, 2)
		o.Now = calm.Add(o.Spec.Interval)
		return looked(o, drift)
	}

	o := find(Spec{Mode: Auto, MaxRetries: &one})
	if a, ok := Decide(o).Action.(Apply); !ok || a.Plan.Digest != "d2" {
		t.Fatalf("by itself: %+v, want the drift mended", Decide(o))
	}
	o.Status = o.Status.Record(Run{ID: "a2", Kind: ApplyRun, Done: true, Outcome: Succeeded, Cause: Cause{PlanInputs: calmBasis, Plan: drift}, State: "st2", At: o.Now})
	if a, ok := Decide(o).Action.(Start); !ok || a.Kind != HealthRun || o.Status.Failures != 0 {
		t.Errorf("once it is mended: %+v after %d failures, want the health asked for anew", Decide(o), o.Status.Failures)
	}

	o = find(Spec{Mode: Manual})
	d := Decide(o)
	if a, ok := d.Action.(Start); !ok || a.Kind != HealthRun {
		t.Errorf("for approval: %+v, want the health asked for again", d)
	}
	if d.Reason != RetryLater || !strings.Contains(d.Message, "no answer") || !strings.Contains(d.Message, "Drift detected: 0 to add, 1 to change") || !strings.Contains(d.Message, `"p2"`) {
		t.Errorf("for approval: %+v, want both said", d)
	}
	o.Spec.Approved = "p2"
	if _, ok := Decide(o).Action.(Apply); !ok {
		t.Errorf("once it is approved: %+v, want the drift mended", Decide(o))
	}
}

// A person who asks, or a change of the module, gets a plan however bad the
// health is; a stack that only plans at its interval goes on doing so.
func TestBadHealthHoldsNothingElseUp(t *testing.T) {
	one := 1
	for name, tt := range map[string]struct {
		change func(*Observation)
		want   RunKind
	}{
		"a request":                  {func(o *Observation) { o.Replan = "t1" }, PlanRun},
		"another module":             {func(o *Observation) { o.PlanInputs.Source = "other" }, PlanRun},
		"an interval without checks": {func(o *Observation) { o.Now, o.Spec.CheckDrift = calm.Add(o.Spec.Interval), false }, PlanRun},
	} {
		t.Run(name, func(t *testing.T) {
			o := ill(Spec{Mode: Auto, MaxRetries: &one}, 2)
			tt.change(&o)
			if a, ok := Decide(o).Action.(Start); !ok || a.Kind != tt.want {
				t.Errorf("Decide() = %+v, want a %s", Decide(o), tt.want)
			}
		})
	}
	o := ill(Spec{Mode: Auto, MaxRetries: &one}, 2)
	o.Status = o.Status.Record(Run{ID: "p1", Kind: PlanRun, Done: true, Outcome: Succeeded, Cause: Cause{PlanInputs: calmBasis, Replan: "t1"}, State: "st", At: o.Now})
	o.Replan = "t1"
	if a, ok := Decide(o).Action.(Start); !ok || a.Kind != HealthRun {
		t.Errorf("after a plan that was asked for: %+v, want the health asked for anew", Decide(o))
	}
}
