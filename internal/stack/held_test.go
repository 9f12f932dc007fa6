package stack

import (
	"strings"
	"testing"
	"time"
)

// A plan that a reviewer holds needs an approval in every mode. The hold lasts
// until the plan is another one, or the reviewers are.
func TestAHeldPlanNeedsAnApproval(t *testing.T) {
	inputs := PlanInputs{Source: "s"}
	held := &Verdict{Plan: "d", By: "w", Held: true, Message: "it deletes a database", At: time.Unix(1e9, 0)}
	for name, tt := range map[string]struct {
		spec   Spec
		review *Verdict
		want   Reason
	}{
		"a stack that approves by itself":       {Spec{Mode: Auto, Reviews: "w"}, held, AwaitingApproval},
		"one that is forced":                    {Spec{Mode: Manual, Force: true, Reviews: "w"}, held, AwaitingApproval},
		"one that is approved by hand":          {Spec{Mode: Manual, Reviews: "w"}, held, AwaitingApproval},
		"another plan is approved":              {Spec{Mode: Manual, Approved: "p0", Reviews: "w"}, held, AwaitingApproval},
		"the plan is approved by its name":      {Spec{Mode: Manual, Approved: "p1", Reviews: "w"}, held, Applying},
		"the plan is approved by its digest":    {Spec{Mode: Manual, Approved: "d", Reviews: "w"}, held, Applying},
		"a stack that only plans":               {Spec{Mode: PlanOnly, Reviews: "w"}, held, PlanOnlyHeld},
		"a plan that passed":                    {Spec{Mode: Auto, Reviews: "w"}, &Verdict{Plan: "d", By: "w", Passed: true}, Applying},
		"the hold is of another plan":           {Spec{Mode: Auto, Reviews: "w"}, &Verdict{Plan: "d0", By: "w", Held: true}, Reviewing},
		"other reviewers are asked again":       {Spec{Mode: Auto, Reviews: "v"}, held, Reviewing},
		"reviewers that were removed hold none": {Spec{Mode: Auto}, held, Applying},
	} {
		t.Run(name, func(t *testing.T) {
			tt.spec.Interval, tt.spec.RetryEvery, tt.spec.Words = time.Hour, time.Minute, Words{Approved: "approvePlan"}
			o := Observation{
				Now: time.Unix(1e9, 0).Add(30 * time.Minute), Spec: tt.spec, PlanInputs: inputs,
				Status: Status{Plans: Plans{Planned: inputs, Pending: &Plan{Name: "p1", Digest: "d", PlanInputs: inputs}, Review: tt.review}},
			}
			d := Decide(o)
			if d.Reason != tt.want {
				t.Fatalf("Decide() = %s by %q, want %s", d.Reason, d.Rule, tt.want)
			}
			if d.Reason == AwaitingApproval && (!strings.Contains(d.Message, held.Message) || !strings.Contains(d.Message, `approvePlan: "p1"`) && !strings.Contains(d.Message, "terrier.dev/confirm=p1") || d.Ready != Held) {
				t.Errorf("it says %q, want why the plan is held and how to approve it", d.Message)
			}
		})
	}
}
