package query

import (
	"cmp"

	"github.com/terrier-iac/terrier/internal/stack"
)

// statuses is the status that each reason stands for, before it is known what
// else there is to say about the stack. A test sees to it that none is missing.
var statuses = map[stack.Reason]Status{
	stack.Planning:       StatusRunning,
	stack.Checking:       StatusRunning,
	stack.Applying:       StatusRunning,
	stack.Destroying:     StatusRunning,
	stack.Cancelling:     StatusRunning,
	stack.Unlocking:      StatusRunning,
	stack.Publishing:     StatusRunning,
	stack.Reviewing:      StatusRunning,
	stack.Previewing:     StatusRunning,
	stack.CheckingHealth: StatusRunning,

	stack.Deleting:        StatusDeleting,
	stack.DeletionBlocked: StatusDeleting, // by stacks that are often on their way out, too

	stack.Queued:             StatusWaiting,
	stack.SourceNotReady:     StatusWaiting,
	stack.InputsFailed:       StatusWaiting, // for a Secret that is not there yet; stalled if it does not fit
	stack.DependencyNotReady: StatusWaiting,
	stack.SourceDebounced:    StatusWaiting,
	stack.ApplyWithheld:      StatusWaiting, // for a time that policies allow

	stack.PrerequisiteMissing: StatusWaiting,
	stack.RunningSteps:        StatusRunning,
	stack.StepsFailed:         StatusFailed,
	stack.StepsHeld:           StatusPending,
	stack.RolledBack:          StatusFailed,

	stack.SpecInvalid:       StatusFailed,
	stack.SourceDenied:      StatusFailed,
	stack.SourceFailed:      StatusFailed,
	stack.ModuleInvalid:     StatusFailed,
	stack.EngineMissing:     StatusFailed,
	stack.StateFailed:       StatusFailed,
	stack.OutputsFailed:     StatusFailed,
	stack.StartFailed:       StatusFailed,
	stack.RetryLater:        StatusFailed,
	stack.RetryLimitReached: StatusFailed,
	stack.DestroyFailed:     StatusFailed,
	stack.NoDestroyScript:   StatusFailed,
	stack.RunCancelled:      StatusFailed,
	stack.StateIncomplete:   StatusFailed,
	stack.NotConverging:     StatusFailed,
	stack.StateTampered:     StatusFailed,
	stack.StateRegressed:    StatusFailed,
	stack.StateMissing:      StatusFailed,
	stack.StateShared:       StatusFailed,
	stack.StateNotAdopted:   StatusFailed,
	stack.ReviewRefused:     StatusFailed,
	stack.StatusUnreadable:  StatusFailed,

	stack.LockedByOther:    StatusLocked,
	stack.AwaitingApproval: StatusPending,
	stack.PlanRejected:     StatusRejected,
	stack.PlanOnlyHeld:     StatusPending, // planOnly prevents an approval, and the plan is pending
	stack.DriftFound:       StatusDrifted,

	stack.Suspended:         StatusSuspended,
	stack.BreakGlassSession: StatusSuspended, // a break-glass session

	stack.Applied:        StatusReady,
	stack.Unchanged:      StatusReady,
	stack.NoDrift:        StatusReady,
	stack.OutputsWritten: StatusReady,
	stack.Destroyed:      StatusReady,
	stack.NothingLeft:    StatusReady,
}

// statusOf is the status of s in one word. A stack that failed is shown as that
// while it is tried again, so that nothing blinks; a suspended one is shown as
// suspended, also after a failure.
func statusOf(s Stack) Status {
	st, known := statuses[stack.Reason(s.Phase)]
	if !known {
		st = statusOutside(s)
	}
	switch {
	case s.Phase == string(stack.BreakGlassSession) && s.Run != nil:
		st = StatusRunning
	case s.Stalled && (st == StatusWaiting || st == StatusRunning):
		st = StatusFailed
	case s.Lock != nil && (st == StatusWaiting || st == StatusRunning):
		st = StatusLocked
	case s.Failures > 0 && (st == StatusWaiting || st == StatusRunning):
		st = StatusFailed
	}
	switch {
	case s.Deleting:
		return whileDeleted(st)
	case s.Suspended && s.Run == nil:
		return StatusSuspended // also before a reconcile
	default:
		return st
	}
}

// whileDeleted is the status of a stack whose object goes away.
func whileDeleted(st Status) Status {
	switch st {
	case StatusFailed, StatusLocked, StatusPending, StatusRejected:
		return st
	default:
		return StatusDeleting
	}
}

// statusOutside is the status of a stack that Terrier has not reconciled
// yet: of a new one, or of one that upstream's left.
func statusOutside(s Stack) Status {
	switch {
	case s.Pending != "":
		return StatusPending
	case s.Ready == "True":
		return StatusReady
	case s.Ready == "False" && s.Failures > 0:
		return StatusFailed
	default:
		return StatusWaiting
	}
}

// rank is the place of s in Statuses.
func (s Status) rank() int {
	for i, other := range allStatuses {
		if s == other {
			return i
		}
	}
	return len(allStatuses)
}

// allStatuses is Statuses as an array, for counting.
var allStatuses = [...]Status{StatusFailed, StatusLocked, StatusPending, StatusRejected, StatusDrifted, StatusRunning, StatusWaiting, StatusDeleting, StatusSuspended, StatusReady}

// tally counts rows by status.
type tally [len(allStatuses)]int

func (t tally) total() (n int) {
	for _, c := range t {
		n += c
	}
	return n
}

// counts leaves out what there is none of.
func (t tally) counts() map[Status]int {
	out := make(map[Status]int, len(t))
	for i, n := range t {
		if n > 0 {
			out[allStatuses[i]] = n
		}
	}
	return out
}

func rowOf(s Stack, tenantLabel string) Row {
	if v := s.Verdict; v != nil { // its message names the first of them
		s.Verdict = &Verdict{Effect: v.Effect, At: v.At, More: v.More + len(v.Findings)}
	}
	return Row{
		Stack: s, Status: statusOf(s), Delta: deltaOf(s),
		Tenant: cmp.Or(s.Labels[tenantLabel], s.Namespace),
	}
}

// deltaOf is what the newest plan that counts would change, or changed.
func deltaOf(s Stack) *stack.Changes {
	switch {
	case s.Plan != nil:
		return &s.Plan.Changes
	case s.Drift != nil:
		return &s.Drift.Changes
	case s.Applied != nil:
		return &s.Applied.Changes
	default:
		return nil
	}
}
