package stack_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/stack/stacktest"
)

// No step is carried out before the stack was applied, and before what it does was approved
// where plans need that, whatever else holds.
func TestNoStepBeforeApprovalAndApply(t *testing.T) {
	began := 0
	rapid.Check(t, func(t *rapid.T) {
		o := stacktest.Observation(t)
		a, ok := stack.Decide(o).Action.(stack.Start)
		if !ok || a.Kind != stack.StepsRun {
			return
		}
		began++
		m := o.Status
		if !stack.HasStepsToFollow(m) || m.Destroyed || o.Deleting || o.Spec.Suspended || o.Spec.Destroy || o.Spec.Mode == stack.PlanOnly || o.Spec.Mode == stack.DriftOnly {
			t.Fatalf("steps begin in the mode %s with %+v applied", o.Spec.Mode, m.Applied)
		}
		if m.Pending != nil && m.Pending.PlanInputs.Source == o.PlanInputs.Source {
			t.Fatalf("steps begin while the plan %s is pending", m.Pending.Name)
		}
		approved := m.AfterApply != nil && m.AfterApply.Approved == o.Steps.Digest
		if len(o.Spec.Times.Freezes) > 0 {
			t.Fatal("steps begin in a freeze")
		}
		if (o.Spec.Mode == stack.Manual || o.Spec.Policies != "") && !approved && !strings.HasPrefix(o.Spec.Rerun, stack.ShortSteps(o.Steps.Digest)+"@") {
			t.Fatalf("steps begin that no user approved: %+v, asked for with %q", m.AfterApply, o.Spec.Rerun)
		}
	})
	t.Logf("steps began %d times", began)
}

// applied is a stack that was applied, with steps.
func applied(mode stack.Mode) stack.Observation {
	inputs := stack.PlanInputs{Source: "s"}
	now := time.Unix(1e9, 0)
	o := stack.Observation{Now: now, PlanInputs: inputs, Steps: &stack.Steps{Digest: "sha256:0123456789abcdef", Outputs: "o"}}
	o.Spec = stack.Spec{Mode: mode, CheckDrift: true, Interval: time.Hour, RetryEvery: time.Minute}
	plan := &stack.Plan{Name: "p1", Digest: "d", PlanInputs: inputs, Changes: stack.Changes{Add: 1}, Steps: o.Steps.Digest}
	o.Status = stack.Status{}.Record(stack.Run{ID: "apply-1", Kind: stack.ApplyRun, Cause: stack.Cause{PlanInputs: inputs, Plan: plan, Steps: &stack.StepsCause{Digest: "sha256:other"}}, Done: true, Outcome: stack.Succeeded, At: now})
	o.Status.Planned, o.Status.PlannedAt = inputs, now
	return o
}

// after is what is known after a run of the steps.
func after(o stack.Observation, id string, outcome stack.Outcome, results ...stack.StepResult) stack.Observation {
	r := stack.Run{ID: id, Kind: stack.StepsRun, Done: true, Outcome: outcome, Steps: results, At: o.Now, Message: "the step b failed: exit code 1: no route"}
	r.Cause = stack.Cause{PlanInputs: o.PlanInputs, Steps: &stack.StepsCause{Digest: o.Steps.Digest, Key: stack.StepsKey(*o.Steps, o.Status), Rerun: o.Spec.Rerun}}
	o.Status = o.Status.Record(r)
	return o
}

// wants compares the reason of a decision.
func wants(t *testing.T, when string, o stack.Observation, want stack.Reason) stack.Decision {
	t.Helper()
	d := stack.Decide(o)
	if d.Reason != want {
		t.Errorf("%s: Decide() = %+v, want %s", when, d, want)
	}
	return d
}

