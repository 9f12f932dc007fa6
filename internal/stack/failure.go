package stack

import "time"

// Failure are the attempts in a row that failed, and the last of them.
type Failure struct {
	Failures   int        `json:"failures,omitempty"`
	FailedAt   time.Time  `json:"failedAt,omitzero"`
	FailsSince time.Time  `json:"failsSince,omitzero"` // the first failure after the last success, also of another revision
	FailedFor  PlanInputs `json:"failedFor,omitzero"`
	FailedPod  string     `json:"failedPod,omitempty"` // digest of what its pod was made of; empty if it had none, and of earlier releases
	FailedKind RunKind    `json:"failedKind,omitempty"`
	FailedStep string     `json:"failedStep,omitempty"`
	FailedWith string     `json:"failedWith,omitempty"`
	FailedWhy  string     `json:"failedWhy,omitempty"` // a name for it, of what neither the engine nor a person did wrong
	Permanent  bool       `json:"permanent,omitempty"` // no retry of the same would succeed

	FailedHealth string `json:"failedHealth,omitempty"` // what the health checks answered does not work: see HealthKey; empty if they did not come to an answer

	Missing *MissingState `json:"missing,omitempty"` // the place of the state does not have the last known one; nil if the last failure was another
}

// endsFailures reports whether the success of r ends the failures before it. To plan
// again what could not be applied does not: else an apply that fails after each
// plan would fail for the first time for ever, and never come to its limit.
// Neither does a plan or a drift check that no person asked for end a failure of the
// health checks.
func (m Status) endsFailures(r Run) bool {
	if m.FailedKind == HealthRun && (r.Kind == PlanRun || r.Kind == CheckRun) && m.FailedFor == r.Cause.PlanInputs && r.Cause.Replan == "" {
		return false
	}
	return r.Kind.Writes() || r.Plan == nil || !m.FailedKind.Writes() || m.FailedFor != r.Cause.PlanInputs
}

// fail folds a run that did not succeed.
func (m Status) fail(r Run) Status {
	if m.FailedFor != r.Cause.PlanInputs || m.otherPod(r.Cause.Pod) || m.FailedKind.Writes() != r.Kind.Writes() && r.Kind == DestroyRun {
		m.Failures = 0
	}
	m.Failures++
	if m.FailsSince.IsZero() {
		m.FailsSince = r.At
		if !m.FailedAt.IsZero() {
			m.FailsSince = m.FailedAt // an earlier release wrote the status
		}
	}
	m.FailedAt, m.FailedFor, m.FailedPod, m.FailedKind = r.At, r.Cause.PlanInputs, r.Cause.Pod, r.Kind
	m.FailedStep, m.FailedWith, m.FailedWhy, m.Permanent, m.Missing = r.Step, r.Message, r.Why, r.Permanent, r.Missing
	m.FailedHealth = ""
	if r.Kind == HealthRun && r.Outcome == Failed && r.Why == "" {
		m.FailedHealth = r.Cause.Health
	}
	m.Lock = r.Lock
	if len(r.Untracked) > 0 {
		m.Untracked = &Untracked{Run: r.ID, At: r.At, Source: r.Cause.PlanInputs.Source, Objects: r.Untracked, Lost: r.Lost, Apart: r.Apart, Rescued: r.Rescued}
	}
	if r.Kind.Writes() {
		// A failed apply may have created something, and its plan is spent.
		m.Pending, m.PlanNote = nil, ""
		m.Planned = PlanInputs{}
		if r.Kind.Applies() {
			m = attempted(m, r)
		}
		if r.State != "" {
			m.State = r.State
		}
	}
	return m
}

// otherPod reports whether the pod of a run would be another one than that of the run that
// failed last. A user who corrects the image or the memory of a pod changes no plan.
func (f Failure) otherPod(pod string) bool {
	return f.FailedPod != "" && pod != "" && f.FailedPod != pod
}

// attempted counts the stack as created, unless r ended before it could change anything. A
// run that did not find the state leaves the record of the one before, which is destroyed
// where the state is.
func attempted(m Status, r Run) Status {
	if !r.Untouched && r.Missing == nil {
		m = withRecord(m, r)
		m.Created = true
	}
	return m
}

// clear forgets failures.
func (m Status) clear() Status {
	m.Failure = Failure{}
	return m
}
