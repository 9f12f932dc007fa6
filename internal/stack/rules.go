package stack

import (
	"fmt"
	"strings"
)

// rule is one line of the specification.
type rule struct {
	name string
	when func(Observation) bool
	then func(Observation) Decision
}

// rules are tried in order; the first that matches decides. The order is the
// specification: read it top to bottom. docs/states.md is made from it. They
// are a function because one of them asks what the others would say.
func rules() []rule {
	return []rule{
		{
			"nothing is decided while the status cannot be read",
			func(o Observation) bool { return o.Unreadable != "" },
			func(o Observation) Decision {
				return Decision{Action: Wait{}, Ready: Stalled, Reason: StatusUnreadable, Message: o.Unreadable}
			},
		},
		{
			"a run that ended is taken over before anything else",
			func(o Observation) bool { return o.Unsettled != nil },
			func(o Observation) Decision { return o.obstructed(*o.Unsettled) },
		},
		{
			"an action that was not possible is tried again after a pause",
			func(o Observation) bool { return o.Obstacle != nil },
			func(o Observation) Decision { return o.obstructed(*o.Obstacle) },
		},
		{
			"a plan is not finished for a stack that is being deleted",
			func(o Observation) bool { return o.Deleting && o.running() && !o.Run.Kind.Writes() },
			func(o Observation) Decision {
				return Decision{Action: Cancel{o.Run.ID}, Ready: Reconciling, Reason: Cancelling, Message: "Stopping the " + string(o.Run.Kind) + " of a stack that is being deleted"}
			},
		},
		{
			"a look for drift changes nothing while it goes on",
			func(o Observation) bool { return o.running() && o.Run.Kind == CheckRun && o.rested().waits() },
			func(o Observation) Decision {
				d := o.rested()
				d.Action = Wait{} // the end of the run wakes us
				return d
			},
		},
		{
			"a run that goes on is left alone",
			Observation.running,
			func(o Observation) Decision {
				if o.ailing() && !o.Run.Kind.Writes() && o.Run.Kind != GlassRun && o.Run.Cause.Request == "" {
					return o.unhealthy(Wait{}) // it stays as bad as it was until something better is known
				}
				return Decision{Action: Wait{}, Ready: Reconciling, Reason: o.Run.Kind.progress(), Message: o.Run.Kind.doing()}
			},
		},
		{
			"a deleted stack waits for those that depend on it",
			func(o Observation) bool { return o.Deleting && len(o.Dependents) > 0 },
			func(o Observation) Decision {
				return Decision{Action: Wait{o.Spec.RetryEvery}, Ready: Stalled, Reason: DeletionBlocked,
					Message: "Deletion in progress, but blocked. Please delete " + strings.Join(o.Dependents, ", ") + " to resume ..."}
			},
		},
		{
			"a deleted stack is not let go while something is in no state",
			func(o Observation) bool {
				return o.Deleting && o.Spec.DestroyLast && !o.Status.Built && o.gap() != nil
			},
			Observation.incomplete,
		},
		{
			"a deleted stack with nothing to take down is let go",
			func(o Observation) bool { return o.Deleting && !(o.Spec.DestroyLast && o.Status.Built) },
			func(o Observation) Decision {
				return Decision{Action: Finish{Retained: o.Status.Built || o.gap() != nil}, Ready: Reconciling, Reason: Deleting, Message: "Deletion in progress"}
			},
		},
		{
			"a lock that the user allows to be broken does not stop a destroy",
			func(o Observation) bool { return o.Deleting && o.breakable() },
			func(o Observation) Decision {
				return Decision{Action: Destroy{Unlock: o.Status.Lock.ID}, Ready: Reconciling, Reason: Unlocking, Message: "Breaking the state lock " + o.Status.Lock.ID}
			},
		},
		{
			"a destroy that failed is tried again after a pause",
			func(o Observation) bool { return o.Deleting && o.pause() > 0 },
			func(o Observation) Decision { return o.failed(Wait{o.pause()}, Reconciling, RetryLater) },
		},
		{
			"a destroy that somebody wants to see is planned first",
			func(o Observation) bool { return o.Deleting && o.Spec.ApproveDestroy && !o.ending() },
			func(Observation) Decision {
				d := begin(PlanRun, "the object was deleted")
				d.Action = Start{Kind: PlanRun, Why: "the object was deleted", Destroy: true}
				return d
			},
		},
		{
			"a destroy that somebody wants to see waits for approval",
			func(o Observation) bool { return o.Deleting && o.Spec.ApproveDestroy && !o.named() },
			Observation.awaiting,
		},
		{
			"an approved destroy is carried out as it was shown",
			func(o Observation) bool { return o.Deleting && o.Spec.ApproveDestroy },
			func(o Observation) Decision {
				return Decision{Action: Apply{*o.Status.Pending}, Ready: Reconciling, Reason: Destroying, Message: DestroyRun.doing()}
			},
		},
		{
			"a deleted stack takes down what it built",
			func(o Observation) bool { return o.Deleting },
			is(Destroy{}, Reconciling, Destroying, "Deletion in progress"),
		},
		{
			"a suspended stack rests",
			func(o Observation) bool { return o.Spec.Suspended },
			is(Wait{}, Held, Suspended, "Suspended: set suspend to false to resume"),
		},
		{
			"a command of a person is run behind broken glass",
			Observation.commanded,
			func(o Observation) Decision { return begin(GlassRun, "a person asked for "+o.Spec.Command.String()) },
		},
		{
			"behind broken glass nothing happens by itself",
			Observation.broken,
			Observation.glass,
		},
		{
			"nothing starts before its inputs can be read",
			func(o Observation) bool { return o.Blocked != nil },
			func(o Observation) Decision { return o.blocked(*o.Blocked) },
		},
		{
			"nothing starts before its dependencies are ready",
			func(o Observation) bool { return o.Waiting != nil },
			func(o Observation) Decision { return o.blocked(*o.Waiting) },
		},
		{
			"what was built and is in no state needs a person",
			func(o Observation) bool {
				return o.gap() != nil && (o.gap().Source == o.PlanInputs.Source || o.Status.Planned.same(o.PlanInputs)) &&
					!o.requested() && !o.repairing() && o.Status.Pending == nil
			},
			Observation.incomplete,
		},
		{
			"a lock that the user allows to be broken is broken",
			Observation.breakable,
			func(o Observation) Decision {
				return Decision{Action: Start{Kind: PlanRun, Why: "breaking a state lock", Unlock: o.Status.Lock.ID}, Ready: Reconciling, Reason: Unlocking, Message: "Breaking the state lock " + o.Status.Lock.ID}
			},
		},
		{
			"too many failures need a person",
			func(o Observation) bool { return o.exhausted() && !o.unwell() },
			func(o Observation) Decision { return o.failed(Wait{}, Stalled, RetryLimitReached) },
		},
		{
			"a failure is tried again after a pause",
			func(o Observation) bool { return o.pause() > 0 && !o.unwell() },
			func(o Observation) Decision { return o.failed(Wait{o.pause()}, Reconciling, RetryLater) },
		},
		{
			"a preview of a destroy is made when somebody asks",
			func(o Observation) bool { return o.Spec.Preview != "" && o.Spec.Preview != o.Status.Previewed },
			start(PreviewRun, "a preview of a destroy was asked for"),
		},
		{
			"a request is answered with a new plan",
			func(o Observation) bool { return o.requested() && o.Spec.Mode != DriftOnly },
			start(PlanRun, "requested"),
		},
		{
			"a stack that is only watched is looked at, never planned",
			func(o Observation) bool {
				return o.Spec.Mode == DriftOnly && !o.Spec.Force &&
					(o.requested() || !o.Status.Planned.same(o.PlanInputs) || o.Status.Failures > 0 && !o.unwell())
			},
			start(CheckRun, "watching for drift"),
		},
		{
			"a plan waits for the answer of its webhooks",
			func(o Observation) bool { return o.current() && o.unreviewed() && o.Asking },
			func(o Observation) Decision { return o.asking(Wait{}) },
		},
		{
			"a plan counts only after its webhooks were asked",
			func(o Observation) bool { return o.current() && o.unreviewed() },
			func(o Observation) Decision { return o.asking(Review{*o.Status.Pending}) },
		},
		{
			"drift is looked for also while what was applied does not work",
			func(o Observation) bool { return o.ailing() && o.due() == 0 },
			func(o Observation) Decision {
				return o.unhealthy(Start{Kind: o.look(), Why: "the interval is over"})
			},
		},
		{
			"what does not work after too many looks needs a person",
			func(o Observation) bool { return o.ailing() && o.exhausted() },
			func(o Observation) Decision { return o.unhealthy(Wait{o.due()}) },
		},
		{
			"what does not work is looked at again after a pause",
			func(o Observation) bool { return o.ailing() && o.pause() > 0 },
			func(o Observation) Decision { return o.unhealthy(Wait{min(o.pause(), o.due())}) },
		},
		{
			"what did not work is asked for its health again",
			Observation.ailing,
			func(o Observation) Decision { return o.unhealthy(Start{Kind: HealthRun, Why: "it did not work"}) },
		},
		{
			"a plan that its webhooks did not let pass is held",
			func(o Observation) bool { return o.current() && o.refused() != nil },
			func(o Observation) Decision {
				r := o.refused()
				d := Decision{Action: Wait{o.left(r.At, o.patience(r))}, Ready: Reconciling, Reason: ReviewRefused, Message: r.Message}
				if r.Refused {
					d.Ready = Stalled
				}
				return d
			},
		},
		{
			"changes that come back after each apply need a person",
			func(o Observation) bool { return o.current() && o.approved() && o.circling() && !o.named() },
			Observation.notConverging,
		},
		{
			"an approved plan is applied",
			func(o Observation) bool { return o.current() && o.approved() },
			func(o Observation) Decision {
				return Decision{Action: Apply{*o.Status.Pending}, Ready: Reconciling, Reason: Applying, Message: ApplyRun.doing()}
			},
		},
		{
			"drift that nobody asked to be mended is shown",
			func(o Observation) bool {
				return o.current() && o.Status.Drift != nil && (o.Spec.Mode == DriftOnly || o.Spec.Mode == Manual)
			},
			Observation.drifted,
		},
		{
			"a stack that only plans stops at the plan",
			func(o Observation) bool { return o.current() && o.Spec.Mode == PlanOnly },
			is(Wait{}, Held, PlanOnlyHeld, "Plan generated: This object is in the plan only mode."),
		},
		{
			"a plan waits for approval",
			Observation.current,
			Observation.awaiting,
		},
		{
			"a source that keeps changing is planned when it is quiet",
			func(o Observation) bool { return o.Status.Planned.Source != o.PlanInputs.Source && o.flurry() > 0 },
			func(o Observation) Decision {
				return Decision{Action: Wait{o.flurry()}, Ready: Reconciling, Reason: ChangesComing,
					Message: fmt.Sprintf("The source changed again within %s of the last plan: the newest of what comes until then is planned", quiet)}
			},
		},
		{
			"a change of source, inputs, spec or engine makes a new plan",
			func(o Observation) bool { return !o.Status.Planned.same(o.PlanInputs) },
			func(o Observation) Decision { return begin(PlanRun, o.why()) },
		},
		{
			"a failed attempt is made again",
			func(o Observation) bool { return o.Status.Failures > 0 && !o.unwell() },
			start(PlanRun, "trying again"),
		},
		{
			"outputs follow the state",
			Observation.unpublished,
			func(o Observation) Decision {
				return Decision{Action: Publish{o.Status.State}, Ready: Reconciling, Reason: Publishing, Message: "Writing outputs"}
			},
		},
		{
			"what was applied is asked for its health",
			Observation.unproved,
			start(HealthRun, "something was applied"),
		},
		{
			"what was taken down is not looked for",
			func(o Observation) bool { return o.Status.Destroyed && o.Spec.Destroy },
			Observation.settled,
		},
		{
			"a stack without drift detection is planned again now and then",
			func(o Observation) bool { return o.due() == 0 && o.look() == PlanRun },
			start(PlanRun, "the interval is over"),
		},
		{
			"drift is looked for now and then",
			func(o Observation) bool { return o.due() == 0 },
			func(o Observation) Decision {
				d := o.settled()
				d.Action = Start{Kind: CheckRun, Why: "the interval is over"}
				return d
			},
		},
		{
			"a stack at rest rests",
			func(Observation) bool { return true },
			Observation.settled,
		},
	}
}