// Steps follow an apply once, and are carried out again for what is new: other steps, other
// outputs, an apply that changes resources, a request.
func TestStepsAreCarriedOutOnce(t *testing.T) {
	o := applied(stack.Auto)
	wants(t, "after the apply", o, stack.RunningSteps)
	o = after(o, "steps-1", stack.Succeeded, stack.StepResult{Name: "a", State: stack.StepSucceeded})
	wants(t, "after the steps", o, stack.Applied)

	for name, change := range map[string]func(*stack.Observation){
		"other steps":   func(o *stack.Observation) { o.Steps = &stack.Steps{Digest: "sha256:9", Outputs: "o"} },
		"other outputs": func(o *stack.Observation) { o.Steps = &stack.Steps{Digest: o.Steps.Digest, Outputs: "p"} },
		"a request":     func(o *stack.Observation) { o.Spec.Rerun = "now" },
		"another apply": func(o *stack.Observation) {
			plan := *o.Status.Applied
			plan.Digest = "e"
			o.Status = o.Status.Record(stack.Run{ID: "apply-2", Kind: stack.ApplyRun, Cause: stack.Cause{PlanInputs: o.PlanInputs, Plan: &plan}, Done: true, Outcome: stack.Succeeded, At: o.Now})
			o.Status.Planned = o.PlanInputs
		},
	} {
		again := o
		change(&again)
		wants(t, name, again, stack.RunningSteps)
	}
	same := o
	plan := *o.Status.Applied
	plan.Changes = stack.Changes{Outputs: 1}
	same.Status = same.Status.Record(stack.Run{ID: "apply-2", Kind: stack.ApplyRun, Cause: stack.Cause{PlanInputs: o.PlanInputs, Plan: &plan}, Done: true, Outcome: stack.Succeeded, At: o.Now})
	same.Status.Planned = o.PlanInputs
	wants(t, "an apply that changes no resource, and whose outputs are the same to the steps", same, stack.Applied)
	none := o
	none.Steps = nil
	wants(t, "without steps", none, stack.Applied)
}

// Steps that failed are said beside the apply that succeeded. They are tried again on request
// and for what is new, and drift is checked meanwhile.
func TestStepsThatFail(t *testing.T) {
	o := after(applied(stack.Auto), "steps-1", stack.Failed, stack.StepResult{Name: "a", State: stack.StepSucceeded}, stack.StepResult{Name: "b", State: stack.StepFailed})
	d := wants(t, "after the steps", o, stack.StepsFailed)
	if d.Ready != stack.Stalled || !strings.Contains(d.Message, "Applied successfully") || !strings.Contains(d.Message, "the step b failed: exit code 1: no route") || !strings.Contains(d.Message, "terrier.dev/rerun-steps=0123456789abcdef@steps-1") {
		t.Errorf("Decide() = %+v, want that the apply succeeded, which step failed, and how to run the steps again", d)
	}
	if o.Status.Failures != 0 || o.Recheck(d) != time.Hour {
		t.Errorf("the stack has %d failures and is reconciled after %s, want no failure, and the check interval", o.Status.Failures, o.Recheck(d))
	}
	o.Status = stack.WithSteps(o.Status, o.Steps)
	checking := o
	checking.Steps, checking.Run = stack.KnownSteps(o.Status), &stack.Run{ID: "check-1", Kind: stack.CheckRun, Cause: stack.Cause{PlanInputs: o.PlanInputs}}
	wants(t, "during a drift check", checking, stack.StepsFailed)
	back := after(applied(stack.Auto), "steps-0", stack.Succeeded)
	was := back.Steps
	back.Steps = &stack.Steps{Digest: "sha256:9", Outputs: "o"}
	back = after(back, "steps-1", stack.Failed)
	wants(t, "after other steps failed", back, stack.StepsFailed)
	back.Steps = was
	wants(t, "with the steps that succeeded before those", back, stack.RunningSteps)
	late := o
	late.Now = late.Now.Add(2 * time.Hour)
	if a, ok := stack.Decide(late).Action.(stack.Start); !ok || a.Kind != stack.CheckRun {
		t.Errorf("after the interval Decide() = %+v, want a drift check", stack.Decide(late))
	}
	o.Spec.Rerun = "0123456789abcdef@steps-1"
	wants(t, "after a request", o, stack.RunningSteps)
	wants(t, "after the same request was answered", after(o, "steps-2", stack.Failed), stack.StepsFailed)
	wants(t, "after it helped", after(o, "steps-2", stack.Succeeded), stack.Applied)
}

