package stack

import (
	"strings"
	"testing"
	"time"
)

// scriptWords are those of a kind that has annotations in place of fields.
var scriptWords = Words{Approved: "the annotation example.com/approved", Resume: "remove the annotation example.com/suspended"}

// Each message names what its reader can set: in the words of the kind of the stack.
func TestMessagesNameFieldsOfTheKind(t *testing.T) {
	noon, inputs := time.Unix(1e9, 0), PlanInputs{Source: "s"}
	pending := Plans{Planned: inputs, Pending: &Plan{Name: "p1", Digest: "d", PlanInputs: inputs, Changes: Changes{Destroy: 1}}}
	drift := Resources{Created: true, Drift: &Drift{At: noon, Changes: Changes{Change: 1}}}
	approval := `set the annotation example.com/approved: "p1"`
	for name, tt := range map[string]struct {
		spec     Spec
		status   Status
		deleting bool
		reason   Reason
		want     []string
	}{
		"a plan to approve":    {Spec{Mode: Manual}, Status{Plans: pending}, false, AwaitingApproval, []string{"Plan generated: " + approval + " to approve this plan."}},
		"another is approved":  {Spec{Mode: Manual, Approved: "p0"}, Status{Plans: pending}, false, AwaitingApproval, []string{` The annotation example.com/approved is "p0", which is not this plan.`}},
		"a rejected plan":      {Spec{Mode: Manual, Rejected: "p1"}, Status{Plans: pending}, false, PlanRejected, []string{approval}},
		"drift to approve":     {Spec{Mode: Manual}, Status{Plans: pending, Resources: drift}, false, DriftFound, []string{"To remediate it, " + approval + "."}},
		"drift of a script":    {Spec{Mode: Auto, Script: true, ReportDrift: true}, Status{Plans: pending, Resources: drift}, false, DriftFound, []string{approval, "terrier replan"}},
		"a destroy to approve": {Spec{Mode: Manual, DestroyLast: true, ApproveDestroy: true}, Status{Plans: Plans{Planned: inputs, Pending: &Plan{Name: "p1", Digest: "d", PlanInputs: inputs, Changes: Changes{Destroy: 1}, Destroy: true, Whole: true}}, Resources: Resources{Created: true}}, true, AwaitingApproval, []string{"would destroy 1 resource. To approve it, " + approval + "."}},
		"a suspended stack":    {Spec{Suspended: true}, Status{}, false, Suspended, []string{"remove the annotation example.com/suspended to resume"}},
	} {
		t.Run(name, func(t *testing.T) {
			tt.spec.Interval, tt.spec.RetryEvery, tt.spec.CheckDrift, tt.spec.Words = time.Hour, time.Minute, true, scriptWords
			d := Decide(Observation{Now: noon, CheckedAt: noon, Spec: tt.spec, Status: tt.status, PlanInputs: inputs, Deleting: tt.deleting})
			if d.Reason != tt.reason {
				t.Fatalf("Decide() = %s by %q, want %s", d.Reason, d.Rule, tt.reason)
			}
			for _, want := range tt.want {
				if !strings.Contains(d.Message, want) {
					t.Errorf("the message is %q, want %q in it", d.Message, want)
				}
			}
			if strings.Contains(d.Message, "approvePlan") || strings.Contains(d.Message, "{") {
				t.Errorf("the message names what the kind does not have: %q", d.Message)
			}
		})
	}
}