// Decide says what to do next. It always says something.
func Decide(o Observation) Decision {
	for _, r := range rules() {
		if r.when(o) {
			d := r.then(o)
			d.Rule = r.name
			return o.queued(d)
		}
	}
	panic("stack: the last rule did not match") // it matches everything
}

// Rules returns the names of the rules, in order.
func Rules() []string {
	var names []string
	for _, r := range rules() {
		names = append(names, r.name)
	}
	return names
}

func is(a Action, r Readiness, reason Reason, message string) func(Observation) Decision {
	return func(Observation) Decision { return Decision{Action: a, Ready: r, Reason: reason, Message: message} }
}

func start(k RunKind, why string) func(Observation) Decision {
	return func(Observation) Decision { return begin(k, why) }
}

func begin(k RunKind, why string) Decision {
	return Decision{Action: Start{Kind: k, Why: why}, Ready: Reconciling, Reason: k.progress(), Message: k.doing()}
}

// doing is the message while a run of this kind goes on, in upstream's words.
func (k RunKind) doing() string {
	switch k {
	case ApplyRun:
		return "Applying"
	case DestroyRun:
		return "Deletion in progress"
	case HealthRun:
		return "Checking the health of what was applied"
	case GlassRun:
		return breaking
	default:
		return "Terraform Planning"
	}
}

// progress is the reason while a run of this kind goes on.
func (k RunKind) progress() Reason {
	switch k {
	case PlanRun:
		return Planning
	case CheckRun:
		return Checking
	case ApplyRun:
		return Applying
	case PreviewRun:
		return Previewing
	case HealthRun:
		return CheckingHealth
	case GlassRun:
		return GlassBroken
	default:
		return Destroying
	}
}

func (o Observation) running() bool { return o.Run != nil && !o.Run.Done }

// rested is what would be decided if the look for drift had just ended well.
func (o Observation) rested() Decision {
	o.Run, o.CheckedAt = nil, o.Now
	return Decide(o)
}

func (d Decision) waits() bool { _, ok := d.Action.(Wait); return ok }

// why names what changed since the last plan.
func (o Observation) why() string {
	switch parts := o.Status.Planned.Differs(o.PlanInputs); {
	case o.Status.Planned == PlanInputs{} && o.Status.Note != "":
		return o.Status.Note
	case o.Status.Planned == PlanInputs{}:
		return "first plan"
	default:
		return join(parts) + " changed"
	}
}
