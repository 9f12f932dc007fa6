package service

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// minute is a moment of these stories.
func minute(m float64) time.Time { return day.Add(time.Duration(m * float64(time.Minute))) }

func ended(id string, kind stack.RunKind, from, to float64, outcome stack.Outcome) Report {
	return Report{ID: id, Kind: kind, Phase: runner.Done, Started: minute(from), Finished: minute(to), Outcome: outcome}
}

func TestTimeline(t *testing.T) {
	planned := ended("plan-1", stack.PlanRun, 1, 2, stack.Succeeded)
	planned.Changes = stack.Changes{Add: 3}
	failed := ended("apply-2", stack.ApplyRun, 4, 5, stack.Failed)
	failed.Step, failed.Message = "apply", "the cloud said no"
	drift := ended("check-3", stack.CheckRun, 20, 21, stack.Succeeded)
	drift.Changes = stack.Changes{Change: 1}
	goesOn := Report{ID: "apply-4", Kind: stack.ApplyRun, Phase: runner.Applying, Started: minute(30)}
	runs := []Report{goesOn, drift, failed, planned}
	events := []Event{
		{At: minute(31), Type: "Normal", Reason: "TerraformPlanSucceed", Message: "Planned plan-main-zz: of a run that is no longer kept", Count: 1},
		{At: minute(21.5), Type: "Warning", Reason: "DriftDetected", Message: "Drift detected: 0 to add, 1 to change, 0 to destroy", Count: 1},
		{At: minute(5).Truncate(time.Second), Type: "Warning", Reason: "TFExecApplyFailed", Message: "Failed (attempt 1): the cloud said no", Count: 1},
		{At: minute(3), Type: "Normal", Reason: "PlanReviewed", Message: "The webhooks let it pass", Count: 4},
		{At: minute(2), Type: "Normal", Reason: "TerraformPlanSucceed", Message: "Planned plan-main-aa: 3 to add", Count: 1},
	}
	decided := []Decided{
		{At: minute(2), Phase: "AwaitingApproval", Rule: "a plan waits for approval", Message: "Plan generated"},
		{At: minute(1), Phase: "Planning", Rule: "a change of source, inputs, spec or engine makes a new plan"},
	}
	var got []string
	for _, m := range timeline(minute(0), runs, events, decided) {
		line := fmt.Sprintf("%gm %s: %s", m.At.Sub(day).Minutes(), m.Kind, m.Title)
		for _, part := range []string{m.Text, m.Run, m.Rule} {
			if part != "" {
				line += " | " + part
			}
		}
		if m.Took > 0 {
			line += " | " + m.Took.String()
		}
		if m.Count > 1 {
			line += fmt.Sprintf(" | %d times", m.Count)
		}
		if m.Bad {
			line += " | bad"
		}
		got = append(got, line)
	}
	want := []string{
		"31m event: Terraform plan succeed | Planned plan-main-zz: of a run that is no longer kept",
		"30m run: Apply goes on | apply-4",
		"21m run: Look for drift: 0 to add, 1 to change, 0 to destroy | Drift detected: 0 to add, 1 to change, 0 to destroy | check-3 | 1m0s",
		"5m run: Apply failed | Failed (attempt 1): the cloud said no | apply-2 | 1m0s | bad",
		"3m event: Plan reviewed | The webhooks let it pass | 4 times",
		"2m decision: Awaiting approval | Plan generated | a plan waits for approval",
		"2m run: Plan: 3 to add, 0 to change, 0 to destroy | Planned plan-main-aa: 3 to add | plan-1 | 1m0s",
		"1m decision: Planning | A plan is being made. | a change of source, inputs, spec or engine makes a new plan",
		"0m created: Created",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("timeline() (-want +got):\n%s", diff)
	}
}

