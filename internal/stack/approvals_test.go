package stack

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/policy"
)

// The requesters of a plan are those who changed the object since the last apply. Another user
// who changes it in between joins them, and takes the place of none.
func TestWhoRequestedAChange(t *testing.T) {
	applied := PlanInputs{Source: "s1", Inputs: "i1", Shape: "h1", Engine: "e1"}
	spec := applied
	spec.Shape = "h2"
	source, inputs, engine := spec, spec, spec
	source.Source, inputs.Inputs, engine.Engine = "s2", "i2", "e2"
	before := Approvers{Inputs: applied, Epoch: "E", Number: 3}
	ann, bob := policy.Change{Number: 4, By: "ann"}, policy.Change{Number: 5, By: "bob"}
	outside := External{Source: true, Inputs: true}
	for name, tt := range map[string]struct {
		known   Approvers
		epoch   string
		changes []policy.Change
		inputs  PlanInputs
		of      External
		want    policy.Requesters
	}{
		"one user":                         {before, "E", []policy.Change{{Number: 3, By: "eve"}, ann}, spec, outside, policy.Requesters{Users: []string{"ann"}}},
		"another user in between":          {before, "E", []policy.Change{{Number: 3, By: "eve"}, ann, bob}, spec, outside, policy.Requesters{Users: []string{"ann", "bob"}}},
		"the source changed":               {before, "E", []policy.Change{ann}, source, outside, policy.Requesters{Users: []string{"ann"}, Unknown: "the source changed"}},
		"an inline module changed":         {before, "E", []policy.Change{ann}, source, External{}, policy.Requesters{Users: []string{"ann"}}},
		"something that is read changed":   {before, "E", []policy.Change{ann}, inputs, outside, policy.Requesters{Users: []string{"ann"}, Unknown: "a Secret, a ConfigMap, an output, a label or an annotation that the stack reads may have changed"}},
		"a variable in the object changed": {before, "E", []policy.Change{ann}, inputs, External{}, policy.Requesters{Users: []string{"ann"}}},
		"the engine changed":               {before, "E", nil, engine, External{}, policy.Requesters{Unknown: "the engine changed"}},
		"nobody, as with drift":            {before, "E", []policy.Change{{Number: 3, By: "eve"}}, applied, outside, policy.Requesters{}},
		"more changes than are stamped":    {before, "E", []policy.Change{{Number: 9, By: "ann"}}, spec, outside, policy.Requesters{Users: []string{"ann"}, Unknown: "the API server has not recorded all changes since the last apply"}},
		"another epoch":                    {before, "F", []policy.Change{{Number: 1, By: "ann"}}, spec, outside, policy.Requesters{Users: []string{"ann"}, Unknown: "the API server has not recorded all changes since the last apply"}},
		"a new stack without a source":     {Approvers{}, "E", []policy.Change{{Number: 1, By: "ann"}}, applied, External{}, policy.Requesters{Users: []string{"ann"}}},
		"a new stack with a source":        {Approvers{}, "E", []policy.Change{{Number: 1, By: "ann"}}, applied, External{Source: true}, policy.Requesters{Users: []string{"ann"}, Unknown: "the source changed"}},
		"changes before the first stamp":   {Approvers{}, "E", []policy.Change{{Number: 2, By: "ann"}}, applied, External{}, policy.Requesters{Users: []string{"ann"}, Unknown: "the API server has not kept all changes of the object"}},
		"the first stamp after an apply":   {Approvers{Inputs: applied, Epoch: "E"}, "E", []policy.Change{{Number: 2, By: "ann"}}, spec, External{}, policy.Requesters{Users: []string{"ann"}}},
		"an old stack, policies are new":   {Approvers{}, "E", []policy.Change{{Number: 7, By: "ann"}}, applied, External{}, policy.Requesters{Users: []string{"ann"}, Unknown: "the API server has not kept all changes of the object"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := Observation{Spec: Spec{Stamped: tt.epoch, Changes: tt.changes}, PlanInputs: tt.inputs}
			if d := cmp.Diff(tt.known.RequestersOf(o, tt.of), tt.want); d != "" {
				t.Errorf("RequestersOf() differs (-got +want):\n%s", d)
			}
		})
	}
	gone := Observation{Deleting: true, Spec: Spec{Stamped: "E", Changes: []policy.Change{ann}}, PlanInputs: spec}
	if got := before.RequestersOf(gone, outside); got.Unknown == "" {
		t.Errorf("RequestersOf() = %+v of a deleted stack, want that nobody is known", got)
	}
}

