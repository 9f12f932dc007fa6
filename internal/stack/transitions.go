package stack

import (
	"strings"
	"time"
)

// Change names what a transition is about.
type Change string

const (
	RunEnded          Change = "RunEnded"          // a run ended, whatever came of it
	CommandEnded      Change = "CommandEnded"      // a command of a break-glass session was run, or could not be
	PlanMade          Change = "PlanMade"          // a plan with changes was made
	PlanStale         Change = "PlanStale"         // a saved plan did not fit the state any more, and was not applied
	PlanApplied       Change = "PlanApplied"       // a plan was applied
	ScriptRan         Change = "ScriptRan"         // the script of a stack was run
	StackDestroyed    Change = "StackDestroyed"    // everything in the state was destroyed
	AttemptFailed     Change = "AttemptFailed"     // a run failed, or could not begin
	StackRecovered    Change = "StackRecovered"    // a run succeeded after others failed
	LockBroken        Change = "LockBroken"        // a state lock of another holder was broken
	LockHeld          Change = "LockHeld"          // another holder has had the state lock for long
	DriftResolved     Change = "DriftResolved"     // drift that was known is no more
	UntrackedFound    Change = "UntrackedFound"    // a run left untracked resources
	ChecksFailed      Change = "ChecksFailed"      // a check block fails that did not before
	ChecksPassed      Change = "ChecksPassed"      // no check block fails any more
	PlanReviewed      Change = "PlanReviewed"      // the reviewers answered, or could not be asked
	StepsEnded        Change = "StepsEnded"        // the steps after an apply were run
	RollbackBegan     Change = "RollbackBegan"     // inputs of an earlier apply take the place of those that are asked for
	RollbackEnded     Change = "RollbackEnded"     // something else is asked for, or a user ended it
	BreakGlassStarted Change = "BreakGlassStarted" // a break-glass session began
	BreakGlassEnded   Change = "BreakGlassEnded"   // it ended
)

// Transition is one thing that a pass changed. The fields that are set follow from
// the change.
type Transition struct {
	Change    Change
	Run       *Run       // that ended and brought it about; nil if none did
	Plan      *Plan      // that was made, applied or reviewed
	Repeated  bool       // the same was so before: the next of a series
	Failures  int        // attempts that failed: with this one, or before the recovery
	Drift     *Drift     // that was resolved
	How       Resolution // how it was
	Untracked *Untracked
	Blocks    *FailingCheckBlocks // that fail now, or failed before
	Verdict   *Verdict
	Rollback  *Rollback
	Session   *BreakGlass
	Command   *CommandResult
	Lock      *Lock
}

// Resolution is how drift was resolved.
type Resolution string

const (
	WentAway   Resolution = "WentAway"   // the resources are again as they were applied
	Remediated Resolution = "Remediated" // an apply took the place of it
	Replaced   Resolution = "Replaced"   // a plan of something new is pending, and tells the two apart no more
)

// Transitions says what is different between two statuses of a stack, and what the
// run did that ended in between; nil if none did. It is worked out once: the audit
// log, events, notifications and metrics are made from this list.
func Transitions(was, is Status, ended *Run) []Transition {
	var out []Transition
	switch {
	case ended != nil && ended.ID != was.LastRun:
		out = outcome(was, is, ended)
	case is.Failures > was.Failures: // something came in the way of a run before it began
		out = append(out, Transition{Change: AttemptFailed, Failures: is.Failures, Lock: is.Lock, Repeated: !failsAgain(was, is)})
	}
	if c := is.LastCommand; ended == nil && c != nil && (was.LastCommand == nil || was.LastCommand.Run != c.Run) {
		out = append(out, Transition{Change: CommandEnded, Command: c})
	}
	if was.Drift != nil && is.Drift == nil && !unapplied(is, ended) {
		out = append(out, Transition{Change: DriftResolved, Drift: was.Drift, How: resolved(was, is)})
	}
	if u := is.Untracked; u != nil && (was.Untracked == nil || was.Untracked.Run != u.Run) {
		out = append(out, Transition{Change: UntrackedFound, Untracked: u})
	}
	switch f, before := is.FailingCheckBlocks, was.FailingCheckBlocks; {
	case f != nil && f.newAmong(before):
		out = append(out, Transition{Change: ChecksFailed, Run: ended, Blocks: f})
	case f == nil && before != nil && !is.Destroyed:
		out = append(out, Transition{Change: ChecksPassed, Run: ended, Blocks: before})
	}
	if v := is.Review; v != nil && is.Pending != nil && !v.says(was.Review) {
		same := was.Review != nil && was.Review.Plan == v.Plan && was.Review.Refused == v.Refused && was.Review.Digest == v.Digest
		out = append(out, Transition{Change: PlanReviewed, Verdict: v, Plan: is.Pending, Repeated: same})
	}
	if l := is.Lock; l != nil && l.old() && !(was.Lock != nil && was.Lock.ID == l.ID && was.Lock.old()) {
		out = append(out, Transition{Change: LockHeld, Lock: l})
	}
	switch b, before := is.Rollback, was.Rollback; {
	case b != nil && (before == nil || !before.At.Equal(b.At) || before.From != b.From):
		out = append(out, Transition{Change: RollbackBegan, Rollback: b})
	case b == nil && before != nil:
		out = append(out, Transition{Change: RollbackEnded, Rollback: before})
	}
	switch s := is.BreakGlass; {
	case s != nil && (was.BreakGlass == nil || was.BreakGlass.Session != s.Session):
		out = append(out, Transition{Change: BreakGlassStarted, Session: s})
	case s == nil && was.BreakGlass != nil:
		out = append(out, Transition{Change: BreakGlassEnded, Session: was.BreakGlass})
	}
	return out
}

