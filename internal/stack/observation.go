package stack

import (
	"slices"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
)

// Observation is everything that Decide may look at.
type Observation struct {
	Now        time.Time
	Spec       Spec
	Status     Status
	Deleting   bool
	Dependents []string   // stacks that depend on this one and still exist
	PlanInputs PlanInputs // what a plan would be made from now
	Blocked    *Blocked   // why PlanInputs cannot be known; nil when it is
	Waiting    *Blocked   // the first dependency that is not ready
	Run        *Run       // the run that is going on
	Request    string     // the newest request of a person
	CheckedAt  time.Time
	Unwritten  bool // the published outputs are missing or not what was written

	// What a pass met on its way.
	Unreadable string   // why the status in the object cannot be read; empty if it can
	Unsettled  *Blocked // why a run that ended could not be taken over
	Obstacle   *Blocked // what came in the way of the action that was decided
	Queued     string   // what the run that was decided waits for; empty if it started
	Asking     bool     // the webhooks are being asked about the pending plan
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
	return o.Request != "" && o.Request != o.Status.Handled
}

// current reports whether the pending plan was made from what is seen now.
func (o Observation) current() bool {
	return o.Status.Pending != nil && o.Status.Pending.PlanInputs.same(o.PlanInputs)
}

// approved reports whether exactly the pending plan may be applied.
func (o Observation) approved() bool {
	p := o.Status.Pending
	switch {
	case p == nil:
		return false
	case o.gap() != nil && !p.Destroy:
		return o.named() || o.repaired() // whatever the mode: it may create what exists already
	case o.held() != nil:
		return o.named() || o.repaired() // whatever the mode: a reviewer wants a person to see it
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

// repairing reports whether a person asked for the gap to be closed by imports.
func (o Observation) repairing() bool {
	g, r := o.gap(), o.Spec.Repair
	return g != nil && r != nil && r.Run == g.Run
}

// repaired reports whether a person saw the plan of the repair and wants it.
func (o Observation) repaired() bool {
	p := o.Status.Pending
	return o.repairing() && o.Spec.Mode != DriftOnly && (o.Spec.Repair.Plan == p.Name || o.Spec.Repair.Plan == p.Digest)
}

// Imports returns what a plan of the repair brings into the state: the objects
// of the gap, less those that do not exist.
func (o Observation) Imports() []UntrackedResource {
	if !o.repairing() {
		return nil
	}
	var out []UntrackedResource
	for _, u := range o.Status.Untracked.Objects {
		if slices.Contains(o.Spec.Repair.Absent, u.Address) {
			continue
		}
		if id := o.Spec.Repair.IDs[u.Address]; id != "" {
			u.ID = id
		}
		out = append(out, u)
	}
	return out
}

// circling reports whether the pending plan makes the changes that were made
// by the last applies already.
func (o Observation) circling() bool {
	c := o.Status.Circle
	return c != nil && c.Applies >= circles && c.Key == o.Status.Pending.Circle()
}

// circles is how often the same changes are applied in a row.
const circles = 3

// reviewed reports whether webhooks have a say in what is applied.
func (o Observation) reviewed() bool {
	return o.Spec.Reviews != "" && (o.Spec.Mode != DriftOnly || o.Spec.Force)
}

// unreviewed reports whether the webhooks must be asked about the pending plan.
func (o Observation) unreviewed() bool {
	if !o.reviewed() {
		return false
	}
	r := o.Status.Review
	return r == nil || r.Plan != o.Status.Pending.Digest || r.By != o.Spec.Reviews ||
		!r.Passed && !r.Held && o.left(r.At, o.patience(r)) == 0
}

// refused is what stands between the pending plan and its apply, nil if nothing.
func (o Observation) refused() *Verdict {
	if r := o.Status.Review; o.reviewed() && r != nil && !r.Passed && !r.Held {
		return r
	}
	return nil
}

// held is the verdict of a reviewer that wants a person to approve the pending
// plan, nil if there is none.
func (o Observation) held() *Verdict {
	if r := o.Status.Review; o.reviewed() && r != nil && r.Held && o.Status.Pending != nil && r.Plan == o.Status.Pending.Digest {
		return r
	}
	return nil
}

// patience is how long after a review that did not pass the webhooks are asked
// again.
func (o Observation) patience(r *Verdict) time.Duration {
	if r.Refused {
		return o.Spec.Interval
	}
	return o.Spec.RetryEvery
}

// Vital names what the health checks of a stack are about: the checks, and what
// was changed in the world last.
func Vital(health, wrote string) string { return health + "/" + wrote }

// unproved reports whether what was applied has not passed its health checks.
func (o Observation) unproved() bool {
	m := o.Status
	return o.Spec.Health != "" && m.Wrote != "" && m.Built && !m.Destroyed && !o.Spec.Destroy && m.Healthy != Vital(o.Spec.Health, m.Wrote)
}

// unwell reports whether what was applied was found not to work.
func (o Observation) unwell() bool {
	return o.Status.Failures > 0 && o.Status.FailedKind == HealthRun && o.unproved()
}

// Relieved is the memory without a failure of a health check that nothing is
// asked about any more: the checks were taken off, or what they were about. No
// run would ever find out that it works.
func (o Observation) Relieved() Status {
	if o.Status.FailedKind == HealthRun && !o.unwell() {
		return o.Status.clear()
	}
	return o.Status
}

// ailing reports whether that is all that is the matter: nothing else is to be
// planned, applied or published before it is known to work.
func (o Observation) ailing() bool {
	return o.unwell() && o.Status.Planned.same(o.PlanInputs) && !o.applicable() && (o.current() || !o.unpublished())
}

// applicable reports whether nothing stands between the pending plan and its
// apply.
func (o Observation) applicable() bool {
	return o.current() && o.approved() && o.refused() == nil && (!o.circling() || o.named())
}

// look is how the world is looked at once the interval is over.
func (o Observation) look() RunKind {
	if o.Spec.Force || !o.Spec.CheckDrift && o.Spec.Mode != DriftOnly {
		return PlanRun
	}
	return CheckRun
}

// ending reports whether the pending plan takes everything down.
func (o Observation) ending() bool { return o.Status.Pending != nil && o.Status.Pending.Destroy }

// quiet is how long after a plan for another source the next one is put off, so
// that thirty commits in ten seconds are two plans.
const quiet = 10 * time.Second

// flurry is how long a plan for another source is put off.
func (o Observation) flurry() time.Duration {
	if o.requested() || o.Status.MovedAt.IsZero() {
		return 0
	}
	return o.left(o.Status.MovedAt, quiet)
}

// named reports whether a person approved exactly the pending plan.
func (o Observation) named() bool {
	p := o.Status.Pending
	return o.Spec.Mode == Manual && o.Spec.Approved != "" && (o.Spec.Approved == p.Name || o.Spec.Approved == p.Digest)
}

// gap is what was built and is in no state, nil if nothing, or if a person has
// dealt with it.
func (o Observation) gap() *Untracked {
	if g := o.Status.Untracked; g != nil && o.Spec.IgnoreUntracked != g.Run {
		return g
	}
	return nil
}

// OpenUntracked is what a person still has to deal with, nil if there is nothing.
func (o Observation) OpenUntracked() *Untracked { return o.gap() }

// pause is how much of the wait after a failure is left.
func (o Observation) pause() time.Duration {
	m := o.Status
	if m.Failures == 0 || o.requested() {
		return 0
	}
	if !o.Deleting && !m.FailedFor.same(o.PlanInputs) {
		return 0 // what failed is not what would be tried now
	}
	return o.left(m.FailedAt, o.Spec.retryAfter(m.Failures))
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
	m := o.Status
	return o.Spec.MaxRetries != nil && m.Failures > *o.Spec.MaxRetries &&
		m.FailedFor.same(o.PlanInputs) && !o.requested()
}

// breakable reports whether the user allows the lock that was met to be broken.
func (o Observation) breakable() bool {
	l := o.Status.Lock
	return l != nil && l.ID != "" && l.ID != o.Status.Unlocked && (o.Spec.Unlock.Auto || o.Spec.Unlock.ID == l.ID)
}

// Recheck is how often a stack that waits as d says is looked at again while
// nothing changes; zero if it is not, since an event or a person must come
// first. It is the same however often d is made.
func (o Observation) Recheck(d Decision) time.Duration {
	w, waits := d.Action.(Wait)
	switch {
	case d.Reason.Settled() && o.Status.Destroyed && o.Spec.Destroy:
		return 0
	case d.Reason.Settled(), d.Reason == NotConverging, d.Reason == DriftFound, d.Reason == RetryLimitReached && o.ailing():
		return o.Spec.Interval // also while a look goes on
	case waits && w.For == 0, o.running():
		return 0
	case !waits, o.Status.Failures > 0, d.Reason == ChangesComing, d.Reason == ReviewRefused, d.Reason == GlassBroken:
		return 0 // at a time of its own
	default:
		return o.Spec.RetryEvery
	}
}

// Retry is when what failed is tried again, if d waits for that; else zero. It is
// the same however often d is made.
func (o Observation) Retry(d Decision) time.Time {
	switch w, waits := d.Action.(Wait); {
	case !waits || w.For == 0 || o.Status.Failures == 0 || d.Reason == RetryLimitReached:
		return time.Time{}
	case o.ailing(): // which may look for drift before
		return o.Status.FailedAt.Add(o.Spec.retryAfter(o.Status.Failures))
	default:
		return o.Status.FailedAt.Add(w.For + o.Now.Sub(o.Status.FailedAt))
	}
}

// due is how long it is until the world should be looked at again.
func (o Observation) due() time.Duration {
	if m := o.Status; m.Known.Unstored && !m.PlannedAt.After(m.AppliedAt) && !o.CheckedAt.After(m.AppliedAt) {
		return 0 // somebody wrote the state during the apply: the next run finds out what stands there
	}
	every := o.Spec.Interval
	planned, applied, checked := o.past(o.Status.PlannedAt, every), o.past(o.Status.AppliedAt, o.Spec.firstLook()), o.past(o.CheckedAt, every)
	last := planned
	if !applied.Before(last) && !applied.IsZero() {
		last, every = applied, o.Spec.firstLook()
	}
	if checked.After(last) {
		last, every = checked, o.Spec.Interval
	}
	return o.left(last, every)
}

// past is t, or the zero time if t is further ahead than a wait is long: then the
// clock was wrong when t was written down, or is now, and t says nothing. A clock
// that was set back by less makes one wait longer, by no more than that wait.
func (o Observation) past(t time.Time, wait time.Duration) time.Time {
	if t.Sub(o.Now) > wait {
		return time.Time{}
	}
	return t
}

// left is how much is left of a wait that began at since.
func (o Observation) left(since time.Time, wait time.Duration) time.Duration {
	return max(0, o.past(since, wait).Add(wait).Sub(o.Now))
}

// firstLook is how long after an apply the world is looked at first: an
// interval, less up to half of it. Stacks that were applied together are not
// looked at together, now or after a restart, since the looks that follow keep
// their distance.
func (s Spec) firstLook() time.Duration {
	if s.Interval < time.Minute {
		return s.Interval
	}
	const steps = 1 << 16
	return s.Interval - time.Duration(s.Spread%steps)*(s.Interval/2/steps)
}

// Publication names one way of publishing one state.
func Publication(outputs, state string) string { return outputs + "/" + state }

// unpublished reports whether outputs are wanted that were not written yet.
func (o Observation) unpublished() bool {
	m := o.Status
	if o.Spec.Outputs == "" || m.State == "" || m.Destroyed || o.Spec.Destroy {
		return false
	}
	return o.Unwritten || m.Published != Publication(o.Spec.Outputs, m.State)
}