// A run that dies in the middle of a step is tried again from that step, which is recorded,
// and not for ever.
func TestStepsWhoseRunDies(t *testing.T) {
	o := applied(stack.Auto)
	key := stack.StepsKey(*o.Steps, o.Status)
	half := []stack.StepResult{{Name: "a", State: stack.StepSucceeded}, {Name: "b", State: stack.StepRunning}, {Name: "c", State: stack.StepPending}}
	for n := 1; n <= 2; n++ {
		o = after(o, "steps-"+strings.Repeat("x", n), stack.Killed, half...)
		wants(t, "after a death", o, stack.RunningSteps)
		if r := o.Status.AfterApply.Results; r[1].State != stack.StepInterrupted || r[1].Again != n || stack.Resumes(o.Status, key)[0].State != stack.StepSucceeded {
			t.Errorf("after %d deaths the steps are %+v, want the second interrupted as often, and the first as done", n, r)
		}
	}
	done := after(o, "steps-y", stack.Succeeded, stack.StepResult{Name: "a", State: stack.StepSucceeded}, stack.StepResult{Name: "b", State: stack.StepSucceeded})
	if r := done.Status.AfterApply.Results; r[1].Again != 2 || stack.Resumes(done.Status, key) != nil {
		t.Errorf("after the success the steps are %+v, want what happened to the second, and nothing to resume", r)
	}
	wants(t, "after the third death", after(o, "steps-y", stack.Killed, half...), stack.StepsFailed)
	other := o
	other.Steps = &stack.Steps{Digest: "sha256:9"}
	if stack.Resumes(other.Status, stack.StepsKey(*other.Steps, other.Status)) != nil {
		t.Error("other steps resume those before")
	}
}

// Where plans need an approval, steps that changed since the plan was made wait for a request
// that names them.
func TestStepsThatNobodyApproved(t *testing.T) {
	o := applied(stack.Manual)
	wants(t, "steps as the plan had them", o, stack.RunningSteps)
	o.Steps = &stack.Steps{Digest: "sha256:fedcba9876543210", Outputs: "o"}
	d := wants(t, "other steps", o, stack.StepsHeld)
	if d.Ready != stack.Held || !strings.Contains(d.Message, "terrier.dev/rerun-steps=fedcba9876543210") {
		t.Errorf("Decide() = %+v, want to be told how to run them", d)
	}
	for request, want := range map[string]stack.Reason{"now": stack.StepsHeld, "0123456789abcdef@1": stack.StepsHeld, "fedcba9876543210": stack.RunningSteps, "fedcba9876543210@2": stack.RunningSteps, "sha256:fedcba9876543210": stack.RunningSteps, "fedcba98765": stack.StepsHeld} {
		asked := o
		asked.Spec.Rerun = request
		wants(t, "the request "+request, asked, want)
	}
	for approval, want := range map[string]stack.Reason{"fedcba9876543210 1": stack.RunningSteps, "0123456789ab 1": stack.StepsHeld} {
		approved := o
		approved.Spec.Confirms = approval
		wants(t, "the approval "+approval, approved, want)
	}
}

// Where policies or webhooks judge plans, steps that no plan had wait, also if plans are applied
// by themselves. Where a policy says who approves, no request stands for an approval.
func TestStepsThatNoPolicySaw(t *testing.T) {
	for name, spec := range map[string]stack.Spec{"policies": {Reviews: "w", Policies: "w"}, "webhooks": {Reviews: "w"}} {
		o := applied(stack.Auto)
		o.Spec.Reviews, o.Spec.Policies = spec.Reviews, spec.Policies
		wants(t, name+", steps as the plan had them", o, stack.RunningSteps)
		o.Steps = &stack.Steps{Digest: "sha256:fedcba9876543210", Outputs: "o"}
		wants(t, name+", other steps", o, stack.StepsHeld)
		o.Spec.Rerun = "fedcba9876543210"
		wants(t, name+", a request for them", o, stack.RunningSteps)
		o.Spec.Approvers = true
		if d := wants(t, name+" that say who approves", o, stack.StepsHeld); strings.Contains(d.Message, "rerun-steps") {
			t.Errorf("Decide() = %+v, which names a request that does not count", d)
		}
	}
}