// outcome says what a run that ended did.
func outcome(was, is Status, r *Run) []Transition {
	out := []Transition{{Change: RunEnded, Run: r}}
	add := func(t Transition) { t.Run = r; out = append(out, t) }
	switch {
	case r.Kind == BreakGlassRun:
		add(Transition{Change: CommandEnded, Command: is.LastCommand})
	case r.Kind == StepsRun:
		return append(out, Transition{Change: StepsEnded, Run: r})
	case r.Kind == PreviewRun, r.Outcome == Interrupted && !r.Kind.Writes(): // nothing happened, nothing failed
	case r.Outcome == Stale:
		add(Transition{Change: PlanStale, Plan: r.Cause.Plan})
	case r.Outcome != Succeeded:
		add(Transition{Change: AttemptFailed, Failures: is.Failures, Repeated: !failsAgain(was, is)})
	case r.Kind == DestroyRun:
		add(Transition{Change: StackDestroyed})
	case r.Kind == ScriptRun:
		add(Transition{Change: ScriptRan, Plan: r.Cause.Plan})
	case r.Kind == ApplyRun:
		add(Transition{Change: PlanApplied, Plan: r.Cause.Plan})
	case r.Plan != nil:
		add(Transition{Change: PlanMade, Plan: r.Plan, Repeated: was.Pending != nil && was.Pending.Digest == r.Plan.Digest})
	}
	if r.Outcome == Succeeded && was.Failures > 0 && is.Failures == 0 {
		add(Transition{Change: StackRecovered, Failures: was.Failures})
	}
	if r.Broke != "" {
		add(Transition{Change: LockBroken})
	}
	return out
}

// failsAgain reports whether a failure is the first of its sort, and not the next
// of a series.
func failsAgain(was, is Status) bool {
	return was.Failures == 0 || is.Failures == 1 || was.FailedKind != is.FailedKind || was.FailedStep != is.FailedStep || was.FailedWhy != is.FailedWhy
}

// unapplied reports whether a script ran for a plan and changed nothing: whether the drift
// is gone is for the next drift check to say.
func unapplied(is Status, ended *Run) bool {
	return is.Unapplied && ended != nil && ended.Kind == ScriptRun
}

func resolved(was, is Status) Resolution {
	switch {
	case is.LastWrite != was.LastWrite:
		return Remediated
	case is.Pending != nil:
		return Replaced
	default:
		return WentAway
	}
}

// says reports whether two verdicts say the same of the same plan.
func (v Verdict) says(other *Verdict) bool {
	return other != nil && other.Plan == v.Plan && other.Passed == v.Passed && other.Held == v.Held && other.Digest == v.Digest && other.Message == v.Message
}

// oldLock is how long another holder may have the state lock before people are
// told: a run of another tool may take its time.
const oldLock = 10 * time.Minute

// old reports whether the lock had been held for long when it was met. A lock that
// does not say since when is taken for an old one.
func (l Lock) old() bool {
	since := strings.TrimSuffix(l.Since, " UTC")
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999 -0700", "2006-01-02 15:04:05.999999999"} {
		if at, err := time.Parse(layout, since); err == nil {
			return l.Seen.Sub(at) >= oldLock
		}
	}
	return true
}
