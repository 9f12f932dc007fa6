package command

import (
	"context"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

// A plan that was pending before a failed attempt is not the answer to its request. A
// plan beside an older failure of an apply is.
func TestNotPlanned(t *testing.T) {
	old := &query.PlanInfo{Name: "plan-main-b8e362c206"}
	for name, tt := range map[string]struct {
		of   query.Stack
		fail bool
	}{
		"a new plan":                           {of: query.Stack{Phase: string(stack.AwaitingApproval), Plan: old}},
		"nothing to change":                    {of: query.Stack{Phase: string(stack.Unchanged)}},
		"the plan failed":                      {of: query.Stack{Phase: string(stack.RetryLater), FailedKind: stack.PlanRun}, fail: true},
		"it failed beside an old plan":         {of: query.Stack{Phase: string(stack.RetryLater), FailedKind: stack.PlanRun, Plan: old}, fail: true},
		"a lock was in the way of it":          {of: query.Stack{Phase: string(stack.LockedByOther), FailedKind: stack.PlanRun, Plan: old}, fail: true},
		"the drift check failed beside a plan": {of: query.Stack{Phase: string(stack.RetryLater), FailedKind: stack.CheckRun, Plan: old}, fail: true},
		"the module is invalid":                {of: query.Stack{Phase: string(stack.ModuleInvalid), Stalled: true, FailedKind: stack.PlanRun, Plan: old}, fail: true},
		"no retry is left":                     {of: query.Stack{Phase: string(stack.RetryLimitReached), Stalled: true, FailedKind: stack.PlanRun, Plan: old}, fail: true},
		"the plan was cancelled":               {of: query.Stack{Phase: string(stack.RunCancelled)}, fail: true},
		"it was cancelled beside an old plan":  {of: query.Stack{Phase: string(stack.RunCancelled), Plan: old}, fail: true},
		"a new plan after a failed apply":      {of: query.Stack{Phase: string(stack.RetryLater), FailedKind: stack.ApplyRun, Plan: old}},
		"the same at the limit of the retries": {of: query.Stack{Phase: string(stack.RetryLimitReached), Stalled: true, FailedKind: stack.ApplyRun, Plan: old}},
		"the apply of the new plan failed":     {of: query.Stack{Phase: string(stack.RetryLater), FailedKind: stack.ApplyRun}, fail: true},
		"the reviewers refused the new plan":   {of: query.Stack{Phase: string(stack.ReviewRefused), Stalled: true, Plan: old}},
	} {
		t.Run(name, func(t *testing.T) {
			tt.of.Message = "the reason of it"
			err := NotPlanned(tt.of)
			reason := ""
			switch {
			case !tt.fail:
			case tt.of.Phase == string(stack.RunCancelled):
				reason = "RunCancelled"
			case tt.of.Stalled:
				reason = "Stalled"
			default:
				reason = "Failed"
			}
			if got := fault.Reason(err, ""); got != reason {
				t.Errorf("the reason is %q, want %q", got, reason)
			}
			if tt.fail && (fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), tt.of.Phase+": the reason of it")) || !tt.fail && err != nil {
				t.Errorf("NotPlanned() = %v, want an error that says why: %v", err, tt.fail)
			}
		})
	}
}

// The wait for an answer goes on where a request begins a run.
func TestCannotAnswer(t *testing.T) {
	for name, tt := range map[string]struct {
		of   query.Stack
		want bool
	}{
		"an input is missing":         {query.Stack{Phase: string(stack.InputsFailed), Stalled: true}, true},
		"the controller goes on":      {query.Stack{Phase: string(stack.InputsFailed)}, false},
		"no retry is left":            {query.Stack{Phase: string(stack.RetryLimitReached), Stalled: true}, false},
		"the changes come back":       {query.Stack{Phase: string(stack.NotConverging), Stalled: true}, false},
		"a reviewer refused the plan": {query.Stack{Phase: string(stack.ReviewRefused), Stalled: true}, false},
		"a run found it invalid":      {query.Stack{Phase: string(stack.ModuleInvalid), Stalled: true, Failures: 1}, false},
		"the module cannot be read":   {query.Stack{Phase: string(stack.ModuleInvalid), Stalled: true}, true},
		"untracked resources":         {query.Stack{Phase: string(stack.StateIncomplete), Stalled: true}, false},
		"the same in a deletion":      {query.Stack{Phase: string(stack.StateIncomplete), Stalled: true, Deleting: true}, true},
		"a run goes on":               {query.Stack{Phase: string(stack.InputsFailed), Stalled: true, Run: &query.Running{}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := cannotAnswer(tt.of); got != tt.want {
				t.Errorf("cannotAnswer() = %v, want %v", got, tt.want)
			}
		})
	}
}

// told is a stack as it changes.
type told []query.Stack

func (w told) Watch(context.Context, query.Filter) iter.Seq2[query.Change, error] {
	return func(yield func(query.Change, error) bool) {
		for _, s := range w {
			if !yield(query.Change{Stack: s}, nil) {
				return
			}
		}
	}
}

// While a call waits, each new thing that a stack waits for is told once.
func TestWatching(t *testing.T) {
	waits := query.Stack{Phase: string(stack.InputsFailed), Message: "varsFrom[0]: no key"}
	var got []string
	Watching(t.Context(), told{waits, waits, {Phase: string(stack.Planning)}}, query.Key{}, func(what string) { got = append(got, what) })
	if want := []string{"InputsFailed: varsFrom[0]: no key", "Planning"}; !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
}
