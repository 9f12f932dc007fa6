package query

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/query/meaning"
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
		{At: minute(3), Type: "Normal", Reason: "PlanReviewed", Message: "The reviewers passed it", Count: 4},
		{At: minute(2), Type: "Normal", Reason: "TerraformPlanSucceed", Message: "Planned plan-main-aa: 3 to add", Count: 1},
	}
	decided := []Decided{
		{At: minute(2), Phase: "AwaitingApproval", Rule: "a plan waits for approval", Message: "Plan generated"},
		{At: minute(1), Phase: "Planning", Rule: "a change of source, inputs, spec or engine makes a new plan"},
	}
	var got []string
	for _, m := range timeline(infra.Dialect{}, anyKind, minute(0), runs, events, decided) {
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
		"30m run: Apply is running | apply-4",
		"21m run: Drift check: 0 to add, 1 to change, 0 to destroy | Drift detected: 0 to add, 1 to change, 0 to destroy | check-3 | 1m0s",
		"5m run: Apply failed | Failed (attempt 1): the cloud said no | apply-2 | 1m0s | bad",
		"3m event: Plan reviewed | The reviewers passed it | 4 times",
		"2m decision: Awaiting approval | Plan generated | a plan waits for approval",
		"2m run: Plan: 3 to add, 0 to change, 0 to destroy | Planned plan-main-aa: 3 to add | plan-1 | a change of source, inputs, spec or engine makes a new plan | 1m0s",
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
	for _, m := range timeline(infra.Dialect{}, anyKind, day, []Report{apply}, []Event{{At: second, Reason: "TerraformOutputsWritten"}},
		[]Decided{{At: second.Add(200 * time.Millisecond), Phase: "Publishing"}, {At: second.Add(50 * time.Millisecond), Phase: "AwaitingApproval"}}) {
		got = append(got, m.Kind)
	}
	if diff := cmp.Diff([]MomentKind{MomentEvent, MomentDecision, MomentRun, MomentDecision, MomentCreated}, got); diff != "" {
		t.Errorf("timeline() (-want +got):\n%s", diff)
	}
}