// Steps wait for windows and freezes as an apply does, and drift is checked meanwhile.
func TestStepsWaitForTheirTime(t *testing.T) {
	o := applied(stack.Auto)
	o.Spec.Times.Freezes = []policy.Freeze{{Policy: "p", From: o.Now.Add(-time.Hour), To: o.Now.Add(48 * time.Hour)}}
	o.Spec.Health = "h"
	wants(t, "in a freeze", o, stack.ApplyWithheld)
	late := o
	late.Now = late.Now.Add(2 * time.Hour)
	if a, ok := stack.Decide(late).Action.(stack.Start); !ok || a.Kind != stack.CheckRun {
		t.Errorf("after the interval Decide() = %+v, want a drift check", stack.Decide(late))
	}
	late.Now = late.Now.Add(48 * time.Hour)
	wants(t, "after the freeze", late, stack.RunningSteps)
}

// An approval is of all of the source that a step can read. Another source runs no steps by
// itself, and holds those that are due.
func TestStepsOfAnotherSource(t *testing.T) {
	o := applied(stack.Manual)
	o.Steps.Source = "s1"
	o.Status.AfterApply.Approved = o.Steps.Approvable()
	wants(t, "the source of the plan", o, stack.RunningSteps)
	done := after(o, "steps-1", stack.Succeeded)
	other := *o.Steps
	other.Source = "s2"
	done.Steps = &other
	wants(t, "another source after the steps", done, stack.Applied)
	o.Steps = &other
	d := wants(t, "another source before the steps", o, stack.StepsHeld)
	if !strings.Contains(d.Message, stack.ShortSteps(other.Approvable())) {
		t.Errorf("Decide() = %+v, want the word for what would be run", d)
	}
}

// Steps that ran are known from the records after the status was lost: they run again for what
// is new, and on request. Where the records are lost, too, they run on request only.
func TestStepsOutliveAStatus(t *testing.T) {
	lost := func(o stack.Observation, kept stack.Checkpoint) stack.Observation {
		o.Status = stack.Status{}.Restored(kept)
		o.Status.Planned, o.Status.PlannedAt, o.Status.Created = o.PlanInputs, o.Now, true // a plan has found no changes
		o.Status = stack.WithSteps(o.Status, o.Steps)
		return o
	}
	for _, mode := range []stack.Mode{stack.Auto, stack.Manual} {
		o := applied(mode)
		failed := after(o, "steps-1", stack.Failed)
		succeeded := after(o, "steps-1", stack.Succeeded)
		for name, tt := range map[string]struct {
			before stack.Observation
			kept   stack.Checkpoint
			want   stack.Reason // by itself
			other  stack.Reason // of other outputs
		}{
			"after a success":    {succeeded, succeeded.Status.Checkpoint(), stack.Unchanged, stack.RunningSteps},
			"after a failure":    {failed, failed.Status.Checkpoint(), stack.StepsFailed, stack.RunningSteps},
			"before they ran":    {o, o.Status.Checkpoint(), stack.RunningSteps, stack.RunningSteps},
			"without the record": {succeeded, stack.Checkpoint{}, stack.Unchanged, stack.Unchanged},
		} {
			is := lost(tt.before, tt.kept)
			wants(t, name, is, tt.want)
			is.Spec.Rerun = stack.ShortSteps(is.Steps.Approvable()) + "@again"
			wants(t, name+", on request", is, stack.RunningSteps)
			is.Spec.Rerun = ""
			is.Steps = &stack.Steps{Digest: is.Steps.Digest, Outputs: "p"}
			wants(t, name+", with other outputs", is, tt.other)
		}
	}
	o := after(applied(stack.Auto), "steps-1", stack.Succeeded)
	kept := stack.WithSteps(o.Status, o.Steps).Checkpoint()
	if got := (stack.Status{}).Restored(kept).AfterApply; got.Outputs != "o" || got.Wanted != "" {
		t.Errorf("restored is %+v, want the outputs, whose record may be lost, and not what the steps are now", got)
	}
	gone := lost(o, kept)
	gone.Status.Destroyed, gone.Status.Created = true, false
	gone.Spec.Rerun = "0123456789abcdef@again"
	if d := stack.Decide(gone); d.Reason == stack.RunningSteps {
		t.Errorf("Decide() = %+v of a stack that was destroyed", d)
	}
}

