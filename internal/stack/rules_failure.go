package stack

import "strings"

// previewRules come before the failures: a preview is no attempt at what failed.
func previewRules() []rule {
	return []rule{
		{
			"a preview of a destroy is made on request",
			func(o Observation) bool { return o.Spec.Preview != "" && o.Spec.Preview != o.Status.Previewed },
			start(PreviewRun, "a preview of a destroy was requested"),
		},
	}
}

func failureRules() []rule {
	return []rule{
		{
			"a cancelled run is not repeated by itself",
			calledOff,
			cancelled,
		},
		{
			"a state lock that may be broken is broken",
			breaksLock,
			func(o Observation) Decision {
				if direct(o) {
					return unlocking(o, RunScript{Why: "breaking a state lock", Unlock: o.Status.Lock.ID})
				}
				return unlocking(o, Start{Kind: PlanRun, Why: "breaking a state lock", Unlock: o.Status.Lock.ID})
			},
		},
		{
			"a stack whose place has not the last known state is held",
			missesState,
			missingState,
		},
		{
			"a stack stops after too many failures",
			func(o Observation) bool { return o.exhausted() && !o.unhealthy() },
			func(o Observation) Decision { return failed(o, Wait{}, Stalled, RetryLimitReached) },
		},
		{
			"a failure that no retry repairs waits for a change",
			beyondRetry,
			func(o Observation) Decision {
				d := failed(o, Wait{}, Stalled, ModuleInvalid)
				d.Message = strings.TrimSuffix(d.Message, ".") + ". Terrier plans again when the module, its inputs or the spec change."
				return d
			},
		},
		{
			"a failure is retried after a pause",
			func(o Observation) bool { return o.untilRetry() > 0 && !o.unhealthy() },
			func(o Observation) Decision { return failed(o, Wait{o.untilRetry()}, Reconciling, RetryLater) },
		},
	}
}

func requestRules() []rule {
	return []rule{
		{
			"a script that needs no plan is run on request",
			func(o Observation) bool { return o.requested() && direct(o) },
			func(Observation) Decision { return beginScript("requested") },
		},
		{
			"a plan is made on request",
			func(o Observation) bool { return o.requested() && (o.Spec.Mode != DriftOnly || o.Spec.Force) },
			start(PlanRun, "requested"),
		},
		{
			"a drift-only stack is checked, never planned",
			func(o Observation) bool {
				return o.Spec.Mode == DriftOnly && !o.Spec.Force &&
					(o.requested() || !o.Status.Planned.same(o.PlanInputs) || o.Status.Failures > 0 && !o.unhealthy())
			},
			start(CheckRun, "drift check"),
		},
	}
}

func healthRules() []rule {
	return []rule{
		{
			"an unhealthy stack is checked for drift as well",
			func(o Observation) bool { return o.degraded() && o.untilCheck() == 0 },
			func(o Observation) Decision {
				return unhealthy(o, Start{Kind: o.Spec.checkKind(), Why: intervalPassed})
			},
		},
		{
			"a stack that stays unhealthy stops after too many checks",
			func(o Observation) bool { return o.degraded() && o.exhausted() },
			func(o Observation) Decision { return unhealthy(o, Wait{o.untilCheck()}) },
		},
		{
			"an unhealthy stack waits before the next health check",
			func(o Observation) bool { return o.degraded() && o.untilRetry() > 0 },
			func(o Observation) Decision { return unhealthy(o, Wait{min(o.untilRetry(), o.untilCheck())}) },
		},
		{
			"the health of an unhealthy stack is checked again",
			Observation.degraded,
			func(o Observation) Decision {
				return unhealthy(o, Start{Kind: HealthRun, Why: "the last health check failed"})
			},
		},
	}
}
