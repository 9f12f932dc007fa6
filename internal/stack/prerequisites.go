package stack

// unhindered is what would be decided if all prerequisites were met, at a time that no policy
// forbids.
func unhindered(o Observation) Decision {
	o.Unmet = nil
	return unwithheld(o)
}

// lacksPrerequisites reports whether what comes next begins what the prerequisites are for, now
// or once no policy withholds it.
func lacksPrerequisites(o Observation) bool {
	if o.Unmet == nil {
		return false
	}
	o.Unmet = nil
	return NeedsPrerequisites(o, unhindered(o).Action) || NeedsPrerequisites(o, Decide(o).Action)
}

// NeedsPrerequisites reports whether an action begins what the prerequisites are for: a plan,
// its apply, or a script that needs none. A destroy needs nothing to be there: what is gone may
// be why the resources are to go as well. Drift checks, previews and health checks ask about
// what exists already.
func NeedsPrerequisites(o Observation, a Action) bool {
	if o.Spec.Destroy {
		return false
	}
	switch a := a.(type) {
	case Start:
		return a.Kind == PlanRun && !a.Destroy
	case Apply:
		return !a.Plan.Destroy
	case RunScript:
		return true
	case Wait, Destroy, Cancel, Publish, Renew, RollBack, Review, Finish:
	}
	return false
}

// unmet waits for the prerequisites. Their watches and the next check wake the stack.
func unmet(o Observation) Decision {
	d := Decision{Action: Wait{}, Ready: Reconciling, Reason: o.Unmet.Reason, Message: o.Unmet.Message}
	if o.Unmet.Kind.Meaning().Stalled {
		d.Ready = Stalled
	}
	return d
}
