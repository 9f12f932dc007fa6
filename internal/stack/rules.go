package stack

import "slices"

// rule is one line of the specification.
type rule struct {
	name string
	when func(Observation) bool
	then func(Observation) Decision
}

// rules are tried in order; the first that matches decides. The order is the
// specification: read it top to bottom, theme after theme. docs/states.md is made
// from it. They are a function because one of them asks what the others would say.
func rules() []rule {
	return slices.Concat(
		passRules(),       // what came in the way of this pass
		runRules(),        // a run goes on
		timeRules(),       // policies say when resources may be changed
		deletionRules(),   // the object is deleted
		suspensionRules(), // a person keeps the controller off
		inputRules(),      // what a plan is made from, and what it depends on
		previewRules(),    // a person asks what a destroy would do
		rollbackRules(),   // an earlier apply is returned to
		failureRules(),    // the last attempt failed
		requestRules(),    // a person asks for something else
		reviewRules(),     // reviewers have a say
		healthRules(),     // what was applied does not work
		pendingRules(),    // a plan is pending
		planningRules(),   // a plan has to be made
		settledRules(),    // nothing is pending
	)
}

// Decide says what to do next. It always says something.
func Decide(o Observation) Decision {
	for _, r := range rules() {
		if r.when(o) {
			d := r.then(o)
			d.Rule, d.Answers = r.name, answers(o, d.Action)
			return queued(o, d)
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

func passRules() []rule {
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
			func(o Observation) Decision { return obstructed(o, *o.Unsettled) },
		},
		{
			"an action that was not possible is tried again after a pause",
			func(o Observation) bool { return o.Obstacle != nil },
			func(o Observation) Decision { return obstructed(o, *o.Obstacle) },
		},
	}
}

func runRules() []rule {
	return []rule{
		{
			"a plan is cancelled when its stack is deleted",
			func(o Observation) bool {
				return o.Deleting && o.running() && !o.Run.Kind.Writes() && !(o.Run.Kind == PlanRun && o.Run.Cause.Destroy)
			},
			func(o Observation) Decision {
				return Decision{Action: Cancel{o.Run.ID}, Ready: Reconciling, Reason: Cancelling, Message: "Cancelling the " + string(o.Run.Kind) + ": the stack is being deleted"}
			},
		},
		{
			"a run is cancelled on request",
			cancels,
			cancelling,
		},
		{
			"a running drift check does not change the status",
			func(o Observation) bool {
				return o.running() && o.Run.Kind == CheckRun && afterCheck(o).waits()
			},
			func(o Observation) Decision {
				d := afterCheck(o)
				d.Action = Wait{} // the end of the run wakes the stack
				return d
			},
		},
		{
			"a running run is not interrupted",
			Observation.running,
			func(o Observation) Decision {
				if o.degraded() && !o.Run.Kind.Writes() && o.Run.Kind != BreakGlassRun && o.Run.Cause.Replan == "" {
					return unhealthy(o, Wait{}) // it stays as bad as it was until something better is known
				}
				return Decision{Action: Wait{}, Ready: Reconciling, Reason: o.Run.Kind.progress(), Message: o.Run.doing()}
			},
		},
	}
}

// afterCheck is what would be decided if the drift check had just found nothing.
func afterCheck(o Observation) Decision {
	o.Run, o.CheckedAt = nil, o.Now
	return Decide(o)
}

func suspensionRules() []rule {
	return []rule{
		{
			"a suspended stack does nothing",
			func(o Observation) bool { return o.Spec.Suspended },
			suspended,
		},
		{
			"a break-glass command is run",
			Observation.commanded,
			func(o Observation) Decision {
				return begin(BreakGlassRun, "break-glass command: "+o.Spec.Command.String())
			},
		},
		{
			"a break-glass session suspends the stack",
			Observation.inSession,
			func(o Observation) Decision {
				return Decision{Action: Wait{o.Status.BreakGlass.Until.Sub(o.Now)}, Ready: Held, Reason: BreakGlassSession, Message: breakingGlass}
			},
		},
	}
}

func inputRules() []rule {
	return []rule{
		{
			"nothing starts before its inputs can be read",
			func(o Observation) bool { return o.Blocked != nil && !(o.Blocked.AwaitsInput() && o.Waiting != nil) },
			func(o Observation) Decision { return blocked(o, *o.Blocked) },
		},
		{
			"nothing starts before its dependencies are ready",
			func(o Observation) bool { return o.Waiting != nil },
			func(o Observation) Decision { return blocked(o, *o.Waiting) },
		},
		{
			"nothing is planned or applied before its prerequisites are there",
			lacksPrerequisites,
			unmet,
		},
		{
			"untracked resources block the stack",
			func(o Observation) bool {
				u := o.untracked()
				return u != nil && (u.Source == o.PlanInputs.Source || o.Status.Planned.same(o.PlanInputs)) &&
					!o.requested() && !o.repairing() && o.Status.Pending == nil
			},
			incomplete,
		},
		{
			"a change of the destroy script alone renews the record of the last apply",
			func(o Observation) bool { return o.OtherDestroy },
			func(o Observation) Decision {
				d := settled(o)
				d.Action = Renew{}
				return d
			},
		},
	}
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

func (d Decision) waits() bool { _, ok := d.Action.(Wait); return ok }
