package stack

import (
	"strings"
	"time"
)

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
	case o.untracked() != nil && !p.Destroy, // whatever the mode: it may create what exists already
		o.held() != nil: // whatever the mode: a reviewer wants a person to see it
		return (o.named() || o.repaired()) && lacks(o) == ""
	case Returning(o.Status): // whatever the mode: a rollback destroys only what a user has seen
		return o.named()
	case o.Spec.Force:
		return !isRejected(o)
	case onlyReported(o):
		return o.named()
	case o.Spec.Mode == Auto:
		return true
	case o.Spec.Mode == Manual:
		return o.named() || allowed(o) && !isRejected(o)
	default:
		return false
	}
}

// Approves reports whether a person approved exactly this plan. A stack that applies plans
// by itself may wait for that as well: see AwaitsApproval.
func (s Spec) Approves(p *Plan) bool {
	return s.Mode == Manual && p.Is(s.Approved) || s.Mode == Auto && (p.Is(s.Approved) || p.Is(s.Confirmed()))
}

// Decides reports whether the object approves or rejects a plan.
func (s Spec) Decides(p *Plan) bool { return p.Is(s.Rejected) || s.Approves(p) }

// Decider is the user who approved or rejected a plan, if the API server is known to have
// recorded that. An annotation alone says nothing: where no API server corrects it, users can
// write any name.
type Decider struct {
	Plan string `json:"plan"` // its name
	By   string `json:"by"`
}

// Verified reports whether the user whom an object names as the one who approved or rejected a
// plan was verified: the pending plan, or else the one that was applied last.
func Verified(m Status, s Spec, who string) bool {
	plan := m.Pending
	if !s.Decides(plan) {
		plan = m.Applied
	}
	return s.Decides(plan) && m.Decider != nil && *m.Decider == Decider{plan.Name, who}
}

// Confirmed is the plan that the annotation approves: its name, or what Plan.Approvable says.
func (s Spec) Confirmed() string {
	plan, _, _ := strings.Cut(s.Confirms, " ")
	return plan
}

// AwaitsApproval reports whether the pending plan of a stack is applied only once a person
// approved exactly that plan; of a stack without one, whether that holds for the next plan.
func (s Spec) AwaitsApproval(m Status) bool {
	o := Observation{Spec: s, Status: m}
	r, p := m.Review, m.Pending
	of := p != nil && r != nil && r.Plan == p.Digest
	if s.Mode != Auto {
		return s.Mode == Manual && !(of && r.Allowed && r.Passed && o.untracked() == nil && !Returning(m))
	}
	return o.untracked() != nil || Returning(m) || onlyReported(o) || p != nil && (m.recurs() || of && r.Held)
}

// named reports whether a person approved exactly the pending plan. The destroy of a
// deleted stack can be approved in every mode.
func (o Observation) named() bool {
	p := o.Status.Pending
	return o.Spec.Approves(p) || o.Deleting && (p.Is(o.Spec.Approved) || p.Is(o.Spec.Confirmed()))
}

// isRejected reports whether a person rejected the pending plan.
func isRejected(o Observation) bool {
	p, r := o.Status.Pending, o.Spec.Rejected
	return (p.Is(r) || p != nil && r == p.Digest && r != "") && !o.named() && !o.repaired()
}

// repaired reports whether a person approved exactly the pending plan of a repair.
func (o Observation) repaired() bool {
	p := o.Status.Pending
	return o.repairing() && o.Spec.Mode != DriftOnly && p.Is(o.Spec.Repair.Plan)
}

// applicable reports whether nothing stands between the pending plan and its
// apply.
func (o Observation) applicable() bool {
	return o.pendingIsCurrent() && o.approved() && o.refused() == nil && (!o.Status.recurs() || o.named())
}

// destroys reports whether the pending plan destroys everything. One of targets leaves the rest,
// so that the deletion of a stack makes another.
func (m Status) destroys() bool { return m.Pending != nil && m.Pending.Destroy && m.Pending.Whole }

// recurs reports whether the pending plan makes the changes that the last applies
// made already.
func (m Status) recurs() bool {
	c := m.Recurrence
	return c != nil && c.Applies >= recurrences && c.Key == m.Pending.RecurrenceKey()
}

// recurrences is how often the same changes are applied in a row.
const recurrences = 3

// unreviewed reports whether the reviewers must be asked about the pending plan. A policy
// that could not be evaluated is asked again, as a reviewer that did not answer is.
func (o Observation) unreviewed() bool {
	by := Reviewers(o)
	if by == "" {
		return false
	}
	r := o.Status.Review
	return r == nil || r.Plan != o.Status.Pending.Digest || r.By != by ||
		(!r.Passed && !r.Held || r.failed()) && o.clock().left(r.At, o.Spec.askAgain(r)) == 0
}

// refused is what stands between the pending plan and its apply, nil if nothing.
func (o Observation) refused() *Verdict {
	if r := o.Status.Review; Reviewers(o) != "" && r != nil && !r.Passed && !r.Held {
		return r
	}
	return nil
}

// held is the verdict of a reviewer that wants a person to approve the pending
// plan, nil if there is none.
func (o Observation) held() *Verdict {
	if r := verdictOf(o); r != nil && r.Held {
		return r
	}
	return nil
}

// askAgain is how long after a review that did not pass the reviewers are asked
// again.
func (s Spec) askAgain(v *Verdict) time.Duration {
	if v.Refused || v.Held {
		return s.Interval
	}
	return s.RetryEvery
}