// What was requested is done once it is applied, or once a plan has no changes. What was
// requested while the run went on is not.
func TestWhatIsRequestedIsDone(t *testing.T) {
	inputs := PlanInputs{Source: "s2"}
	was := Approvers{Inputs: PlanInputs{Source: "s1"}, Epoch: "E", Number: 1}
	done := Approvers{Inputs: inputs, Epoch: "E", Number: 2}
	for name, tt := range map[string]struct {
		run  Run
		want Approvers
	}{
		"an apply":                  {Run{Kind: ApplyRun, Outcome: Succeeded, Cause: Cause{PlanInputs: inputs, Plan: &Plan{}}}, done},
		"a script":                  {Run{Kind: ScriptRun, Outcome: Succeeded, Cause: Cause{PlanInputs: inputs}}, done},
		"an apply that failed":      {Run{Kind: ApplyRun, Outcome: Failed, Cause: Cause{PlanInputs: inputs}}, was},
		"a plan without changes":    {Run{Kind: PlanRun, Outcome: Succeeded, Cause: Cause{PlanInputs: inputs}}, done},
		"a plan with changes":       {Run{Kind: PlanRun, Outcome: Succeeded, Plan: &Plan{}, Cause: Cause{PlanInputs: inputs}}, was},
		"a health check":            {Run{Kind: HealthRun, Outcome: Succeeded, Cause: Cause{PlanInputs: inputs}}, was},
		"a preview without changes": {Run{Kind: PreviewRun, Outcome: Succeeded, Cause: Cause{PlanInputs: inputs}}, was},
	} {
		if got := was.Settled(tt.run, "E", 2); !got.Same(tt.want) {
			t.Errorf("%s: Settled() = %+v, want %+v", name, got, tt.want)
		}
	}
}

// Where no stamp can be believed, a plan waits that needs certain users, whatever the object
// says, and the message has the way out. Any other plan goes on.
func TestApprovalsThatCannotBeVerified(t *testing.T) {
	two := holdsIt
	two.Approval = &policy.Approval{Count: 2, Groups: []string{"ops"}}
	o := judged(Manual, "", two)
	o.Spec.Approved = "p1"
	o.Spec.Approvals = []policy.Given{{Plan: "p1", By: "ann", Groups: []string{"ops"}}, {Plan: "p1", By: "bob", Groups: []string{"ops"}}}
	o.Status = stamped(o.Status, o.Spec, o.Now)
	if d := Decide(o); d.Reason != Applying {
		t.Fatalf("Decide() = %s: %s with two stamped approvals, want them to count", d.Reason, d.Message)
	}
	o.Status.Unverified = "the API server does not record who approves a plan. Install it"
	if d := Decide(o); d.Reason != AwaitingApproval || !strings.HasSuffix(d.Message, "It needs 2 approvals by a member of ops. No approval can be verified: the API server does not record who approves a plan. Install it.") {
		t.Errorf("Decide() = %s: %s, want the plan to wait", d.Reason, d.Message)
	}
	plain := judged(Manual, "", holdsIt)
	plain.Spec.Approved = "p1"
	if d := Decide(plain); d.Reason != Applying {
		t.Errorf("Decide() = %s: %s of a hold that any user may approve, want it to go on", d.Reason, d.Message)
	}
}

