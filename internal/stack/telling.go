package stack

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/terrier-iac/terrier/internal/fault"
)

// How decisions are put into words. Each is the same however often it is made.

func (o Observation) blocked(b Blocked) Decision {
	d := Decision{Ready: Reconciling, Reason: b.Reason, Message: b.Message}
	after := b.After
	if after == 0 {
		after = o.Spec.RetryEvery
	}
	if b.Kind.Meaning().Stalled {
		d.Ready = Stalled
	}
	if b.Kind == fault.Invalid {
		after = 0 // it gets better when the object changes
	}
	d.Action = Wait{after}
	return d
}

// obstructed says what came in the way. It is tried again whatever it was: what a
// person has to change may be in another object than this one.
func (o Observation) obstructed(b Blocked) Decision {
	d := Decision{Action: Wait{o.Spec.RetryEvery}, Ready: Reconciling, Reason: b.Reason, Message: b.Message}
	if b.Kind.Meaning().Stalled {
		d.Ready = Stalled
	}
	return d
}

// queued says what the run that d starts waits for. What is shown of a stack that
// is ready, or that failed, says more than that.
func (o Observation) queued(d Decision) Decision {
	if o.Queued != "" && d.Ready != Ready && d.Reason != RetryLater {
		d.Reason, d.Message = Queued, o.Queued
	}
	return d
}

func (o Observation) asking(a Action) Decision {
	return Decision{Action: a, Ready: Reconciling, Reason: Reviewing, Message: "Asking the webhooks about " + o.Status.Pending.Name}
}

func (o Observation) failed(a Action, r Readiness, reason Reason) Decision {
	m := o.Status
	if m.Lock != nil && reason != RetryLimitReached {
		reason = LockedByOther
	}
	return Decision{Action: a, Ready: r, Reason: reason, Message: m.FailedWith}
}

// unhealthy says that what was applied does not work, whatever is done about it,
// and what else was found.
func (o Observation) unhealthy(a Action) Decision {
	d := o.failed(a, Reconciling, RetryLater)
	if o.exhausted() {
		d = o.failed(a, Stalled, RetryLimitReached)
	}
	switch {
	case !o.current():
	case o.refused() != nil:
		d.Message += ". " + o.refused().Message
	case o.Status.Drift != nil:
		d.Message += ". " + o.drifted().Message
	case o.Spec.Mode == Manual:
		d.Message += ". " + o.awaiting().Message
	}
	return d
}

func (o Observation) awaiting() Decision {
	p := o.Status.Pending
	msg := fmt.Sprintf("Plan generated: set approvePlan: %q to approve this plan.", p.Name)
	if o.Deleting {
		msg = fmt.Sprintf("Deletion in progress: the plan %s would take down %d objects. Set approvePlan: %[1]q to let it.", p.Name, p.Changes.Destroy)
	} else if o.repairing() {
		msg = fmt.Sprintf("Repair planned: %s. See it with terrier plan, and carry it out with terrier repair --approve %s.", p.Changes, p.Name)
	}
	if g := o.gap(); g != nil && !o.repairing() {
		msg += fmt.Sprintf(" Look closely: run %s was cut short, and %s may exist without the state knowing.", g.Run, g.Objects[0].Address)
	}
	if r := o.held(); r != nil {
		msg += " A reviewer holds it: " + r.Message
	}
	if o.Spec.Rejected == p.Name {
		msg = fmt.Sprintf("The plan %s was rejected: change the module or its inputs, or set approvePlan: %[1]q after all.", p.Name)
	}
	if a := o.Spec.Approved; a != "" {
		msg += fmt.Sprintf(" approvePlan is %q, which is not this plan.", a)
	}
	if o.Status.Note != "" {
		msg += " (" + o.Status.Note + ")"
	}
	return Decision{Action: Wait{}, Ready: Held, Reason: AwaitingApproval, Message: msg}
}

func (o Observation) drifted() Decision {
	d := Decision{Ready: Held, Reason: DriftFound, Message: "Drift detected: " + o.Status.Drift.Changes.String()}
	if o.Spec.Mode == Manual {
		d.Message += fmt.Sprintf(". Set approvePlan: %q to repair it.", o.Status.Pending.Name)
	}
	d.Action = Wait{o.due()}
	if o.due() == 0 {
		d.Action = Start{Kind: CheckRun, Why: "the interval is over"}
	}
	return d
}

