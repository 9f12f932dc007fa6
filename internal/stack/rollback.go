package stack

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A rollback puts the inputs of an earlier apply in the place of those that the object asks for.
// What is planned and applied then is a plan like any other.

// Recovery is what a stack can be rolled back to, and whether it is.
type Recovery struct {
	Revisions []Revision `json:"revisions,omitempty"` // the last apply, and before it the one to return to; none of a stack that is applied by a script
	Rollback  *Rollback  `json:"rollback,omitempty"`  // nil unless other inputs stand in for those that are asked for
	Left      PlanInputs `json:"left,omitzero"`       // from which the stack was rolled back by itself last

	AnsweredRollback string `json:"answeredRollback,omitempty"` // the last request for a rollback, or for the end of one, that counts no more
}

// Revision is an apply that succeeded, with what it was made from.
type Revision struct {
	PlanInputs PlanInputs `json:"basis"`
	Same       PlanInputs `json:"same,omitzero"`      // later inputs whose plan had no changes
	Plan       string     `json:"plan,omitempty"`     // its name
	Run        string     `json:"run,omitempty"`      // the last run that applied these inputs
	At         time.Time  `json:"at,omitzero"`        // when that ended
	Healthy    bool       `json:"healthy,omitempty"`  // it passed its health checks once
	Snapshot   string     `json:"snapshot,omitempty"` // key of the record of what it was made from
	Place      string     `json:"place,omitempty"`    // of the state: see LastState
}

// Rollback says what stands in for what, and why.
type Rollback struct {
	From    PlanInputs `json:"from"` // that are bad: as long as they are asked for, it lasts
	To      Revision   `json:"to"`
	At      time.Time  `json:"at"`
	Why     string     `json:"why,omitempty"`     // what the health checks found, or the reason of the user
	Request string     `json:"request,omitempty"` // by which a user asked for it; empty if the stack did it by itself
	Lasting bool       `json:"lasting,omitempty"` // other inputs alone do not end it: with them the same source and spec failed before
	Reached bool       `json:"reached,omitempty"` // what it returns to was applied since, or a plan of it had no changes
}

// alike reports whether b and c are the same source, inputs and spec. The engine is the choice of
// the platform.
func (b PlanInputs) alike(c PlanInputs) bool {
	return b.Source == c.Source && b.Inputs == c.Inputs && b.Shape == c.Shape
}

// Token names the source, the inputs and the spec, for requests of users.
func (b PlanInputs) Token() string {
	_, hash, _ := strings.Cut(Digest([]string{b.Source, b.Inputs, b.Shape}), ":")
	return hash[:12]
}

// is reports whether the apply was of b, or is as good as one of b.
func (r Revision) is(b PlanInputs) bool {
	return r.PlanInputs.alike(b) || r.Same != PlanInputs{} && r.Same.alike(b)
}

// Inputs are what a plan is made from during the rollback, with the engine of now.
func (b Rollback) Inputs(engine string) PlanInputs {
	in := b.To.PlanInputs
	in.Engine = engine
	return in
}

// EndRollback begins a request that ends a rollback.
const EndRollback = "end"

// RollbackRequest is a request to leave inputs with a token, or to end a rollback. The time
// tells it from others, and the reason is the user's.
func RollbackRequest(token string, at time.Time, why string) string {
	return strings.TrimSpace(token + "@" + at.UTC().Format(time.RFC3339) + " " + why)
}

// rollbackNames is what a request names, and the reason of its user.
func rollbackNames(request string) (token, why string) {
	token, rest, _ := strings.Cut(request, "@")
	_, why, _ = strings.Cut(rest, " ")
	return token, strings.TrimSpace(why)
}

// ReadRollbackRequest reads a request; false if it says nothing that can be read.
func ReadRollbackRequest(request string) (token, why string, ok bool) {
	token, why = rollbackNames(request)
	_, rest, _ := strings.Cut(request, "@")
	at, _, _ := strings.Cut(rest, " ")
	_, err := time.Parse(time.RFC3339, at)
	return token, why, err == nil && (token == EndRollback || len(token) == len(PlanInputs{}.Token()))
}

// lastRevision is the last apply, false if it is not known.
func (m Recovery) lastRevision() (Revision, bool) {
	if len(m.Revisions) == 0 {
		return Revision{}, false
	}
	return m.Revisions[len(m.Revisions)-1], true
}

