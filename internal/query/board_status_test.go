package query

import (
	"slices"
	"testing"

	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/stack/stacktest"
)

func TestEveryReasonHasAStatus(t *testing.T) {
	all := stacktest.Reasons(t, "../stack")
	for _, r := range all {
		if s, ok := statuses[r]; !ok || s.rank() == len(allStatuses) {
			t.Errorf("%s stands for %q, want one of %v: give it a line in statuses", r, s, Statuses())
		}
	}
	for r := range statuses {
		if !slices.Contains(all, r) {
			t.Errorf("%s has a status and is no reason", r)
		}
	}
}

func TestStatusOf(t *testing.T) {
	run, lock := &Running{ID: "r"}, &stack.Lock{ID: "l"}
	phase := func(r stack.Reason) string { return string(r) }
	for name, c := range map[string]struct {
		stack Stack
		want  Status
	}{
		"a run goes on":                             {Stack{Phase: phase(stack.Planning), Run: run}, StatusRunning},
		"a run waits for its turn":                  {Stack{Phase: phase(stack.Queued)}, StatusWaiting},
		"an approved plan waits for its turn":       {Stack{Phase: phase(stack.Queued), Pending: "plan-a"}, StatusWaiting},
		"a run is being started":                    {Stack{Phase: phase(stack.Planning)}, StatusRunning},
		"outputs are written without a run":         {Stack{Phase: phase(stack.Publishing)}, StatusRunning},
		"a first look for drift shows no run":       {Stack{Phase: phase(stack.Checking)}, StatusRunning},
		"a retry that waits":                        {Stack{Phase: phase(stack.RetryLater), Failures: 1}, StatusFailed},
		"a retry that runs does not blink":          {Stack{Phase: phase(stack.Planning), Run: run, Failures: 2}, StatusFailed},
		"a failure does not hide a plan that waits": {Stack{Phase: phase(stack.AwaitingApproval), Pending: "plan-a", Failures: 1}, StatusPending},
		"a failure with a plan that waits":          {Stack{Phase: phase(stack.RetryLater), Pending: "plan-a", Failures: 1}, StatusFailed},
		"a Secret is not there yet":                 {Stack{Phase: phase(stack.InputsFailed)}, StatusWaiting},
		"a Secret does not fit":                     {Stack{Phase: phase(stack.InputsFailed), Stalled: true}, StatusFailed},
		"a lock is met":                             {Stack{Phase: phase(stack.LockedByOther), Failures: 3, Lock: lock}, StatusLocked},
		"a lock is tried again":                     {Stack{Phase: phase(stack.Planning), Run: run, Failures: 3, Lock: lock}, StatusLocked},
		"a lock exhausted the retries":              {Stack{Phase: phase(stack.RetryLimitReached), Stalled: true, Failures: 3, Lock: lock}, StatusFailed},
		"a rest with a known drift":                 {Stack{Phase: phase(stack.DriftFound), Pending: "plan-a"}, StatusDrifted},
		"suspended before the controller looked":    {Stack{Phase: phase(stack.AwaitingApproval), Pending: "plan-a", Suspended: true}, StatusSuspended},
		"suspended after a failure":                 {Stack{Phase: phase(stack.Suspended), Suspended: true, Failures: 4}, StatusSuspended},
		"suspended while its run ends":              {Stack{Phase: phase(stack.Applying), Suspended: true, Run: run}, StatusRunning},
		"a person works by hand":                    {Stack{Phase: phase(stack.BreakGlassSession)}, StatusSuspended},
		"a command of a person runs":                {Stack{Phase: phase(stack.BreakGlassSession), Run: run}, StatusRunning},
		"deleted and taken down":                    {Stack{Phase: phase(stack.Destroying), Run: run, Deleting: true}, StatusDeleting},
		"deleted and waiting for others":            {Stack{Phase: phase(stack.DeletionBlocked), Stalled: true, Deleting: true}, StatusDeleting},
		"deleted before the controller looked":      {Stack{Phase: phase(stack.Applied), Deleting: true}, StatusDeleting},
		"deleted and suspended":                     {Stack{Phase: phase(stack.Applied), Deleting: true, Suspended: true}, StatusDeleting},
		"deleted, and its destroy fails":            {Stack{Phase: phase(stack.RetryLater), Failures: 1, Deleting: true}, StatusFailed},
		"deleted, and somebody has to approve":      {Stack{Phase: phase(stack.AwaitingApproval), Pending: "plan-a", Deleting: true}, StatusPending},
		"new":                                       {Stack{Ready: "Unknown"}, StatusWaiting},
		"left by upstream, ready":                   {Stack{Ready: "True"}, StatusReady},
		"left by upstream, with a plan":             {Stack{Ready: "Unknown", Pending: "plan-a"}, StatusPending},
		"left by upstream, failed":                  {Stack{Ready: "False", Failures: 2}, StatusFailed},
		"a phase of a newer version":                {Stack{Phase: "Levitating", Ready: "True"}, StatusReady},
		"stalled whatever it is called":             {Stack{Phase: "Levitating", Ready: "False", Stalled: true}, StatusFailed},
	} {
		t.Run(name, func(t *testing.T) {
			if got := statusOf(c.stack); got != c.want {
				t.Errorf("statusOf() = %q, want %q", got, c.want)
			}
		})
	}
}
