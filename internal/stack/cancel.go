package stack

import (
	"fmt"
	"time"
)

// Cancellation is a run that a person cancelled. The engine is interrupted once, and
// has until then to end what it began and to write the state.
type Cancellation struct {
	Run   string    `json:"run"`
	By    string    `json:"by,omitempty"` // if known
	At    time.Time `json:"at"`           // of the interrupt
	Until time.Time `json:"until"`        // when the engine is killed

	Unknown string `json:"unknown,omitempty"` // why By is not known

	// Once it ended without success.
	Ended   time.Time  `json:"ended,omitzero"`
	Kind    RunKind    `json:"kind,omitempty"`
	For     PlanInputs `json:"for,omitzero"`
	Outcome Outcome    `json:"outcome,omitempty"`
}

// answers reports whether a run only answers a request of a user, as a preview and a
// break-glass command do.
func (k RunKind) answers() bool { return k == PreviewRun || k == BreakGlassRun }

// ended is the cancellation after the run r: nil if r is another run, or succeeded all
// the same.
func (c *Cancellation) ended(r Run) *Cancellation {
	if c == nil || c.Run != r.ID || r.Outcome == Succeeded {
		return nil
	}
	out := *c
	out.Ended, out.Kind, out.For, out.Outcome = r.At, r.Kind, r.Cause.PlanInputs, r.Outcome
	return &out
}

// Asked is the cancellation of a run that is interrupted now, and how long it may take
// to end. The first interrupt of a run counts.
func (c *Cancellation) Asked(run string, by Author, now time.Time, grace time.Duration) *Cancellation {
	if c != nil && c.Run == run {
		return c
	}
	return &Cancellation{Run: run, By: by.Name, Unknown: by.Unknown, At: now, Until: now.Add(grace)}
}

// Author is the user of a request, if a stamp of the API server names the user.
type Author struct {
	Name    string
	Unknown string // why no stamp does
}

// whose says by whom the run was cancelled.
func (c *Cancellation) whose() string {
	if c.By == "" && c.Unknown != "" {
		return " by an unknown user (" + c.Unknown + ")"
	}
	return by(c.By)
}

// Cancelling notes that a run is interrupted now. That of a run which only answers a
// request does not take the place of an earlier one: what was cancelled then is still not
// to be repeated.
func (a Answers) Cancelling(run Run, by Author, now time.Time, grace time.Duration) Answers {
	if c := a.Cancelled; c != nil && c.Run != run.ID && run.Kind.answers() && !c.Kind.answers() {
		a.CancelledBefore = c
	}
	a.Cancelled = a.Cancelled.Asked(run.ID, by, now, grace)
	return a
}

// endOf is what is known of cancellations after the run r.
func (a Answers) endOf(r Run) Answers {
	c := a.Cancelled
	if r.Kind.answers() && (c == nil || c.Run != r.ID) {
		return a // it answers a request of its own
	}
	a.Cancelled = c.ended(r)
	if r.Kind.answers() && a.CancelledBefore != nil {
		a.Cancelled = a.CancelledBefore
	}
	a.CancelledBefore = nil
	return a
}

// cancels reports whether a person wants the run that goes on to be cancelled.
func cancels(o Observation) bool { return o.running() && o.Spec.Cancel == o.Run.ID }

// cancelling says until when the engine may go on. It is the same however often the
// run is cancelled.
func cancelling(o Observation) Decision {
	d := Decision{Action: Cancel{o.Run.ID}, Ready: Reconciling, Reason: Cancelling, Message: fmt.Sprintf("Cancelling the %s %s, as a user requested", o.Run.Kind.noun(), o.Run.ID)}
	if c := o.Status.Cancelled; c != nil && c.Run == o.Run.ID {
		d.Message += fmt.Sprintf("%s: the engine was interrupted at %s, and has until %s to end its operations and to write the state; after that it is killed",
			c.whose(), c.At.UTC().Format(time.RFC3339), c.Until.UTC().Format(time.RFC3339))
	}
	return d
}

// calledOff reports whether the last run was cancelled, and nothing is new since: no
// request, no change of what a run would be made from, no approval. A check is made
// again after its interval.
func calledOff(o Observation) bool {
	c := o.Status.Cancelled
	switch {
	case c == nil || c.Ended.IsZero() || o.requested() || o.pendingIsCurrent() && o.named():
		return false
	case o.Deleting:
		return !o.Corrected && (c.Kind.Writes() || c.Kind == PlanRun)
	case !c.For.same(o.PlanInputs):
		return false
	case c.Kind == CheckRun || c.Kind == HealthRun:
		return o.clock().left(c.Ended, o.Spec.Interval) > 0
	default:
		return c.Kind == PlanRun || c.Kind == ApplyRun || c.Kind == ScriptRun || c.Kind == DestroyRun
	}
}

// cancelled says what is known of the run, and how to go on.
func cancelled(o Observation) Decision {
	c := o.Status.Cancelled
	msg := fmt.Sprintf("The %s %s was cancelled%s, and ended %s at %s.", c.Kind.noun(), c.Run, c.whose(), c.Outcome, c.Ended.UTC().Format(time.RFC3339))
	if c.Kind.Writes() {
		msg += " What it had done by then is done, and is in the state; terrier logs has the log."
	}
	msg += " Terrier does not repeat it. To go on: terrier replan."
	if !o.Deleting {
		msg += " A change of the module or its inputs makes a new plan as well."
	}
	d := Decision{Action: Wait{}, Ready: Held, Reason: RunCancelled, Message: msg}
	if c.Kind == CheckRun || c.Kind == HealthRun {
		d.Action = Wait{o.clock().left(c.Ended, o.Spec.Interval)}
	}
	return d
}