// A verdict in the status counts only if it is the one that was kept beside the plan, of the
// reviewers of now, and under the name that users saw.
func TestAVerdictThatWasNotKept(t *testing.T) {
	o := judged(Auto, "", holdsIt)
	v := *o.Status.Review
	kept := Judged(o.Status, v, &policy.Judgement{Plan: v.Plan, By: v.By, At: v.At, Findings: v.Findings, Policies: []policy.Judge{{Policy: "ClusterPolicy/production"}}})
	if !JudgedAs(o.Status, *o.Status.Pending, kept) {
		t.Fatalf("JudgedAs() = false of the verdict that was kept: %+v", kept)
	}
	for name, forge := range map[string]func(m *Status, p *Plan, v *Verdict){
		"no verdict":       func(m *Status, _ *Plan, _ *Verdict) { m.Review = nil },
		"passed":           func(_ *Status, _ *Plan, v *Verdict) { v.Held, v.Passed = false, true },
		"allowed":          func(_ *Status, _ *Plan, v *Verdict) { v.Held, v.Passed, v.Allowed = false, true, true },
		"without findings": func(_ *Status, _ *Plan, v *Verdict) { v.Findings = nil },
		"a milder approval": func(_ *Status, _ *Plan, v *Verdict) {
			v.Findings[0].Approval = &policy.Approval{Users: []string{"eve"}}
		},
		"of other reviewers": func(_ *Status, _ *Plan, v *Verdict) { v.By = "x" },
		"of another plan":    func(_ *Status, p *Plan, v *Verdict) { p.Digest, v.Plan = "d2", "d2" },
		"another name":       func(_ *Status, p *Plan, _ *Verdict) { p.Name = "p-approved" },
		"another identity":   func(_ *Status, p *Plan, _ *Verdict) { p.Verdict = "" },
	} {
		m, p, f := o.Status, *o.Status.Pending, v
		f.Findings = append([]policy.Finding(nil), v.Findings...)
		m.Review = &f
		if forge(&m, &p, &f); JudgedAs(m, p, kept) {
			t.Errorf("%s: JudgedAs() = true of a forged status", name)
		}
	}
	if JudgedAs(o.Status, *o.Status.Pending, policy.Judgement{Plan: "d", By: "w", Findings: v.Findings}) {
		t.Error("JudgedAs() = true of what an earlier release kept, which has no name")
	}
	webhook := o
	webhook.Status.Review = &Verdict{Plan: "d", By: "w", Held: true, Message: "look"}
	webhook.Status.Pending = new(*o.Status.Pending)
	webhook.Status.Pending.Verdict = ""
	if said := Judged(webhook.Status, *webhook.Status.Review, nil); !JudgedAs(webhook.Status, *webhook.Status.Pending, said) {
		t.Errorf("JudgedAs() = false of the verdict of a webhook: %+v", said)
	}
	if d := Decide(Observation{Now: o.Now, Spec: o.Spec, PlanInputs: o.PlanInputs, Status: Unjudged(o.Status)}); d.Reason != Reviewing {
		t.Errorf("Decide() = %s after a forged verdict, want the policies to be asked again", d.Reason)
	}
}

// An automatic stack stays automatic when a user approves one plan of it.
func TestOnePlanOfAnAutomaticStackIsApproved(t *testing.T) {
	o := judged(Auto, "", holdsIt)
	o.Spec.Confirms = "p1 2026-01-01"
	if d := Decide(o); d.Reason != Applying {
		t.Errorf("Decide() = %s: %s, want the approved plan to be applied", d.Reason, d.Message)
	}
	other := o
	other.Spec.Confirms = "p0"
	if d := Decide(other); d.Reason != AwaitingApproval || !strings.HasSuffix(d.Message, `To approve it, annotate it with terrier.dev/confirm=p1. The annotation terrier.dev/confirm is "p0", which is not this plan.`) {
		t.Errorf("Decide() = %s: %s with the approval of another plan", d.Reason, d.Message)
	}
	manual := o
	manual.Spec.Mode = Manual
	if d := Decide(manual); d.Reason != AwaitingApproval {
		t.Errorf("Decide() = %s of a manual stack, want the annotation to be one more approval of a plan that is approved", d.Reason)
	}
	gone := o
	gone.Deleting, gone.Spec.DestroyLast, gone.Status.Created = true, true, true
	gone.Status.Pending = new(*o.Status.Pending)
	gone.Status.Pending.Destroy, gone.Status.Pending.Whole = true, true
	if _, applies := Decide(gone).Action.(Apply); !applies {
		t.Errorf("Decide() = %+v, want the approved destroy", Decide(gone))
	}
	next := judged(Auto, "", holdsIt)
	next.Spec.Confirms = "p1"
	next.Status.Review, next.Status.Pending.Verdict = nil, ""
	if m := Reviewed(next.Status, judgedBy(holdsIt), next.Spec.ApprovedNames()...); m.Pending.Name == "p1" {
		t.Error("a plan that was confirmed before its verdict keeps its name")
	}
	if got := (Status{}).NameFor("p1", "p1-long", "d9", next.Spec.ApprovedNames()...); got != "p1-long" {
		t.Errorf("NameFor() = %s, want no name that is approved already", got)
	}
}

