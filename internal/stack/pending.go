package stack

import "time"

// What is to become of the pending plan.

// pendingIsCurrent reports whether the pending plan was made from what is seen now.
func (o Observation) pendingIsCurrent() bool {
	return o.Status.Pending != nil && o.Status.Pending.PlanInputs.same(o.PlanInputs)
}

// approved reports whether exactly the pending plan may be applied.
func (o Observation) approved() bool {
	p := o.Status.Pending
	switch {
	case p == nil:
		return false
	case o.untracked() != nil && !p.Destroy:
		return o.named() || o.repaired() // whatever the mode: it may create what exists already
	case o.held() != nil:
		return o.named() || o.repaired() // whatever the mode: a reviewer wants a person to see it
	case o.Spec.Force:
		return !isRejected(o)
	case onlyReported(o):
		return o.named()
	case o.Spec.Mode == Auto:
		return true
	case o.Spec.Mode == Manual:
		return o.named()
	default:
		return false
	}
}

// Approves reports whether a person approved exactly this plan. A stack that applies plans
// by itself may wait for that as well: see AwaitsApproval.
func (s Spec) Approves(p *Plan) bool {
	a := s.Approved
	return p != nil && (s.Mode == Manual || s.Mode == Auto) && a != "" && (a == p.Name || a == p.Digest)
}

// AwaitsApproval reports whether the pending plan of a stack is applied only once a person
// approved exactly that plan; of a stack without one, whether that holds for the next plan.
func (s Spec) AwaitsApproval(m Status) bool {
	if s.Mode != Auto {
		return s.Mode == Manual
	}
	o := Observation{Spec: s, Status: m}
	r, p := m.Review, m.Pending
	return o.untracked() != nil || onlyReported(o) || p != nil && (m.recurs() || r != nil && r.Held && r.Plan == p.Digest)
}

// named reports whether a person approved exactly the pending plan.
func (o Observation) named() bool { return o.Spec.Approves(o.Status.Pending) }

// isRejected reports whether a person rejected the pending plan.
func isRejected(o Observation) bool {
	p, r := o.Status.Pending, o.Spec.Rejected
	return p != nil && r != "" && (r == p.Name || r == p.Digest) && !o.named() && !o.repaired()
}

// repaired reports whether a person approved exactly the pending plan of a repair.
func (o Observation) repaired() bool {
	p := o.Status.Pending
	return o.repairing() && o.Spec.Mode != DriftOnly && (o.Spec.Repair.Plan == p.Name || o.Spec.Repair.Plan == p.Digest)
}

// applicable reports whether nothing stands between the pending plan and its
// apply.
func (o Observation) applicable() bool {
	return o.pendingIsCurrent() && o.approved() && o.refused() == nil && (!o.Status.recurs() || o.named())
}

// destroys reports whether the pending plan destroys everything.
func (m Status) destroys() bool { return m.Pending != nil && m.Pending.Destroy }

// recurs reports whether the pending plan makes the changes that the last applies
// made already.
func (m Status) recurs() bool {
	c := m.Recurrence
	return c != nil && c.Applies >= recurrences && c.Key == m.Pending.RecurrenceKey()
}

// recurrences is how often the same changes are applied in a row.
const recurrences = 3

// reviewed reports whether reviewers have a say in what is applied.
func (s Spec) reviewed() bool {
	return s.Reviews != "" && (s.Mode != DriftOnly || s.Force)
}

// unreviewed reports whether the reviewers must be asked about the pending plan.
func (o Observation) unreviewed() bool {
	if !o.Spec.reviewed() {
		return false
	}
	r := o.Status.Review
	return r == nil || r.Plan != o.Status.Pending.Digest || r.By != o.Spec.Reviews ||
		!r.Passed && !r.Held && o.clock().left(r.At, o.Spec.askAgain(r)) == 0
}

// refused is what stands between the pending plan and its apply, nil if nothing.
func (o Observation) refused() *Verdict {
	if r := o.Status.Review; o.Spec.reviewed() && r != nil && !r.Passed && !r.Held {
		return r
	}
	return nil
}

// held is the verdict of a reviewer that wants a person to approve the pending
// plan, nil if there is none.
func (o Observation) held() *Verdict {
	if r := o.Status.Review; o.Spec.reviewed() && r != nil && r.Held && o.Status.Pending != nil && r.Plan == o.Status.Pending.Digest {
		return r
	}
	return nil
}

// askAgain is how long after a review that did not pass the reviewers are asked
// again.
func (s Spec) askAgain(v *Verdict) time.Duration {
	if v.Refused {
		return s.Interval
	}
	return s.RetryEvery
}
