package stack

import (
	"strings"
	"testing"
	"time"
)

// scripted observes a stack of a script, some time after it was applied.
func scripted(change func(*Observation)) Observation {
	inputs := PlanInputs{Revision: "main@sha1:1", Source: "s", Inputs: "i", Engine: "tofu"}
	o := Observation{
		Now: time.Unix(1e9, 0), PlanInputs: inputs,
		Spec: Spec{Mode: Auto, Script: true, CheckDrift: true, DestroyLast: true, Interval: time.Hour, RetryEvery: time.Minute, RetryMax: time.Hour, Backoff: Exponential},
	}
	o.Status = Status{}.Record(Run{ID: "script-1", Kind: ScriptRun, Done: true, Outcome: Succeeded, Cause: Cause{PlanInputs: inputs, Snapshot: "k"}, State: "st", At: o.Now})
	change(&o)
	return o
}

func TestScripts(t *testing.T) {
	fails := func(o *Observation) {
		o.Status = o.Status.Record(Run{ID: "script-2", Kind: ScriptRun, Done: true, Outcome: Failed, Cause: Cause{PlanInputs: o.PlanInputs, Snapshot: "k"}, Message: "no such bucket", At: o.Now})
	}
	drifts := func(o *Observation) {
		p := Plan{Name: "p1", Digest: "d", PlanInputs: o.PlanInputs, Drift: true, Changes: Changes{Change: 1}}
		o.Status = o.Status.Record(Run{ID: "check-1", Kind: CheckRun, Done: true, Outcome: Succeeded, Cause: Cause{PlanInputs: o.PlanInputs}, Plan: &p, Exists: true, At: o.Now})
		o.CheckedAt = o.Now
	}
	pending := func(o *Observation) {
		o.Spec.Mode, o.PlanInputs.Source = Manual, "t"
		p := Plan{Name: "p2", Digest: "e", PlanInputs: o.PlanInputs, Changes: Changes{Add: 1}}
		o.Status = o.Status.Record(Run{ID: "plan-1", Kind: PlanRun, Done: true, Outcome: Succeeded, Cause: Cause{PlanInputs: o.PlanInputs}, Plan: &p, Exists: true, At: o.Now})
	}
	deleted := func(o *Observation) { o.Deleting = true }
	both := func(all ...func(*Observation)) func(*Observation) {
		return func(o *Observation) {
			for _, f := range all {
				f(o)
			}
		}
	}
	for name, tt := range map[string]struct {
		change func(*Observation)
		action string // of the decision, and why
		reason Reason
	}{
		"a new stack runs its script":             {func(o *Observation) { o.Status = Status{} }, "script first run", Applying},
		"one that succeeded waits":                {func(*Observation) {}, "wait", Applied},
		"another commit runs it again":            {func(o *Observation) { o.PlanInputs.Source = "t" }, "script source changed", Applying},
		"other inputs run it again":               {func(o *Observation) { o.PlanInputs.Inputs = "j" }, "script inputs changed", Applying},
		"another destroy script does not":         {func(o *Observation) { o.PlanInputs.Inputs, o.OtherDestroy = "j", true }, "renew", Unchanged},
		"a request runs it again":                 {func(o *Observation) { o.Replan = "t1" }, "script requested", Applying},
		"the interval runs it again":              {func(o *Observation) { o.Now = o.Now.Add(time.Hour) }, "script " + intervalPassed, Applying},
		"drift is checked if it is only reported": {func(o *Observation) { o.Now, o.Spec.ReportDrift = o.Now.Add(time.Hour), true }, "check", Applied},
		"drift is shown if it is only reported":   {both(func(o *Observation) { o.Spec.ReportDrift = true }, drifts), "wait", DriftFound},
		"drift is no obstacle to another commit":  {both(func(o *Observation) { o.Spec.ReportDrift = true }, drifts, func(o *Observation) { o.PlanInputs.Source = "t" }), "script source changed", Applying},
		"a failure waits":                         {fails, "wait", RetryLater},
		"a failure is tried again":                {both(fails, func(o *Observation) { o.Now = o.Now.Add(2 * time.Minute) }), "script retry", Applying},
		"as often as allowed":                     {both(fails, func(o *Observation) { o.Spec.MaxRetries, o.Now = new(int), o.Now.Add(2*time.Minute) }), "wait", RetryLimitReached},
		"and again once something changed":        {both(fails, func(o *Observation) { o.Spec.MaxRetries, o.PlanInputs.Source = new(int), "t" }), "script retry", Applying},
		"an approval is asked for with a plan":    {func(o *Observation) { o.Spec.Mode, o.PlanInputs.Source = Manual, "t" }, "plan", Planning},
		"the plan waits for it":                   {pending, "wait", AwaitingApproval},
		"an approved plan lets the script run":    {both(pending, func(o *Observation) { o.Spec.Approved = "p2" }), "script plan p2", Applying},
		"a reviewer is shown a plan":              {func(o *Observation) { o.Spec.Reviews, o.PlanInputs.Source = "w", "t" }, "plan", Planning},
		"a deleted stack is destroyed":            {deleted, "destroy", Destroying},
		"also after a script that failed":         {both(func(o *Observation) { o.Status = Status{} }, fails, deleted, func(o *Observation) { o.Now = o.Now.Add(time.Hour) }), "destroy", Destroying},
		"also after one that was not allowed to go on": {both(func(o *Observation) {
			o.Status = Status{}.Record(Run{ID: "script-1", Kind: ScriptRun, Done: true, Outcome: Stale, Cause: Cause{PlanInputs: o.PlanInputs, Snapshot: "k"}, At: o.Now})
		}, deleted), "destroy", Destroying},
		"not after one that never began": {both(func(o *Observation) {
			o.Status = Status{}.Record(Run{ID: "script-1", Kind: ScriptRun, Done: true, Outcome: Failed, Untouched: true, Cause: Cause{PlanInputs: o.PlanInputs, Snapshot: "k"}, At: o.Now})
		}, deleted), "finish", Deleting},
		"one that never ran is let go":            {both(func(o *Observation) { o.Status = Status{} }, deleted), "finish", Deleting},
		"one that cannot be destroyed stays":      {both(deleted, func(o *Observation) { o.Spec.NoDestroyScript = true }), "wait", NoDestroyScript},
		"unless the last run had a script for it": {both(deleted, func(o *Observation) { o.Spec.NoDestroyScript, o.Status.DestroyScript = true, true }), "destroy", Destroying},
		"but a correction has to bring one":       {both(deleted, func(o *Observation) { o.Spec.NoDestroyScript, o.Status.DestroyScript, o.Corrected = true, true, true }), "wait", NoDestroyScript},
		"unless its resources are retained":       {both(deleted, func(o *Observation) { o.Spec.NoDestroyScript, o.Spec.DestroyLast = true, false }), "finish", Deleting},
		"an approved plan of a destroy runs the script": {both(func(o *Observation) {
			o.Spec.Mode, o.Spec.ApproveDestroy, o.Spec.Approved = Manual, true, "p3"
			o.Status.Pending = &Plan{Name: "p3", Digest: "f", PlanInputs: o.PlanInputs, Destroy: true, Whole: true}
		}, deleted), "destroy", Destroying},
	} {
		t.Run(name, func(t *testing.T) {
			d := Decide(scripted(tt.change))
			got := "wait"
			switch a := d.Action.(type) {
			case RunScript:
				got = "script " + a.Why
			case Start:
				got = string(a.Kind)
			case Destroy:
				got = "destroy"
			case Finish:
				got = "finish"
			case Renew:
				got = "renew"
			case Apply, Cancel, Publish, Review, Wait:
			}
			if got != tt.action || d.Reason != tt.reason {
				t.Errorf("Decide() = %s, %s by %q, want %s, %s", got, d.Reason, d.Rule, tt.action, tt.reason)
			}
		})
	}
}