// Where a policy says who approves, these users approve steps that no plan had, each by the word
// of the steps, and by their stamps.
func TestStepsThatCertainUsersApprove(t *testing.T) {
	o := applied(stack.Auto)
	o.Spec.Reviews, o.Spec.Policies, o.Spec.Approvers = "w", "w", true
	o.Spec.ApprovalRules = []policy.Approval{{Groups: []string{"admins"}, NotRequester: true, Expires: policy.Duration(time.Hour)}}
	wants(t, "steps as the plan had them", o, stack.RunningSteps)
	const word = "fedcba9876543210"
	o.Steps = &stack.Steps{Digest: "sha256:fedcba9876543210", Outputs: "o"}
	d := wants(t, "other steps", o, stack.StepsHeld)
	for _, want := range []string{"needs 2 approvals by a member of admins", "terrier.dev/confirm=" + word} {
		if !strings.Contains(d.Message, want) {
			t.Errorf("Decide() says %q, want %q", d.Message, want)
		}
	}
	given := func(by, group, of string) policy.Given {
		return policy.Given{Plan: of, By: by, Groups: []string{group}, At: o.Now}
	}
	ann, bob := given("ann", "admins", word), given("bob", "admins", word)
	for name, tt := range map[string]struct {
		confirms string
		given    []policy.Given
		change   func(*stack.Observation)
		want     stack.Reason
	}{
		"a request of any user":      {"", nil, func(o *stack.Observation) { o.Spec.Rerun = word }, stack.StepsHeld},
		"an approval without a user": {word, nil, nil, stack.StepsHeld},
		"one of two users":           {word, []policy.Given{ann}, nil, stack.StepsHeld},
		"the same user twice":        {word, []policy.Given{ann, ann}, nil, stack.StepsHeld},
		"a user of another group":    {word, []policy.Given{ann, given("eve", "users", word)}, nil, stack.StepsHeld},
		"both":                       {word + " 2", []policy.Given{ann, bob}, nil, stack.RunningSteps},
		"both, and one requested":    {word, []policy.Given{ann, bob}, func(o *stack.Observation) { o.Status.Requesters.Users = []string{"bob"} }, stack.StepsHeld},
		"approvals of other steps":   {word, []policy.Given{ann, given("bob", "admins", "0123456789abcdef")}, nil, stack.StepsHeld},
		"an approval taken back":     {"", []policy.Given{ann, bob}, nil, stack.StepsHeld},
		"stamps that may be forged":  {word, []policy.Given{ann, bob}, func(o *stack.Observation) { o.Status.Unverified = "no API server stamps them" }, stack.StepsHeld},
		"approvals that are too old": {word, []policy.Given{ann, bob}, func(o *stack.Observation) { o.Now = o.Now.Add(2 * time.Hour) }, stack.StepsHeld},
		"any user may":               {word, []policy.Given{ann}, func(o *stack.Observation) { o.Spec.ApprovalRules = []policy.Approval{{}} }, stack.RunningSteps},
		"two policies, one of which lets any user": {word, []policy.Given{ann}, func(o *stack.Observation) {
			o.Spec.ApprovalRules = append([]policy.Approval{{}}, o.Spec.ApprovalRules...)
		}, stack.StepsHeld},
	} {
		is := o
		is.Spec.Confirms, is.Status.Approvals = tt.confirms, tt.given
		if tt.change != nil {
			tt.change(&is)
		}
		d := wants(t, name, is, tt.want)
		if says := strings.Contains(d.Message, "No approval can be verified: no API server stamps them."); says != (name == "stamps that may be forged") {
			t.Errorf("%s: Decide() says %q", name, d.Message)
		}
		if got := stack.ConfirmsSteps(is); got != strings.HasPrefix(tt.confirms, word) {
			t.Errorf("%s: ConfirmsSteps() = %v", name, got)
		}
	}
	m := stack.WithSteps(o.Status, o.Steps)
	spec := stack.Spec{Approvals: []policy.Given{{Plan: word, By: "ann"}, {Plan: "0123456789abcdef", By: "ann"}}}
	if got := (stack.Approvers{}).WithStamps(m, spec, o.Now).Seen; len(got) != 0 {
		t.Errorf("without such a policy the approvals %+v are kept", got)
	}
	spec.Approvers = true
	if got := (stack.Approvers{}).WithStamps(m, spec, o.Now).Seen; len(got) != 1 || got[0].Plan != word || got[0].At.IsZero() {
		t.Errorf("kept is %+v, want the approval of these steps, and when it was seen", got)
	}
}