// WasHealthy reports whether an apply of b, or of what is as good, passed its health checks.
func (m Recovery) WasHealthy(b PlanInputs) bool {
	return slices.ContainsFunc(m.Revisions, func(r Revision) bool { return r.Healthy && r.is(b) })
}

// ReturnsTo is the apply to which a rollback from b returns, or why there is none: the end of a
// sentence. A rollback that no user asked for returns only to what was healthy.
func ReturnsTo(m Status, b PlanInputs, healthy bool) (Revision, string) {
	why := "no earlier apply is known"
	last, _ := m.lastRevision()
	place := cmp.Or(m.SnapshotPlace, last.Place) // the checkpoint has only that of the applies
	for _, r := range slices.Backward(m.Revisions) {
		switch {
		case r.is(b):
		case healthy && !r.Healthy:
			why = "no earlier apply passed its health checks"
		case r.Place != place:
			why = "the state was in another place at the apply of " + r.PlanInputs.Revision
		default:
			return r, ""
		}
	}
	return Revision{}, why
}

// NeverRollsBack says why a stack is not rolled back, whatever it was made from: the end of a
// sentence. It is empty if the stack may be.
func NeverRollsBack(s Spec, m Status) string {
	switch {
	case s.Script:
		return "a script applies it"
	case s.OwnBackend:
		return "its module says where the state is, and each revision may say something else"
	case s.Mode != Auto && s.Mode != Manual:
		return "it applies no plans"
	case s.Destroy || m.Destroyed:
		return "its resources are destroyed"
	case !m.Created:
		return "nothing was applied"
	case m.Rollback != nil:
		return "it is rolled back to " + m.Rollback.To.PlanInputs.Revision + " already, and no earlier apply is kept"
	default:
		return ""
	}
}

// fellIll reports whether the health checks found that the last apply does not work, and what it
// was made from is asked for and never worked.
func fellIll(o Observation) bool {
	m := o.Status
	last, known := m.lastRevision()
	return known && o.unhealthy() && m.FailedHealth == HealthKey(o.Spec.Health, m.LastWrite) && last.Run == m.LastWrite &&
		m.FailedFor.alike(o.PlanInputs) && last.is(o.PlanInputs) && !m.WasHealthy(o.PlanInputs)
}

// rollsBack reports whether the stack is rolled back by itself.
func rollsBack(o Observation) bool {
	if !o.Spec.RollsBack || NeverRollsBack(o.Spec, o.Status) != "" || !fellIll(o) {
		return false
	}
	_, why := ReturnsTo(o.Status, o.PlanInputs, true)
	return why == ""
}

// asksForRollback reports whether a user asks for a rollback from the inputs of now.
func asksForRollback(o Observation) bool {
	token, _ := rollbackNames(o.Spec.RollBack)
	if o.Spec.RollBack == o.Status.AnsweredRollback || token != o.PlanInputs.Token() || NeverRollsBack(o.Spec, o.Status) != "" {
		return false
	}
	_, why := ReturnsTo(o.Status, o.PlanInputs, false)
	return why == ""
}

func rollbackRules() []rule {
	return []rule{
		{
			"a stack is rolled back on request",
			asksForRollback,
			func(o Observation) Decision {
				to, _ := ReturnsTo(o.Status, o.PlanInputs, false)
				_, why := rollbackNames(o.Spec.RollBack)
				return rollingBack(o, Rollback{From: o.PlanInputs, To: to, At: o.Now, Why: why, Request: o.Spec.RollBack})
			},
		},
		{
			"what failed its health checks is rolled back",
			rollsBack,
			func(o Observation) Decision {
				to, _ := ReturnsTo(o.Status, o.PlanInputs, true)
				left := o.Status.Left
				again := left != PlanInputs{} && left.Source == o.PlanInputs.Source && left.Shape == o.PlanInputs.Shape
				return rollingBack(o, Rollback{From: o.PlanInputs, To: to, At: o.Now, Why: o.Status.FailedWith, Lasting: again})
			},
		},
	}
}

func rollingBack(o Observation, b Rollback) Decision {
	return Decision{Action: RollBack{b}, Ready: Reconciling, Reason: Planning, Message: b.String()}
}

