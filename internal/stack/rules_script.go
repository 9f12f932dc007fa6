package stack

// What is different for a stack that is applied by a script. A script is run as a plan is
// applied. It needs no plan before it, unless a person or a reviewer has to see one.

// direct reports whether the script is run without a plan.
func direct(o Observation) bool {
	return o.Spec.Script && o.Spec.Mode == Auto && Reviewers(o) == "" && o.untracked() == nil
}

// onlyReported reports whether the pending plan is drift that the script is not run for.
func onlyReported(o Observation) bool {
	return o.Spec.Script && o.Spec.ReportDrift && o.Status.Drift != nil
}

// beginScript runs a script that needs no plan.
func beginScript(why string) Decision {
	return Decision{Action: RunScript{Why: why}, Ready: Reconciling, Reason: Applying, Message: ScriptRun.doing()}
}

// planned runs the script that the pending plan lets run.
func planned(o Observation) Decision {
	d := beginScript("plan " + o.Status.Pending.Name)
	d.Action = RunScript{Plan: o.Status.Pending, Why: "plan " + o.Status.Pending.Name}
	return d
}

// scriptWhy names what changed since the script was run last.
func scriptWhy(o Observation) string {
	switch {
	case o.Status.Planned != PlanInputs{} || o.Status.PlanNote != "":
		return changed(o)
	case o.Status.Failures > 0:
		return "retry"
	default:
		return "first run"
	}
}

// OtherDestroy reports whether nothing but the script that destroys would be another one than at
// the last apply, if that script were the one of then: was are the inputs with it. A plan that
// is pending, and an attempt that failed, are made again from the inputs of now.
func OtherDestroy(m Status, now PlanInputs, was string) bool {
	last := m.Planned
	now.Inputs = was
	return last.Inputs == was && m.Pending == nil && m.Failures == 0 && m.Applied != nil && last.same(now) && m.Applied.PlanInputs.same(now)
}

// Renewed is the status once the record of the last apply has another script that destroys:
// the inputs of now are those that were applied.
func Renewed(m Status, now PlanInputs, snapshot string, destroys bool) Status {
	applied := *m.Applied
	applied.PlanInputs.Inputs, m.Planned.Inputs = now.Inputs, now.Inputs
	m.Applied, m.Snapshot, m.DestroyScript = &applied, snapshot, destroys
	return m
}

// cannotDestroy reports whether there is no script that destroys the resources: the object has
// none, and neither has the record of the last run. A destroy that was corrected is made from
// the object alone.
func cannotDestroy(o Observation) bool {
	return o.Spec.NoDestroyScript && (o.Corrected || !o.Status.DestroyScript)
}

// noDestroyScript says how a deletion goes on that has nothing to destroy with.
func noDestroyScript(Observation) Decision {
	return Decision{Action: Wait{}, Ready: Stalled, Reason: NoDestroyScript, Message: "Deletion in progress, but the stack has no script that destroys its resources: spec.scripts.destroy is empty. " +
		"The object stays until they are destroyed. Set spec.scripts.destroy, and Terrier runs it at once. " +
		"To let the object go and keep the resources: annotate it with terrier.dev/deletion=retain."}
}
