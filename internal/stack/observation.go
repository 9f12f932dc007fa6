package stack

import (
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
)

// Observation is everything that Decide may look at.
type Observation struct {
	Now        time.Time
	Spec       Spec
	Memory     Memory
	Deleting   bool
	Dependents []string // stacks that depend on this one and still exist
	Basis      Basis    // what a plan would be made from now
	Blocked    *Blocked // why Basis cannot be known; nil when it is
	Waiting    *Blocked // the first dependency that is not ready
	Run        *Run     // the run that is going on
	Request    string   // the newest request of a person
	CheckedAt  time.Time
	Unwritten  bool // the published outputs are missing or not what was written
}

// Blocked is something that must change before a plan can be made.
type Blocked struct {
	Kind    fault.Kind
	Reason  Reason
	Message string
	After   time.Duration // when to look again; zero means the retry interval
}

// requested reports whether a person asked for something that was not answered.
func (o Observation) requested() bool {
	return o.Request != "" && o.Request != o.Memory.Handled
}

// current reports whether the pending plan was made from what is seen now.
func (o Observation) current() bool {
	return o.Memory.Pending != nil && o.Memory.Pending.Basis.same(o.Basis)
}

// approved reports whether exactly the pending plan may be applied.
func (o Observation) approved() bool {
	p := o.Memory.Pending
	switch {
	case p == nil:
		return false
	case o.gap() != nil && !p.Destroy:
		return o.named() // whatever the mode: it may create what exists already
	case o.Spec.Force:
		return true
	case o.Spec.Mode == Auto:
		return true
	case o.Spec.Mode == Manual:
		return o.named()
	default:
		return false
	}
}

// named reports whether a person approved exactly the pending plan.
func (o Observation) named() bool {
	p := o.Memory.Pending
	return o.Spec.Mode == Manual && o.Spec.Approved != "" && (o.Spec.Approved == p.Name || o.Spec.Approved == p.Digest)
}

// gap is what was built and is in no state, nil if nothing, or if a person has
// dealt with it.
func (o Observation) gap() *Gap {
	if g := o.Memory.Gap; g != nil && o.Spec.ForgetGap != g.Run {
		return g
	}
	return nil
}

// pause is how much of the wait after a failure is left.
func (o Observation) pause() time.Duration {
	m := o.Memory
	if m.Failures == 0 || o.requested() {
		return 0
	}
	if !o.Deleting && !m.FailedFor.same(o.Basis) {
		return 0 // what failed is not what would be tried now
	}
	return max(0, m.FailedAt.Add(o.Spec.retryAfter(m.Failures)).Sub(o.Now))
}

// retryAfter is the pause before retry number n, from 1.
func (s Spec) retryAfter(n int) time.Duration {
	d := s.RetryEvery
	if s.Backoff != Exponential {
		return d
	}
	for range n - 1 {
		if d >= s.RetryMax/2 { // doubling would overshoot the cap, or overflow
			return s.RetryMax
		}
		d *= 2
	}
	return min(d, s.RetryMax)
}

// exhausted reports whether the retries that the user granted are used up. The
// first attempt is not a retry.
func (o Observation) exhausted() bool {
	m := o.Memory
	return o.Spec.MaxRetries != nil && m.Failures > *o.Spec.MaxRetries &&
		m.FailedFor.same(o.Basis) && !o.requested()
}

// breakable reports whether the user allows the lock that was met to be broken.
func (o Observation) breakable() bool {
	l := o.Memory.Lock
	return l != nil && l.ID != "" && l.ID != o.Memory.Unlocked && (o.Spec.Unlock.Auto || o.Spec.Unlock.ID == l.ID)
}

// due is how long it is until the world should be looked at again.
func (o Observation) due() time.Duration {
	last := o.Memory.PlannedAt
	for _, t := range []time.Time{o.Memory.AppliedAt, o.CheckedAt} {
		if t.After(last) {
			last = t
		}
	}
	return max(0, last.Add(o.Spec.Interval).Sub(o.Now))
}

// Publication names one way of publishing one state.
func Publication(outputs, state string) string { return outputs + "/" + state }

// unpublished reports whether outputs are wanted that were not written yet.
func (o Observation) unpublished() bool {
	m := o.Memory
	if o.Spec.Outputs == "" || m.State == "" || m.Destroyed || o.Spec.Destroy {
		return false
	}
	return o.Unwritten || m.Published != Publication(o.Spec.Outputs, m.State)
}