// An event is kept to the second, and still comes after what it tells of.
func TestTimelineKeepsCauseBeforeEffect(t *testing.T) {
	second := day.Add(time.Hour)
	apply := ended("apply-1", stack.ApplyRun, 1, 2, stack.Succeeded)
	apply.Finished = second.Add(100 * time.Millisecond)
	var got []MomentKind
	for _, m := range timeline(day, []Report{apply}, []Event{{At: second, Reason: "TerraformOutputsWritten"}},
		[]Decided{{At: second.Add(200 * time.Millisecond), Phase: "Publishing"}, {At: second.Add(50 * time.Millisecond), Phase: "Applying"}}) {
		got = append(got, m.Kind)
	}
	if diff := cmp.Diff([]MomentKind{MomentEvent, MomentDecision, MomentRun, MomentDecision, MomentCreated}, got); diff != "" {
		t.Errorf("timeline() (-want +got):\n%s", diff)
	}
}

func TestTimelineIsBounded(t *testing.T) {
	var decided []Decided
	for i := range 3 * momentsShown {
		decided = append(decided, Decided{At: day.Add(-time.Duration(i) * time.Second), Phase: "Planning"})
	}
	got := timeline(day.Add(-time.Hour), nil, nil, decided)
	if len(got) != momentsShown || !got[0].At.Equal(day) {
		t.Errorf("timeline() = %d moments from %s on, want the newest %d", len(got), got[0].At, momentsShown)
	}
}

func TestRunTitles(t *testing.T) {
	at := func(kind stack.RunKind, o stack.Outcome, step string, changes stack.Changes) Report {
		r := ended("x", kind, 0, 1, o)
		r.Step, r.Changes = step, changes
		return r
	}
	for want, r := range map[string]Report{
		"Plan: no changes":                      at(stack.PlanRun, stack.Succeeded, "", stack.Changes{}),
		"Plan failed in the step init":          at(stack.PlanRun, stack.Failed, "init", stack.Changes{}),
		"Look for drift: none":                  at(stack.CheckRun, stack.Succeeded, "", stack.Changes{}),
		"Apply: done":                           at(stack.ApplyRun, stack.Succeeded, "", stack.Changes{}),
		"Apply: 1 added, 2 imported":            at(stack.ApplyRun, stack.Succeeded, "", stack.Changes{Add: 1, Import: 2}),
		"Apply: 1 output value changed":         at(stack.ApplyRun, stack.Succeeded, "", stack.Changes{Outputs: 1}),
		"Destroy: done":                         at(stack.DestroyRun, stack.Succeeded, "", stack.Changes{Destroy: 2}),
		"Destroy took too long and was stopped": at(stack.DestroyRun, stack.TimedOut, "destroy", stack.Changes{}),
		"Apply: not done, the state changed after the plan was made": at(stack.ApplyRun, stack.Stale, "", stack.Changes{}),
		"Plan: somebody else holds the lock on the state":            at(stack.PlanRun, stack.Locked, "plan", stack.Changes{}),
		"Plan was stopped":      at(stack.PlanRun, stack.Interrupted, "", stack.Changes{}),
		"Apply was killed":      at(stack.ApplyRun, stack.Killed, "", stack.Changes{}),
		"Health check: well":    at(stack.HealthRun, stack.Succeeded, "", stack.Changes{}),
		"Command by hand: done": at(stack.GlassRun, stack.Succeeded, "", stack.Changes{}),
	} {
		if got := runTitle(r); got != want {
			t.Errorf("runTitle(%s %s) = %q, want %q", r.Kind, r.Outcome, got, want)
		}
	}
}

func TestWords(t *testing.T) {
	for name, want := range map[string]string{
		"": "", "Ready": "Ready", "AwaitingApproval": "Awaiting approval", "apply": "Apply",
		"LockedByOther": "Locked by other", "TFExecPlanFailed": "TFExec plan failed", "StateIsOK": "State is OK",
	} {
		if got := words(name); got != want {
			t.Errorf("words(%q) = %q, want %q", name, got, want)
		}
	}
}