// An approval counts from when it was seen first. Of any number of stamps a bounded one is kept.
func TestApprovalsThatAreKept(t *testing.T) {
	o := judged(Manual, "p1", holdsIt)
	name := o.Status.Pending.Name
	for i := range 3 * seenMost {
		o.Spec.Approvals = append(o.Spec.Approvals, policy.Given{Plan: name, By: strings.Repeat("u", i+1)})
	}
	first := Approvers{}.WithStamps(o.Status, o.Spec, o.Now)
	if len(first.Seen) != seenMost {
		t.Fatalf("%d approvals are kept, want %d", len(first.Seen), seenMost)
	}
	again := first.WithStamps(o.Status, o.Spec, o.Now.Add(time.Hour))
	if !again.Same(first) {
		t.Error("the times of approvals change when they are seen again")
	}
}

// A user counts as verified only for the plan about which the user decided: the pending plan, or
// else the one that was applied last.
func TestWhoseDecisionIsVerified(t *testing.T) {
	p1, p2 := &Plan{Name: "p1", Digest: "d1"}, &Plan{Name: "p2", Digest: "d2"}
	of := func(pending, applied *Plan, by *Decider) Status {
		return Status{Plans: Plans{Pending: pending}, Resources: Resources{Applied: applied}, Answers: Answers{Decider: by}}
	}
	ann := &Decider{Plan: "p1", By: "ann"}
	for name, tt := range map[string]struct {
		m    Status
		s    Spec
		who  string
		want bool
	}{
		"an approval":                       {of(p1, nil, ann), Spec{Mode: Manual, Approved: "p1"}, "ann", true},
		"by the digest":                     {of(p1, nil, ann), Spec{Mode: Manual, Approved: "d1"}, "ann", true},
		"a rejection":                       {of(p1, nil, ann), Spec{Mode: Manual, Rejected: "p1"}, "ann", true},
		"beside auto":                       {of(p1, nil, ann), Spec{Mode: Auto, Confirms: "p1 by ann"}, "ann", true},
		"of the plan that was applied":      {of(nil, p1, ann), Spec{Mode: Manual, Approved: "p1"}, "ann", true},
		"another name on the object":        {of(p1, nil, ann), Spec{Mode: Manual, Approved: "p1"}, "eve", false},
		"nothing was verified":              {of(p1, nil, nil), Spec{Mode: Manual, Approved: "p1"}, "ann", false},
		"another plan is approved now":      {of(p2, p1, ann), Spec{Mode: Manual, Approved: "p2"}, "ann", false},
		"no plan is approved":               {of(p1, nil, ann), Spec{Mode: Manual}, "ann", false},
		"every plan is applied":             {of(p1, nil, ann), Spec{Mode: Auto}, "ann", false},
		"the plan is gone":                  {of(nil, nil, ann), Spec{Mode: Manual, Approved: "p1"}, "ann", false},
		"the pending plan is not the named": {of(p2, nil, ann), Spec{Mode: Manual, Approved: "p1"}, "ann", false},
	} {
		if got := Verified(tt.m, tt.s, tt.who); got != tt.want {
			t.Errorf("%s: Verified() = %t, want %t", name, got, tt.want)
		}
	}
}