// String says what is rolled back, and why.
func (b Rollback) String() string {
	s := fmt.Sprintf("Rolling back from %s to %s", b.From.Revision, b.To.PlanInputs.Revision)
	if from := b.From.Revision; from == b.To.PlanInputs.Revision {
		s = fmt.Sprintf("Rolling back to the inputs of the plan %s, which is of the same revision %s", b.To.Plan, from)
	}
	return s + b.because()
}

// because is why the stack is rolled back, as the end of a sentence.
func (b Rollback) because() string {
	switch why := strings.TrimRight(b.Why, ". "); {
	case b.Request == "":
		return ", since the health checks failed: " + why
	case why != "":
		return " on request: " + why
	default:
		return " on request"
	}
}

// BeginRollback is the status once a rollback begins. The request of a user that the object has by
// then counts no more.
func BeginRollback(m Status, b Rollback, request string) Status {
	m.Rollback, m.AnsweredRollback = &b, request
	if b.Request == "" {
		m.Left = b.From
	}
	return m
}

// WithRollback is the status once it is known what a plan would be made from without a rollback.
// A rollback ends when something else is asked for than what is bad, or when a user ends it. A
// request of a user to leave something else than what is asked for now came too late: it counts
// no more, also not when that is asked for again.
func WithRollback(m Status, s Spec, asked PlanInputs) Status {
	token, _ := rollbackNames(s.RollBack)
	news := s.RollBack != "" && s.RollBack != m.AnsweredRollback
	b := m.Rollback
	switch {
	case b != nil && news && token == EndRollback:
		m.Rollback, m.FailedHealth = nil, "" // the checks are made again before anything is rolled back again
	case b != nil && b.endsWith(asked):
		m.Rollback = nil
	case b == nil && news && token != asked.Token():
	default:
		return m
	}
	if news && token != asked.Token() {
		m.AnsweredRollback = s.RollBack
	}
	return m
}

// endsWith reports whether the rollback ends once b is asked for.
func (r Rollback) endsWith(b PlanInputs) bool {
	if r.Lasting {
		b.Inputs = r.From.Inputs
	}
	return !r.From.alike(b)
}

// rollsBackTo reports whether the pending plan is to bring back what a rollback returns to.
func rollsBackTo(m Status) bool {
	p, b := m.Pending, m.Rollback
	return b != nil && p != nil && !p.Destroy && !b.Reached && b.To.is(p.PlanInputs)
}

// Returning reports whether the pending plan is to bring back what a rollback returns to, and
// destroys something for it. Such a plan needs an approval, whatever the mode.
func Returning(m Status) bool { return rollsBackTo(m) && m.Pending.Changes.Destroy > 0 }

// returning says of a pending plan that it is part of a rollback, as a sentence; empty if it is
// not.
func returning(m Status) string {
	if !rollsBackTo(m) {
		return ""
	}
	s := " " + m.Rollback.String() + "."
	if Returning(m) {
		s += " The plan destroys " + count(m.Pending.Changes.Destroy, "resource") + ", so it needs an approval."
	}
	return s
}

// withRollback is how d shows a stack that is settled but for what it was rolled back from.
func withRollback(o Observation, d Decision) Decision {
	b := o.Status.Rollback
	if b == nil {
		return d
	}
	ends := "the source, the inputs or the spec change"
	if b.Lasting {
		ends = "the source or the spec changes, since other inputs did not help"
	}
	msg := "Rolled back" + strings.TrimPrefix(b.String(), "Rolling back") + ". Terrier plans again when " + ends + ". To try what was rolled back once more: terrier rollback " + o.Spec.Words.Argument + " --end"
	if d.Reason == StepsFailed || d.Reason == StepsHeld {
		d.Message = msg + ". " + d.Message
		return d
	}
	d.Ready, d.Reason, d.Message = Stalled, RolledBack, msg
	if b.Request != "" {
		d.Ready = Held
	}
	return d
}

