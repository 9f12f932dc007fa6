package stack

import "strings"

func deletionRules() []rule {
	return []rule{
		{
			"a deleted stack waits for its dependents",
			func(o Observation) bool { return o.Deleting && len(o.Dependents) > 0 },
			func(o Observation) Decision {
				return Decision{Action: Wait{o.Spec.RetryEvery}, Ready: Stalled, Reason: DeletionBlocked,
					Message: "Deletion in progress, but blocked. Please delete " + strings.Join(o.Dependents, ", ") + " to resume ..."}
			},
		},
		{
			"a deleted stack with untracked resources is not released",
			func(o Observation) bool {
				return o.Deleting && o.Spec.DestroyLast && !o.Status.Created && o.untracked() != nil
			},
			incomplete,
		},
		{
			"a deleted stack with nothing to destroy is released",
			func(o Observation) bool { return o.Deleting && !(o.Spec.DestroyLast && o.Status.Created) },
			func(o Observation) Decision {
				return Decision{Action: Finish{Retained: o.Status.Created || o.untracked() != nil}, Ready: Reconciling, Reason: Deleting, Message: DestroyRun.doing()}
			},
		},
		{
			"a cancelled destroy is not repeated by itself",
			func(o Observation) bool { return o.Deleting && calledOff(o) },
			cancelled,
		},
		{
			"a deleted stack without a script that destroys it is not released",
			func(o Observation) bool { return o.Deleting && cannotDestroy(o) },
			noDestroyScript,
		},
		{
			"a destroy breaks a state lock that may be broken",
			func(o Observation) bool { return o.Deleting && breaksLock(o) },
			func(o Observation) Decision {
				if plansDestroy(o) { // it is judged before anything is destroyed
					return unlocking(o, Start{Kind: PlanRun, Why: "breaking a state lock", Destroy: true, Unlock: o.Status.Lock.ID})
				}
				return unlocking(o, Destroy{Unlock: o.Status.Lock.ID})
			},
		},
		{
			"a destroy that does not find the last known state is held",
			func(o Observation) bool { return o.Deleting && missesState(o) },
			missingState,
		},
		{
			"a failed destroy is retried after a pause",
			func(o Observation) bool { return o.Deleting && o.untilRetry() > 0 },
			func(o Observation) Decision { return notDestroyed(o) },
		},
		{
			"a destroy that needs approval is planned first",
			func(o Observation) bool {
				return o.Deleting && plansDestroy(o) && (!o.Status.destroys() || outdated(o) || o.requested() && !o.named())
			},
			func(Observation) Decision { return planDestroy(deleted) },
		},
		{
			"a destroy plan waits for the answer of policies",
			func(o Observation) bool { return o.Deleting && o.Spec.Policies != "" && o.unreviewed() && o.Asking },
			func(o Observation) Decision { return asking(o, Wait{}) },
		},
		{
			"policies are asked before a deleted stack is destroyed",
			func(o Observation) bool { return o.Deleting && o.Spec.Policies != "" && o.unreviewed() },
			func(o Observation) Decision { return asking(o, Review{*o.Status.Pending}) },
		},
		{
			"a destroy plan that policies do not pass is not applied",
			func(o Observation) bool { return o.Deleting && o.Spec.Policies != "" && o.refused() != nil },
			func(o Observation) Decision {
				d := refused(o)
				d.Message = strings.TrimRight(d.Message, ". ") + ". The resources stay, and so does the object. To let the object go without a destroy: annotate it with terrier.dev/deletion=retain."
				return d
			},
		},
		{
			"a rejected destroy plan is not applied",
			func(o Observation) bool { return o.Deleting && plansDestroy(o) && isRejected(o) },
			rejected,
		},
		{
			"a destroy that needs approval waits for it",
			func(o Observation) bool { return o.Deleting && awaitsDestroy(o) },
			awaiting,
		},
		{
			"a destroy plan that is too old is made again",
			func(o Observation) bool { return o.Deleting && plansDestroy(o) && tooOldFor(o) != nil },
			func(o Observation) Decision { return planDestroy(tooOld(o)) },
		},
		{
			"an approved destroy plan is applied",
			func(o Observation) bool { return o.Deleting && plansDestroy(o) },
			func(o Observation) Decision {
				d := Decision{Action: Apply{*o.Status.Pending}, Ready: Reconciling, Reason: Destroying, Message: DestroyRun.doing()}
				if o.Spec.Script {
					d.Action = Destroy{}
				}
				return d
			},
		},
		{
			"a deleted stack destroys its resources",
			func(o Observation) bool { return o.Deleting },
			func(o Observation) Decision {
				d := Decision{Action: Destroy{}, Ready: Reconciling, Reason: Destroying, Message: DestroyRun.doing()}
				if o.Corrected {
					d.Message += ", from " + o.PlanInputs.Revision + " and the inputs of now: they changed after the deletion began"
				}
				return d
			},
		},
	}
}

// plansDestroy reports whether the destroy of a deleted stack is planned before: a person or
// a policy has a say in it.
func plansDestroy(o Observation) bool { return o.Spec.ApproveDestroy || o.Spec.Policies != "" }

// awaitsDestroy reports whether the plan of a destroy needs an approval that it does not have.
func awaitsDestroy(o Observation) bool {
	return (o.Spec.ApproveDestroy || o.held() != nil) && !(o.named() && lacks(o) == "")
}

func planDestroy(why string) Decision {
	d := begin(PlanRun, why)
	d.Action = Start{Kind: PlanRun, Why: why, Destroy: true}
	return d
}

// outdated reports whether the pending plan of a destroy is made from something else
// than a destroy would be now.
func outdated(o Observation) bool {
	return o.PlanInputs != PlanInputs{} && !o.Status.Pending.PlanInputs.same(o.PlanInputs)
}

// WithDeletion keeps what the last plan was made from when the deletion of a stack
// began. What differs from it later was changed since. A run that was cancelled by then
// does not hold the deletion up.
func (m Status) WithDeletion() Status {
	if m.BeforeDeletion != nil {
		return m
	}
	if c := m.Cancelled; c != nil && c.Kind != DestroyRun {
		m.Cancelled = nil
	}
	if c := m.CancelledBefore; c != nil && c.Kind != DestroyRun {
		m.CancelledBefore = nil
	}
	m.Missing = nil // a destroy is made from the record of the last apply, which names the place of then
	before := m.Planned
	if before == (PlanInputs{}) && m.FailedKind != DestroyRun {
		before = m.FailedFor // an apply that fails ends the plan; so does a destroy, of which an earlier release kept no more
	}
	if b := m.Rollback; b != nil {
		before = b.From // the object asks for that, and not for what was planned
	}
	m.BeforeDeletion = &before
	if m.FailedKind != DestroyRun {
		m = m.clear() // a destroy is another attempt, and begins at once
	}
	return m
}

// Corrects reports whether what is there now was changed after the deletion began: it
// is neither what was known then nor what was applied. The engine does not count.
func (m Status) Corrects(now, applied PlanInputs) bool {
	before := m.BeforeDeletion
	if before == nil || *before == (PlanInputs{}) {
		return false
	}
	now.Engine, applied.Engine = before.Engine, before.Engine
	return !now.same(*before) && !now.same(applied)
}

// deleted is why a destroy is planned.
const deleted = "the object was deleted"