// A failure that is made again and again is one moment, and neither what is decided
// between the attempts nor an event is beside it.
func TestTimelineFoldsWhatFailsAlike(t *testing.T) {
	fails := func(id string, from float64, message string) Report {
		r := ended(id, stack.PlanRun, from, from+1, stack.Failed)
		r.Step, r.Message = "init", message
		return r
	}
	runs := []Report{fails("plan-5", 40, "no such provider"), fails("plan-4", 30, "no such provider"), fails("plan-3", 20, "no such provider"), fails("plan-2", 10, "quota"), ended("plan-1", stack.PlanRun, 1, 2, stack.Succeeded)}
	decided := []Decided{{At: minute(41), Phase: "RetryLimitReached", Message: "Gave up"}}
	for _, m := range []float64{40, 30, 20, 10} {
		decided = append(decided,
			Decided{At: minute(m), Phase: "Planning", Rule: "a failed attempt is retried"},
			Decided{At: minute(m - 9 + 0.001), Phase: "RetryLater", Message: "Failed"})
	}
	events := []Event{{At: minute(41), Type: "Warning", Reason: "TFExecInitFailed", Message: "Failed (attempt 3): no such provider", Count: 1}}
	got := timeline(infra.Dialect{}, anyKind, minute(0), runs, events, decided)
	want := []Moment{
		{At: minute(41), Kind: MomentDecision, Title: "Retry limit reached", Text: "Gave up", Bad: true},
		{At: minute(41), Kind: MomentRun, Title: "Plan failed in the step init", Text: "Failed (attempt 3): no such provider", Rule: "a failed attempt is retried", Run: "plan-5", Outcome: stack.Failed, Took: time.Minute, Count: 3, First: minute(21), Bad: true},
		{At: minute(11), Kind: MomentRun, Title: "Plan failed in the step init", Text: "quota", Rule: "a failed attempt is retried", Run: "plan-2", Outcome: stack.Failed, Took: time.Minute, Bad: true},
		{At: minute(2), Kind: MomentRun, Title: "Plan: no changes", Run: "plan-1", Outcome: stack.Succeeded, Took: time.Minute},
		{At: minute(1.001), Kind: MomentDecision, Title: "Retry later", Text: "Failed", Bad: true}, // of no run that is kept
		{At: minute(0), Kind: MomentCreated, Title: "Created"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("timeline() (-want +got):\n%s", diff)
	}
}

// The run shows the current activity if it is there, otherwise the decision does.
func TestTimelineKeepsDecisionsWithoutARun(t *testing.T) {
	other := ended("apply-1", stack.ApplyRun, 3, 4, stack.Succeeded)
	decided := []Decided{{At: minute(9), Phase: "Planning"}, {At: minute(3.5), Phase: "Applying"}, {At: minute(3), Phase: "Destroying"}, {At: minute(2), Phase: "Planning"}, {At: minute(1), Phase: "Applying"}}
	var got []string
	for _, m := range timeline(infra.Dialect{}, anyKind, minute(0), []Report{other}, nil, decided) {
		got = append(got, m.Title)
	}
	if diff := cmp.Diff([]string{"Planning", "Apply: done", "Planning", "Applying", "Created"}, got); diff != "" {
		t.Errorf("timeline() (-want +got):\n%s", diff)
	}
}

// book is an audit log with fixed entries.
type book struct {
	AuditLog
	entries []AuditEntry
	asked   AuditQuery
	err     error
}

func (b *book) Entries(_ context.Context, _ AuditSight, q AuditQuery) (AuditPage, error) {
	b.asked = q
	return AuditPage{Items: b.entries}, b.err
}

// past is what happened to a stack.
type past struct {
	StackDetails
	moments []Moment
}

func (p past) Timeline(context.Context, Key) ([]Moment, error) { return slices.Clone(p.moments), nil }

func TestToldTimeline(t *testing.T) {
	key := Key{Namespace: "apps", Name: "net"}
	of := func(kind string) AuditObject { return AuditObject{Kind: kind, Namespace: "apps", Name: "net"} }
	d := past{moments: []Moment{{At: minute(5), Kind: MomentRun, Title: "Apply: done", Run: "apply-1"}, {At: minute(0), Kind: MomentCreated, Title: "Created"}}}
	j := &book{entries: []AuditEntry{
		{At: minute(6), What: audit.Suspended, Object: of("Registry"), Who: "ann"},
		{At: minute(3), What: audit.Rejected, Object: of("Terraform"), Who: "ann", Plan: "plan-main-1", Comment: "not on a Friday"},
		{At: minute(2), What: audit.Resumed, Object: of("Terraform")},
	}}
	told := func(d StackDetails, in string) []string {
		t.Helper()
		got, err := ToldTimeline(t.Context(), d, j, AuditSight{In: func(ns string) bool { return ns == in }}, key)
		if !errors.Is(err, j.err) {
			t.Fatal(err)
		}
		var out []string
		for _, m := range got {
			out = append(out, fmt.Sprint(m.Kind, ": ", m.Title, " | ", m.Who, " | ", m.Text))
		}
		return out
	}
	quiet := []string{"run: Apply: done |  | ", "created: Created |  | "}
	if diff := cmp.Diff(quiet, told(d, "other")); diff != "" || j.asked.Stack != "" {
		t.Errorf("ToldTimeline() without the right asked the audit log %+v (-want +got):\n%s", j.asked, diff)
	}
	want := []string{quiet[0], "deed: Rejected | ann | plan-main-1; “not on a Friday”", "deed: Resumed |  | ", quiet[1]}
	if diff := cmp.Diff(want, told(d, "apps")); diff != "" {
		t.Errorf("ToldTimeline() (-want +got):\n%s", diff)
	}
	if j.asked.Kind == nil || *j.asked.Kind != "" {
		t.Errorf("the audit log was asked for the kind %v, want the first one alone", j.asked.Kind)
	}
	if !j.asked.Since.Equal(minute(0)) || j.asked.Namespace != "apps" || j.asked.Stack != "net" {
		t.Errorf("the audit log was asked for %+v, want this stack since it was created", j.asked)
	}
	j.err = errors.New("the disk is gone")
	if diff := cmp.Diff(quiet, told(d, "apps")); diff != "" {
		t.Errorf("ToldTimeline() without an audit log (-want +got):\n%s", diff)
	}
}

// Drift checks that find the same are one moment with their count, whatever was
// decided because of them. A check that finds something else is another moment.
func TestTimelineFoldsEqualDriftChecks(t *testing.T) {
	check := func(id string, from float64, changes int) Report {
		r := ended(id, stack.CheckRun, from, from+1, stack.Succeeded)
		r.Changes = stack.Changes{Change: changes}
		return r
	}
	runs := []Report{check("check-5", 50, 2), check("check-4", 40, 1), check("check-3", 30, 1), check("check-2", 20, 1), check("check-1", 10, 0)}
	decided := []Decided{{At: minute(39), Phase: "Queued"}, {At: minute(31), Phase: "DriftFound"}, {At: minute(11), Phase: "NoDrift"}}
	var got []string
	for _, m := range timeline(infra.Dialect{}, anyKind, minute(0), runs, nil, decided) {
		line := m.Title
		if m.Count > 1 {
			line += fmt.Sprintf(" | %d times from %gm to %gm", m.Count, m.First.Sub(day).Minutes(), m.At.Sub(day).Minutes())
		}
		got = append(got, line)
	}
	want := []string{
		"Drift check: 0 to add, 2 to change, 0 to destroy",
		"Drift check: 0 to add, 1 to change, 0 to destroy | 3 times from 21m to 41m",
		"No drift", "Drift check: no drift", "Created",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("timeline() (-want +got):\n%s", diff)
	}
}

func TestTimelineIsBounded(t *testing.T) {
	var decided []Decided
	for i := range 3 * momentsShown {
		decided = append(decided, Decided{At: day.Add(-time.Duration(i) * time.Second), Phase: "Planning"})
	}
	got := timeline(infra.Dialect{}, anyKind, day.Add(-time.Hour), nil, nil, decided)
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
		"Plan: no changes":                                     at(stack.PlanRun, stack.Succeeded, "", stack.Changes{}),
		"Plan failed in the step init":                         at(stack.PlanRun, stack.Failed, "init", stack.Changes{}),
		"Drift check: no drift":                                at(stack.CheckRun, stack.Succeeded, "", stack.Changes{}),
		"Apply: done":                                          at(stack.ApplyRun, stack.Succeeded, "", stack.Changes{}),
		"Apply: 1 added, 2 imported":                           at(stack.ApplyRun, stack.Succeeded, "", stack.Changes{Add: 1, Import: 2}),
		"Apply: 1 output value changed":                        at(stack.ApplyRun, stack.Succeeded, "", stack.Changes{Outputs: 1}),
		"Destroy: done":                                        at(stack.DestroyRun, stack.Succeeded, "", stack.Changes{Destroy: 2}),
		"Destroy exceeded its timeout and was cancelled":       at(stack.DestroyRun, stack.TimedOut, "destroy", stack.Changes{}),
		"Apply: not applied, the state changed after the plan": at(stack.ApplyRun, stack.Stale, "", stack.Changes{}),
		"Plan: another program holds the lock on the state":    at(stack.PlanRun, stack.Locked, "plan", stack.Changes{}),
		"Plan was cancelled":                                   at(stack.PlanRun, stack.Interrupted, "", stack.Changes{}),
		"Apply was killed":                                     at(stack.ApplyRun, stack.Killed, "", stack.Changes{}),
		"Health check: healthy":                                at(stack.HealthRun, stack.Succeeded, "", stack.Changes{}),
		"Break-glass command: done":                            at(stack.BreakGlassRun, stack.Succeeded, "", stack.Changes{}),
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

// anyKind explains a reason as to a stack of no kind.
func anyKind(r stack.Reason) meaning.Situation { return meaning.Of(r, stack.Words{}) }