// Every run that may have created something says whether its record has a script that destroys
// it, and a status that was lost gets that back.
func TestTheLastRunHadADestroyScript(t *testing.T) {
	cause := Cause{Snapshot: "k", DestroyScript: true}
	for name, r := range map[string]Run{
		"a script that succeeded":       {Kind: ScriptRun, Outcome: Succeeded},
		"a script that failed":          {Kind: ScriptRun, Outcome: Failed},
		"a script that had to stop":     {Kind: ScriptRun, Outcome: Stale},
		"a plan of resources there are": {Kind: PlanRun, Outcome: Succeeded, Exists: true},
	} {
		r.ID, r.Done, r.Cause = "r1", true, cause
		m := Status{}.Record(r)
		if !m.DestroyScript || !(Status{}).Restored(m.Checkpoint()).DestroyScript {
			t.Errorf("%s: the script is forgotten: %+v", name, m.Resources)
		}
		r = Run{ID: "r2", Kind: ScriptRun, Done: true, Outcome: Succeeded, Cause: Cause{Snapshot: "l"}}
		if m = m.Record(r); m.DestroyScript {
			t.Errorf("%s: the script of a run before the last one counts", name)
		}
	}
}

// A deletion that has nothing to destroy with says which field to set, and the other way
// out.
func TestNoDestroyScript(t *testing.T) {
	d := Decide(scripted(func(o *Observation) { o.Deleting, o.Spec.NoDestroyScript = true, true }))
	if !strings.Contains(d.Message, "spec.scripts.destroy") || !strings.Contains(d.Message, "terrier.dev/deletion=retain") || d.Ready != Stalled {
		t.Errorf("Decide() = %+v", d)
	}
}

// Only a script that destroys, which changed alone, is no reason to run the one that applies.
// Once the record has it, the inputs of now are those that were applied.
func TestOnlyTheDestroyScriptChanged(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Observation)
		want   bool
	}{
		"nothing else":           {func(*Observation) {}, true},
		"another commit as well": {func(o *Observation) { o.PlanInputs.Source = "t" }, false},
		"other inputs as well":   {func(o *Observation) { o.Status.Planned.Inputs = "h" }, false},
		"a plan is pending":      {func(o *Observation) { o.Status.Pending = &Plan{} }, false},
		"the last run failed":    {func(o *Observation) { o.Status.Failures = 1 }, false},
		"nothing was applied":    {func(o *Observation) { o.Status.Applied = nil }, false},
	} {
		o := scripted(tt.change)
		o.PlanInputs.Inputs = "j"
		if got := OtherDestroy(o.Status, o.PlanInputs, "i"); got != tt.want {
			t.Errorf("%s: OtherDestroy() = %v, want %v", name, got, tt.want)
		}
		if !tt.want {
			continue
		}
		before := *o.Status.Applied
		o.Status = Renewed(o.Status, o.PlanInputs, "k2", true)
		if d := Decide(o); !d.waits() || d.Reason != Applied || o.Status.Snapshot != "k2" || !o.Status.DestroyScript || before.PlanInputs.Inputs != "i" {
			t.Errorf("once the record has it: %s by %q, record %q", d.Reason, d.Rule, o.Status.Snapshot)
		}
	}
}
