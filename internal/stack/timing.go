package stack

import "time"

// When something is to be done. A clock that jumps makes nothing wait for ever.

type clock struct{ now time.Time }

func (o Observation) clock() clock { return clock{o.Now} }

// past is t, or the zero time if t is further ahead than a wait is long: then the
// clock was wrong when t was written down, or is now, and t says nothing. A clock
// that was set back by less makes a stack wait longer, by no more than that wait.
func (c clock) past(t time.Time, wait time.Duration) time.Time {
	if t.Sub(c.now) > wait {
		return time.Time{}
	}
	return t
}

// left is how much is left of a wait that began at since.
func (c clock) left(since time.Time, wait time.Duration) time.Duration {
	return max(0, c.past(since, wait).Add(wait).Sub(c.now))
}

// checkKind is the kind of run that finds drift once the interval has passed.
func (s Spec) checkKind() RunKind {
	if s.Force || !s.CheckDrift && s.Mode != DriftOnly {
		return PlanRun
	}
	return CheckRun
}

// untilCheck is how long it is until the next drift check.
func (o Observation) untilCheck() time.Duration {
	if stateInDoubt(o) {
		return 0
	}
	last, every := lastCheck(o)
	if left := o.clock().left(last, every); left > 0 {
		return left
	}
	return max(0, o.BudgetUntil.Sub(o.Now))
}

// stateInDoubt reports whether something else wrote the state during the apply: the next run
// finds out what is stored.
func stateInDoubt(o Observation) bool {
	m := o.Status
	return m.KnownState.Unstored && !m.PlannedAt.After(m.AppliedAt) && !o.CheckedAt.After(m.AppliedAt)
}

// DueCheck returns since when a drift check of the stack is due that only the interval asks for,
// and the pause before it. Only such a check may wait for a budget. It is not ok if the stack does
// something else now: nothing, a run that a user requests, or a plan.
func DueCheck(o Observation) (due time.Time, pause time.Duration, ok bool) {
	if o.BudgetUntil = (time.Time{}); stateInDoubt(o) {
		return time.Time{}, 0, false
	}
	if a, starts := Decide(o).Action.(Start); !starts || a.Kind != CheckRun || a.Why != intervalPassed {
		return time.Time{}, 0, false
	}
	last, pause := lastCheck(o)
	if last.IsZero() {
		return time.Time{}, pause, true
	}
	return last.Add(pause), pause, true
}

// lastCheck is when it was seen last what is there, and how long after that drift is checked.
func lastCheck(o Observation) (last time.Time, every time.Duration) {
	if paced(o.Spec) {
		return lastPaced(o)
	}
	every = o.Spec.Interval
	c := o.clock()
	planned, applied, checked := c.past(o.Status.PlannedAt, every), c.past(o.Status.AppliedAt, o.Spec.firstCheck()), c.past(o.CheckedAt, every)
	last = planned
	if !applied.Before(last) && !applied.IsZero() {
		last, every = applied, o.Spec.firstCheck()
	}
	if checked.After(last) {
		last, every = checked, o.Spec.Interval
	}
	return last, every
}

// firstCheck is how long after an apply drift is checked first: an interval, less
// up to half of it. Stacks that were applied together are not checked together, now
// or after a restart, since the checks that follow keep their distance.
func (s Spec) firstCheck() time.Duration {
	if s.Interval < time.Minute {
		return s.Interval
	}
	const steps = 1 << 16
	return s.Interval - time.Duration(s.Spread%steps)*(s.Interval/2/steps)
}

// debounce is how long after a plan for another source the next one is put off, so
// that thirty commits in ten seconds are two plans.
const debounce = 10 * time.Second

// untilDebounced is how long a plan for another source is put off.
func (o Observation) untilDebounced() time.Duration {
	if o.requested() || o.Status.Rollback != nil || o.Status.SourceChangedAt.IsZero() {
		return 0
	}
	return o.clock().left(o.Status.SourceChangedAt, debounce)
}

// untilRetry is how much of the wait after a failure is left.
func (o Observation) untilRetry() time.Duration {
	m := o.Status
	if m.Failures == 0 || o.requested() || acceptedMissing(o) {
		return 0
	}
	if (!o.Deleting || o.Corrected) && !m.FailedFor.same(o.PlanInputs) {
		return 0 // what failed is not what would be tried now
	}
	if m.otherPod(o.Pod) {
		return 0
	}
	return o.clock().left(m.FailedAt, o.Spec.retryAfter(m.Failures))
}

// retryAfter is the pause before retry number n, from 1.
func (s Spec) retryAfter(n int) time.Duration {
	d := s.RetryEvery
	if s.Backoff != Exponential {
		return d
	}
	for range n - 1 {
		if d >= s.RetryMax/2 { // doubling would overshoot the cap, or overflow
			return s.RetryMax
		}
		d *= 2
	}
	return min(d, s.RetryMax)
}

// exhausted reports whether the retries that the user granted are used up. The
// first attempt is not a retry.
func (o Observation) exhausted() bool {
	m := o.Status
	return o.Spec.MaxRetries != nil && m.Failures > *o.Spec.MaxRetries &&
		m.FailedFor.same(o.PlanInputs) && !m.otherPod(o.Pod) && !o.requested() && !acceptedMissing(o)
}

// beyondRetry reports whether the last failure would only come again: the
// configuration and its variables are to blame, and are the same.
func beyondRetry(o Observation) bool {
	m := o.Status
	return m.Permanent && m.Failures > 0 && m.Lock == nil && m.FailedFor.same(o.PlanInputs) && !o.requested() && !o.Deleting
}

// Recheck is the interval at which a stack that waits as d says is reconciled while
// nothing changes; zero if only an event or a person ends the wait. It is the same
// however often d is made.
func (o Observation) Recheck(d Decision) time.Duration {
	w, waits := d.Action.(Wait)
	switch {
	case d.Reason.Settled() && o.Status.Destroyed && o.Spec.Destroy:
		return 0
	case d.Reason == PlanRejected && o.Status.Drift == nil, d.Reason == PlanRejected && o.Deleting:
		return 0
	case d.Reason.Settled(), d.Reason == NotConverging, d.Reason == StepsFailed, d.Reason == StepsHeld, d.Reason == RolledBack, d.Reason == DriftFound, d.Reason == PlanRejected, d.Reason == RetryLimitReached && o.degraded():
		return o.Spec.Interval // also during a drift check
	case waits && w.For == 0, o.running():
		return 0
	case !waits, o.Status.Failures > 0, d.Reason == SourceDebounced, d.Reason == ReviewRefused, d.Reason == ApplyWithheld, d.Reason == AwaitingApproval, d.Reason == BreakGlassSession:
		return 0 // at a time of its own
	default:
		return o.Spec.RetryEvery
	}
}

// Retry is when what failed is tried again, if d waits for that; else zero. It is
// the same however often d is made.
func (o Observation) Retry(d Decision) time.Time {
	switch w, waits := d.Action.(Wait); {
	case !waits || w.For == 0 || o.Status.Failures == 0 || d.Reason == RetryLimitReached:
		return time.Time{}
	case o.degraded(): // which may check drift before
		return o.Status.FailedAt.Add(o.Spec.retryAfter(o.Status.Failures))
	default:
		return o.Status.FailedAt.Add(w.For + o.Now.Sub(o.Status.FailedAt))
	}
}