// noRollback says of a stack that does not work why it is not rolled back; empty if it need not
// be said.
func noRollback(o Observation) string {
	m := o.Status
	switch never := NeverRollsBack(o.Spec, m); {
	case m.Rollback != nil:
		return ". It was rolled back to this from " + m.Rollback.From.Revision + ", so it is not rolled back again"
	case !o.Spec.RollsBack, m.FailedHealth != HealthKey(o.Spec.Health, m.LastWrite):
		return "" // no user asks for it, or the checks said nothing of what was applied
	case never != "":
		return ". It is not rolled back: " + never
	case m.WasHealthy(o.PlanInputs):
		return ". It is not rolled back: what was applied worked before"
	default:
		if _, why := ReturnsTo(m, o.PlanInputs, true); why != "" {
			return ". It is not rolled back: " + why
		}
		return ""
	}
}

// duringRollback says of a failure that a rollback failed, as the end of a sentence; empty if
// none did.
func duringRollback(o Observation) string {
	m, b := o.Status, o.Status.Rollback
	if b == nil || o.Deleting || o.unhealthy() || !b.To.is(m.FailedFor) || b.Reached {
		return ""
	}
	return ". This was a rollback" + strings.TrimPrefix(b.String(), "Rolling back") + ". It is not rolled back any further. To plan what the object asks for: terrier rollback " + o.Spec.Words.Argument + " --end"
}

// reached is the rollback once a run has left the resources as these inputs want them. What was
// applied last says less: an apply that failed after it may have changed anything.
func reached(m Status, r Run) *Rollback {
	b := m.Rollback
	if b == nil || b.Reached || r.Cause.Destroy || !r.Cause.Whole || !b.To.is(r.Cause.PlanInputs) {
		return b
	}
	is := *b
	is.Reached = true
	return &is
}

// revised are the revisions after an apply. Of those before it the newest that was healthy is
// kept, or the newest of all. What is rolled back is none of them.
func revised(m Status, r Run) []Revision {
	p := r.Cause.Plan
	if r.Kind != ApplyRun || r.Cause.Destroy || p == nil || r.Cause.Snapshot == "" {
		return nil
	}
	now := Revision{PlanInputs: r.Cause.PlanInputs, Plan: p.Name, Run: r.ID, At: r.At, Snapshot: r.Cause.Snapshot, Place: r.Cause.Place}
	var before []Revision
	for _, v := range m.Revisions {
		switch {
		case v.is(now.PlanInputs):
			now.Healthy = now.Healthy || v.Healthy
		case m.Rollback != nil && v.is(m.Rollback.From):
		case len(before) == 0 || v.Healthy || !before[0].Healthy:
			before = []Revision{v}
		}
	}
	return append(before, now)
}

// proven are the revisions after health checks that passed.
func proven(m Status, r Run) []Revision {
	last, known := m.lastRevision()
	if !known || last.Healthy || last.Run != m.LastWrite || !strings.HasSuffix(r.Cause.Health, "/"+m.LastWrite) {
		return m.Revisions
	}
	last.Healthy = true
	return append(slices.Clone(m.Revisions[:len(m.Revisions)-1]), last)
}

// confirmed are the revisions after a plan that found nothing to change.
func confirmed(m Status, r Run) []Revision {
	last, known := m.lastRevision()
	if !known || r.Cause.Destroy || !r.Cause.Whole || last.is(r.Cause.PlanInputs) {
		return m.Revisions
	}
	last.Same = r.Cause.PlanInputs
	return append(slices.Clone(m.Revisions[:len(m.Revisions)-1]), last)
}

// Snapshots are the keys of the records that rollbacks are made from.
func (m Recovery) Snapshots() []string {
	var keys []string
	for _, r := range m.Revisions {
		keys = append(keys, r.Snapshot)
	}
	if m.Rollback != nil {
		keys = append(keys, m.Rollback.To.Snapshot)
	}
	return keys
}

// same reports whether m says what n says. Times are not compared: they are those of the runs.
func (m Recovery) same(n Recovery) bool {
	timeless := func(r Revision) Revision { r.At = time.Time{}; return r }
	if (m.Rollback == nil) != (n.Rollback == nil) || m.AnsweredRollback != n.AnsweredRollback || m.Left != n.Left {
		return false
	}
	if b, c := m.Rollback, n.Rollback; b != nil && (b.From != c.From || timeless(b.To) != timeless(c.To) || b.Request != c.Request || b.Lasting != c.Lasting || b.Reached != c.Reached) {
		return false
	}
	return slices.EqualFunc(m.Revisions, n.Revisions, func(a, b Revision) bool { return timeless(a) == timeless(b) })
}