// incomplete lists what is in no state, how to bring it in, and how to go on
// without.
func (o Observation) incomplete() Decision {
	g := o.Status.Untracked
	var b strings.Builder
	if g.Apart {
		fmt.Fprintf(&b, "Run %s was cut short. Its state is in a backend of your own, where Terrier cannot see whether it holds what the run built:", g.Run)
	} else {
		fmt.Fprintf(&b, "Run %s was cut short, and the state does not hold what it built:", g.Run)
	}
	for _, u := range g.Objects {
		if u.Finished {
			fmt.Fprintf(&b, " %s with id %q;", u.Address, u.ID)
		} else {
			fmt.Fprintf(&b, " %s may exist;", u.Address)
		}
	}
	switch {
	case g.Rescued:
		fmt.Fprintf(&b, " The backend did not take the newest state, which is kept: write it to a file with terrier state pull --rescued %s, put it there with the engine's own state push, and look which of these it holds.", g.Run)
	case g.Apart:
		b.WriteString(" Look which of these it holds, with the engine's own state list.")
	}
	if g.Apart {
		fmt.Fprintf(&b, " If it holds all that exist, annotate the stack with terrier.dev/ignore-untracked=%s. Else", g.Run)
	}
	b.WriteString(" terrier repair brings it in: it plans the imports, shows them and carries them out when you agree.")
	fmt.Fprintf(&b, " Or remove what exists by hand and annotate the stack with terrier.dev/ignore-untracked=%s, or add import blocks to the module:", g.Run)
	for _, u := range g.Objects {
		id := "\"…\"" // nobody knows it but the provider
		if u.ID != "" {
			id = strconv.Quote(u.ID)
		}
		fmt.Fprintf(&b, "\nimport {\n  to = %s\n  id = %s\n}", u.Address, id)
	}
	return Decision{Action: Wait{}, Ready: Stalled, Reason: StateIncomplete, Message: b.String()}
}

// notConverging names what comes back, and is looked at again at each interval:
// a change that no longer comes back lets the stack go on by itself.
func (o Observation) notConverging() Decision {
	p := o.Status.Pending
	d := Decision{Action: Wait{o.due()}, Ready: Stalled, Reason: NotConverging, Message: fmt.Sprintf(
		"Applied %d times from the same inputs, and the same changes come back: %s (%s). Correct the module so that a plan after an apply is empty, for example with ignore_changes, or find who changes it back; terrier replan tries once more, and approvePlan: %q applies this plan.",
		o.Status.Circle.Applies, p.Example, p.Changes, p.Name)}
	if o.due() == 0 {
		d.Action = Start{Kind: CheckRun, Why: "the interval is over"}
	}
	return d
}

// settled is the same decision however often it is made: its message names
// what the memory holds, never the time.
func (o Observation) settled() Decision {
	m := o.Status
	d := Decision{Ready: Ready}
	switch {
	case m.Destroyed && m.Applied != nil:
		d.Reason, d.Message = Destroyed, "Destroy applied successfully: "
	case m.Destroyed:
		d.Reason, d.Message = NothingLeft, "No objects need to be destroyed: "
	case m.Clean:
		d.Reason, d.Message = NoDrift, "No drift: "
	case o.Spec.Outputs != "" && m.Published != "":
		d.Reason, d.Message = OutputsWritten, "Outputs written: "
	case m.Applied != nil && m.Applied.PlanInputs.same(o.PlanInputs):
		d.Reason, d.Message = Applied, "Applied successfully: "
	default:
		d.Reason, d.Message = Unchanged, "Plan no changes: "
	}
	d.Message += o.PlanInputs.Revision
	d.Action = Wait{o.due()}
	if m.Destroyed && o.Spec.Destroy {
		d.Action = Wait{}
	}
	return d
}

// String is the counts in the engine's words.
func (c Changes) String() string {
	s := fmt.Sprintf("%d to add, %d to change, %d to destroy", c.Add, c.Change, c.Destroy)
	if c.Import > 0 {
		s = fmt.Sprintf("%d to import, %s", c.Import, s)
	}
	if c.Forget > 0 {
		s += fmt.Sprintf(", %d to forget", c.Forget)
	}
	if c.Move > 0 {
		s += fmt.Sprintf(", %d to move", c.Move)
	}
	if c.Outputs > 0 && c.Add+c.Change+c.Destroy+c.Import+c.Forget+c.Move == 0 {
		s = fmt.Sprintf("%d output values to change", c.Outputs)
	}
	return s
}
