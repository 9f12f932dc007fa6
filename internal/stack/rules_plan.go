package stack

import "fmt"

func timeRules() []rule {
	return []rule{
		{
			"resources are changed only at times that policies allow",
			func(o Observation) bool { return !withheld(o).None() && changesResources(unwithheld(o).Action) },
			waitForTime,
		},
		{
			"steps after an apply are run only at times that policies allow",
			stepsWait,
			waitForSteps,
		},
	}
}

func reviewRules() []rule {
	return []rule{
		{
			"a plan waits for the answer of policies and webhooks",
			func(o Observation) bool { return o.pendingIsCurrent() && o.unreviewed() && o.Asking },
			func(o Observation) Decision { return asking(o, Wait{}) },
		},
		{
			"policies and webhooks are asked before a plan is applied",
			func(o Observation) bool { return o.pendingIsCurrent() && o.unreviewed() },
			func(o Observation) Decision { return asking(o, Review{*o.Status.Pending}) },
		},
	}
}

func pendingRules() []rule {
	return []rule{
		{
			"a plan that policies or webhooks did not pass is held",
			func(o Observation) bool { return o.pendingIsCurrent() && o.refused() != nil },
			refused,
		},
		{
			"drift that a user accepted waits for the change of the configuration",
			func(o Observation) bool {
				_, waits := accepts(o)
				return waits && o.pendingIsCurrent()
			},
			awaitingChange,
		},
		{
			"changes that come back after each apply stop the stack",
			func(o Observation) bool {
				return o.pendingIsCurrent() && o.approved() && o.Status.recurs() && !o.named()
			},
			notConverging,
		},
		{
			"a plan that is too old is made again before it is applied",
			func(o Observation) bool { return o.pendingIsCurrent() && o.approved() && tooOldFor(o) != nil },
			func(o Observation) Decision { return begin(PlanRun, tooOld(o)) },
		},
		{
			"an approved plan is applied",
			func(o Observation) bool { return o.pendingIsCurrent() && o.approved() },
			func(o Observation) Decision {
				if o.Spec.Script {
					return planned(o)
				}
				return Decision{Action: Apply{*o.Status.Pending}, Ready: Reconciling, Reason: Applying, Message: ApplyRun.doing()}
			},
		},
		{
			"a rejected plan waits for another plan",
			func(o Observation) bool { return o.pendingIsCurrent() && isRejected(o) },
			rejected,
		},
		{
			"drift that is not to be remediated is shown",
			func(o Observation) bool {
				return o.pendingIsCurrent() && o.Status.Drift != nil && (o.Spec.Mode == DriftOnly || o.Spec.Mode == Manual || onlyReported(o))
			},
			drifted,
		},
		{
			"a plan-only stack stops at the plan",
			func(o Observation) bool { return o.pendingIsCurrent() && o.Spec.Mode == PlanOnly },
			is(Wait{}, Held, PlanOnlyHeld, "Plan generated: This object is in the plan only mode."),
		},
		{
			"a plan waits for approval",
			Observation.pendingIsCurrent,
			awaiting,
		},
	}
}

func planningRules() []rule {
	return []rule{
		{
			"a source that keeps changing is planned once it settles",
			func(o Observation) bool {
				return o.Status.Planned.Source != o.PlanInputs.Source && o.untilDebounced() > 0
			},
			func(o Observation) Decision {
				return Decision{Action: Wait{o.untilDebounced()}, Ready: Reconciling, Reason: SourceDebounced,
					Message: fmt.Sprintf("The source changed again within %s of the last plan: the newest revision is planned after that", debounce)}
			},
		},
		{
			"a change of source, inputs, spec or engine runs a script that needs no plan",
			func(o Observation) bool { return direct(o) && !o.Status.Planned.same(o.PlanInputs) },
			func(o Observation) Decision { return beginScript(scriptWhy(o)) },
		},
		{
			"a script that failed is run again",
			func(o Observation) bool { return direct(o) && o.Status.Failures > 0 && !o.unhealthy() },
			func(Observation) Decision { return beginScript("retry") },
		},
		{
			"a change of source, inputs, spec or engine makes a new plan",
			func(o Observation) bool { return !o.Status.Planned.same(o.PlanInputs) },
			func(o Observation) Decision { return begin(PlanRun, changed(o)) },
		},
		{
			"a failed attempt is retried",
			func(o Observation) bool { return o.Status.Failures > 0 && !o.unhealthy() },
			start(PlanRun, "retry"),
		},
	}
}

func settledRules() []rule {
	return []rule{
		{
			"new outputs are published",
			Observation.unpublished,
			func(o Observation) Decision {
				return Decision{Action: Publish{o.Status.State}, Ready: Reconciling, Reason: Publishing, Message: "Writing outputs"}
			},
		},
		{
			"the steps after an apply are run",
			func(o Observation) bool { return stepsDue(o) && stepsAllowed(o) && !stepsWithheld(o) },
			start(StepsRun, "steps after the apply"),
		},
		{
			"health is checked after an apply",
			func(o Observation) bool { return o.Status.unproved(o.Spec) && !(stepsDue(o) && stepsAllowed(o)) },
			start(HealthRun, "a plan was applied"),
		},
		{
			"a destroyed stack is not checked for drift",
			func(o Observation) bool { return o.Status.Destroyed && o.Spec.Destroy },
			settled,
		},
		{
			"a script that repairs drift is run at each interval",
			func(o Observation) bool { return o.untilCheck() == 0 && direct(o) && !o.Spec.ReportDrift },
			func(Observation) Decision { return beginScript(intervalPassed) },
		},
		{
			"a stack without drift detection is planned at each interval",
			func(o Observation) bool { return o.untilCheck() == 0 && o.Spec.checkKind() == PlanRun },
			start(PlanRun, intervalPassed),
		},
		{
			"drift is checked at each interval",
			func(o Observation) bool { return o.untilCheck() == 0 },
			func(o Observation) Decision {
				d := settled(o)
				d.Action = Start{Kind: CheckRun, Why: intervalPassed}
				return d
			},
		},
		{
			"a settled stack waits",
			func(Observation) bool { return true },
			settled,
		},
	}
}