// A stack that applies plans by itself waits in some situations for an approval of exactly
// one plan. Then that approval counts, and only then it is asked for.
func TestAnAutomaticStackTakesTheApprovalThatItWaitsFor(t *testing.T) {
	noon, inputs := time.Unix(1e9, 0), PlanInputs{Source: "s"}
	plan := Plan{Name: "p1", Digest: "d", PlanInputs: inputs, Addresses: "a"}
	pending := Plans{Planned: inputs, Pending: &plan}
	drift := Resources{Created: true, Drift: &Drift{At: noon}}
	held := pending
	held.Review = &Verdict{Plan: "d", By: "w", Held: true, At: noon}
	for name, tt := range map[string]struct {
		spec   Spec
		status Status
		awaits bool
		reason Reason // without an approval
	}{
		"every plan is applied":        {Spec{Mode: Auto}, Status{Plans: pending}, false, Applying},
		"a script repairs drift":       {Spec{Mode: Auto, Script: true}, Status{Plans: pending, Resources: drift}, false, Applying},
		"a script only reports drift":  {Spec{Mode: Auto, Script: true, ReportDrift: true}, Status{Plans: pending, Resources: drift}, true, DriftFound},
		"a reviewer holds the plan":    {Spec{Mode: Auto, Reviews: "w"}, Status{Plans: held}, true, AwaitingApproval},
		"resources may be untracked":   {Spec{Mode: Auto}, Status{Plans: pending, Resources: Resources{Untracked: &Untracked{Run: "r", Objects: []UntrackedResource{{Address: "a.b"}}}}}, true, AwaitingApproval},
		"the same changes come back":   {Spec{Mode: Auto}, Status{Plans: pending, Resources: Resources{Recurrence: &Recurrence{Key: plan.RecurrenceKey(), Applies: 3}}}, true, NotConverging},
		"a stack that asks every time": {Spec{Mode: Manual}, Status{Plans: pending}, true, AwaitingApproval},
	} {
		t.Run(name, func(t *testing.T) {
			tt.spec.Interval, tt.spec.RetryEvery, tt.spec.CheckDrift = time.Hour, time.Minute, true
			if got := tt.spec.AwaitsApproval(tt.status); got != tt.awaits {
				t.Errorf("AwaitsApproval() = %v, want %v", got, tt.awaits)
			}
			o := Observation{Now: noon, CheckedAt: noon, Spec: tt.spec, Status: tt.status, PlanInputs: inputs}
			if d := Decide(o); d.Reason != tt.reason {
				t.Errorf("without an approval Decide() = %s by %q, want %s", d.Reason, d.Rule, tt.reason)
			}
			o.Spec.Approved = "p1"
			if d := Decide(o); d.Reason != Applying || d.Rule != "an approved plan is applied" {
				t.Errorf("with an approval Decide() = %s by %q, want it applied", d.Reason, d.Rule)
			}
			o.Spec.Approved = "p0"
			if d := Decide(o); d.Reason != tt.reason {
				t.Errorf("with an approval of another plan Decide() = %s by %q, want %s", d.Reason, d.Rule, tt.reason)
			}
		})
	}
}

// A script that was run for an approved plan, and that changed nothing, has not applied it.
// Its end resolves no drift: the next drift check may.
func TestAScriptThatChangesNothingAppliesNothing(t *testing.T) {
	noon, inputs := time.Unix(1e9, 0), PlanInputs{Source: "s", Revision: "main@sha1:1"}
	plan := &Plan{Name: "p1", Digest: "d", PlanInputs: inputs, Changes: Changes{Change: 1}}
	was := Status{Plans: Plans{Planned: inputs, Pending: plan}, Resources: Resources{Created: true, Drift: &Drift{At: noon}}}
	for name, tt := range map[string]struct {
		run      Run
		message  string
		resolved bool
	}{
		"it only prints":         {Run{}, "The script succeeded, and nothing changed in the state, so no part of the approved plan p1 is known to be applied: main@sha1:1", false},
		"it changes resources":   {Run{Changes: Changes{Change: 1}, Moved: true}, "Applied successfully: main@sha1:1", true},
		"it changes outputs":     {Run{Moved: true}, "Applied successfully: main@sha1:1", true},
		"it needed no plan":      {Run{Cause: Cause{PlanInputs: inputs}}, "Applied successfully: main@sha1:1", true},
		"its state is elsewhere": {Run{Changes: Changes{Add: 1}}, "Applied successfully: main@sha1:1", true},
	} {
		t.Run(name, func(t *testing.T) {
			r := tt.run
			r.ID, r.Kind, r.Done, r.Outcome, r.At = "script-1", ScriptRun, true, Succeeded, noon
			if r.Cause.PlanInputs == (PlanInputs{}) {
				r.Cause = Cause{PlanInputs: inputs, Plan: plan}
			}
			is := was.Record(r)
			d := Decide(Observation{Now: noon, CheckedAt: noon, PlanInputs: inputs, Status: is, Spec: Spec{Mode: Manual, Script: true, CheckDrift: true, Approved: "p1", Interval: time.Hour}})
			if d.Reason != Applied || d.Message != tt.message {
				t.Errorf("Decide() = %s %q, want %q", d.Reason, d.Message, tt.message)
			}
			resolved := false
			for _, c := range Transitions(was, is, &r) {
				resolved = resolved || c.Change == DriftResolved
			}
			if resolved != tt.resolved {
				t.Errorf("the drift is resolved: %v, want %v", resolved, tt.resolved)
			}
			if again := is.Record(Run{ID: "apply-2", Kind: ApplyRun, Done: true, Outcome: Succeeded, At: noon, Cause: Cause{PlanInputs: inputs, Plan: plan}}); again.Unapplied {
				t.Error("the next apply is not known to be applied either")
			}
		})
	}
}
