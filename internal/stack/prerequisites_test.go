package stack_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/stack/stacktest"
)

// While a prerequisite is missing nothing is planned or applied, whatever else holds, and a
// deletion goes on as if there were none.
func TestNothingStartsWithoutItsPrerequisites(t *testing.T) {
	missing := &stack.Blocked{Kind: fault.Later, Reason: stack.PrerequisiteMissing, Message: "m"}
	rapid.Check(t, func(t *rapid.T) {
		o := stacktest.Observation(t)
		o.Unmet = nil
		with := stack.Decide(o)
		o.Unmet = missing
		d := stack.Decide(o)
		if o.Run != nil && o.Run.Kind == stack.CheckRun && d.Reason == stack.PrerequisiteMissing {
			if _, waits := d.Action.(stack.Wait); !waits {
				t.Fatalf("Decide() = %+v during a drift check, want to wait: the stack would plan after it", d)
			}
			return // it shows what comes after the check
		}
		if o.Deleting || o.Spec.Destroy || o.Run != nil {
			if d.Rule != with.Rule || d.Reason != with.Reason {
				t.Fatalf("Decide() = %+v with a missing prerequisite, want %+v: the stack is being destroyed, or has a run", d, with)
			}
			return
		}
		switch a := d.Action.(type) {
		case stack.Start:
			if a.Kind == stack.PlanRun {
				t.Fatalf("Decide() = %+v, want no plan without the prerequisite", d)
			}
		case stack.Apply:
			if !a.Plan.Destroy {
				t.Fatalf("Decide() = %+v, want no apply without the prerequisite", d)
			}
		case stack.RunScript:
			t.Fatalf("Decide() = %+v, want no script without the prerequisite", d)
		}
	})
}

// A stack says what it waits for, and is as it was where it waits for nothing.
func TestMissingPrerequisites(t *testing.T) {
	now := time.Unix(1e9, 0)
	inputs := stack.PlanInputs{Source: "s"}
	planned := stack.Plans{Planned: inputs, PlannedAt: now}
	pending := planned
	pending.Pending = &stack.Plan{Name: "p1", Digest: "d", PlanInputs: inputs}
	frozen := policy.Times{Freezes: []policy.Freeze{{Policy: "p", From: now.Add(-time.Hour), To: now.Add(time.Hour)}}}
	for name, tt := range map[string]struct {
		spec   stack.Spec
		status stack.Status
		kind   fault.Kind
		want   stack.Reason
		ready  stack.Readiness
	}{
		"the first plan waits":                              {stack.Spec{Mode: stack.Auto}, stack.Status{}, fault.Later, stack.PrerequisiteMissing, stack.Reconciling},
		"what a user has to mend stalls it":                 {stack.Spec{Mode: stack.Auto}, stack.Status{}, fault.Denied, stack.PrerequisiteMissing, stack.Stalled},
		"the apply of a plan that was made before waits":    {stack.Spec{Mode: stack.Auto}, stack.Status{Plans: pending}, fault.Later, stack.PrerequisiteMissing, stack.Reconciling},
		"a plan that waits for a user is shown as before":   {stack.Spec{Mode: stack.Manual}, stack.Status{Plans: pending}, fault.Later, stack.AwaitingApproval, stack.Held},
		"an approved plan waits":                            {stack.Spec{Mode: stack.Manual, Approved: "p1"}, stack.Status{Plans: pending}, fault.Later, stack.PrerequisiteMissing, stack.Reconciling},
		"outside of a window it waits for both":             {stack.Spec{Mode: stack.Auto, Times: frozen}, stack.Status{Plans: pending}, fault.Later, stack.PrerequisiteMissing, stack.Reconciling},
		"a settled stack stays ready":                       {stack.Spec{Mode: stack.Auto, CheckDrift: true}, stack.Status{Plans: planned}, fault.Later, stack.Unchanged, stack.Ready},
		"a stack that is to destroy everything does so":     {stack.Spec{Mode: stack.Auto, Destroy: true}, stack.Status{}, fault.Later, stack.Planning, stack.Reconciling},
		"a suspended stack is suspended":                    {stack.Spec{Mode: stack.Auto, Suspended: true}, stack.Status{}, fault.Later, stack.Suspended, stack.Held},
		"a script that needs no plan waits":                 {stack.Spec{Mode: stack.Auto, Script: true}, stack.Status{}, fault.Later, stack.PrerequisiteMissing, stack.Reconciling},
		"a preview of a destroy waits for nothing":          {stack.Spec{Mode: stack.Auto, Preview: "t"}, stack.Status{}, fault.Later, stack.Previewing, stack.Reconciling},
		"a stack that only checks for drift is not delayed": {stack.Spec{Mode: stack.DriftOnly}, stack.Status{}, fault.Later, stack.Checking, stack.Reconciling},
	} {
		t.Run(name, func(t *testing.T) {
			tt.spec.Interval, tt.spec.RetryEvery = time.Hour, time.Minute
			d := stack.Decide(stack.Observation{Now: now, PlanInputs: inputs, Spec: tt.spec, Status: tt.status, Unmet: &stack.Blocked{Kind: tt.kind, Reason: stack.PrerequisiteMissing, Message: "m"}})
			if d.Reason != tt.want || d.Ready != tt.ready {
				t.Errorf("Decide() = %+v, want %s, %s", d, tt.want, tt.ready)
			}
			if d.Reason == stack.PrerequisiteMissing && (d.Action != stack.Action(stack.Wait{}) || d.Message != "m") {
				t.Errorf("Decide() = %+v, want to wait, and to be told for what", d)
			}
		})
	}
}
