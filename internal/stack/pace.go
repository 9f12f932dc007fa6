package stack

import (
	"cmp"
	"fmt"
	"time"

	"github.com/terrier-iac/terrier/internal/policy"
)

// A policy may have the pauses between drift checks follow from risk: a stack that has just
// changed is the likeliest to change again, and one that nothing happened to for a month is not
// checked every hour.

// paceShare is the part of the time since something happened that a pause takes. It bounds how
// late drift is found: by an eighth of the time for which the stack had been left alone.
const paceShare = 8

// paced reports whether the drift checks of a stack follow from what happened to it.
func paced(s Spec) bool { return s.Drift.Pace.On() && s.checkKind() == CheckRun }

// paceBounds are the shortest and the longest pause of a stack. Without a longest one no pause is
// longer than the interval, whatever the shortest is: a manifest keeps its meaning unless an operator
// says how seldom is enough.
func paceBounds(s Spec) (shortest, longest time.Duration) {
	longest = cmp.Or(s.Drift.Pace.Max, s.Interval)
	return min(cmp.Or(s.Drift.Pace.Min, s.Interval), longest), longest
}

// earliest is the least that spreading leaves of a pause.
func earliest(pause time.Duration) time.Duration { return pause - pause/4 }

// Pause is how long a stack waits after a drift check at a time. It is the shortest pause right
// after something happened, and grows with the time since, up to the longest one. The number of
// the stack spreads the checks of stacks to which the same thing happened: by up to a quarter, and
// never over the bounds.
func Pause(o Observation, checked time.Time) time.Duration {
	if !paced(o.Spec) {
		return o.Spec.Interval
	}
	shortest, longest := paceBounds(o.Spec)
	happened, _ := lastEvent(o, checked)
	if happened.IsZero() {
		return min(max(shortest, o.Spec.Interval), longest)
	}
	pause := min(max(shortest, max(0, checked.Sub(happened))/paceShare), longest)
	const steps = 1 << 16
	return pause - time.Duration(o.Spec.Spread%steps)*(pause/4/steps)
}

// lastEvent is when the stack drifted, was applied or was planned from other inputs, before a
// time, and which of these; zero if that is not known.
func lastEvent(o Observation, before time.Time) (last time.Time, what string) {
	for _, event := range []struct {
		at   time.Time
		what string
	}{{o.Status.PlannedAt, "it was planned"}, {o.Status.AppliedAt, "it was applied"}, {o.DriftedAt, "a drift check found drift"}} {
		if event.at.After(last) && !event.at.After(before) {
			last, what = event.at, event.what
		}
	}
	return last, what
}

// lastPaced is lastCheck of a stack whose pauses follow from what happened. A time that is further
// ahead than the shortest pause is long is of a clock that was wrong: it would be past any pause
// after it, and the stack would be checked again and again until that time has come.
func lastPaced(o Observation) (last time.Time, pause time.Duration) {
	shortest, _ := paceBounds(o.Spec)
	c := o.clock()
	for _, at := range []time.Time{o.Status.PlannedAt, o.Status.AppliedAt, o.CheckedAt} {
		if at = c.past(at, earliest(shortest)); at.After(last) {
			last = at
		}
	}
	return last, Pause(o, last)
}

// NextCheck is when drift of a stack that is settled is checked next, and why then; why is empty if
// that is the interval of the stack. The time is zero if no check is known after which it would be.
func NextCheck(o Observation) (at time.Time, why string) {
	if o.Spec.checkKind() != CheckRun {
		return time.Time{}, ""
	}
	last, pause := lastCheck(o)
	if last.IsZero() {
		return time.Time{}, ""
	}
	return last.Add(pause), pauseWhy(o, last)
}

// pauseWhy says why the pause after a check at a time is as long as it is; empty if it is the
// interval of the stack.
func pauseWhy(o Observation, checked time.Time) string {
	if !paced(o.Spec) {
		return ""
	}
	shortest, longest := paceBounds(o.Spec)
	bounds := fmt.Sprintf("spec.drift.interval of %s has pauses from %s to %s", o.Spec.Drift.Pace.Policy, policy.Plainly(shortest), policy.Plainly(longest))
	happened, what := lastEvent(o, checked)
	if happened.IsZero() {
		return bounds + ", and it is not known when something happened to the stack last"
	}
	return fmt.Sprintf("%s, and the pause is an eighth of the time since %s at %s", bounds, what, happened.UTC().Format(time.RFC3339))
}
