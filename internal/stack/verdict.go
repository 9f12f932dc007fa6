package stack

import (
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/policy"
)

// What policies say of the pending plan, and what an approval of it is of.

// Verdict is what the reviewers said of a plan.
type Verdict struct {
	Plan    string    `json:"plan"` // its digest
	By      string    `json:"by"`   // digest of the reviewers that were asked
	Passed  bool      `json:"passed,omitempty"`
	Held    bool      `json:"held,omitempty"`    // the plan needs an approval, in every mode
	Refused bool      `json:"refused,omitempty"` // a reviewer refused the plan; if none of the three is set, a reviewer did not answer
	Message string    `json:"message,omitempty"`
	At      time.Time `json:"at"`

	Allowed  bool             `json:"allowed,omitempty"`  // a policy says that the plan needs no approval, and nothing holds it
	Digest   string           `json:"digest,omitempty"`   // of all findings that count: part of what is approved; empty if there are none
	Findings []policy.Finding `json:"findings,omitempty"` // of policies, the strictest first, and at most policy.FindingsKept of them
	More     int              `json:"more,omitempty"`     // how many findings there are besides; the record of the verdict has them
}

// Approvable identifies the plan together with what policies found in it. An approval of
// it is one of both: if the verdict changes, the approval counts no more.
func (p Plan) Approvable() string {
	if p.Verdict == "" {
		return p.Digest
	}
	return Digest([]string{"terrier.approvable/1", p.Digest, p.Verdict})
}

// Is reports whether a name, or what Approvable said, means this plan under its verdict.
func (p *Plan) Is(approved string) bool {
	return p != nil && approved != "" && (approved == p.Name || approved == p.Approvable())
}

// Repeats reports whether a verdict says what another one said: they differ in nothing but who
// was asked, and when. Without another one, it says that reviewers have nothing against the
// plan. A verdict after which reviewers are asked again repeats none, since its time counts.
func (v Verdict) Repeats(other *Verdict) bool {
	if !v.Passed && !v.Held || v.failed() {
		return false
	}
	same := Verdict{Plan: v.Plan, Passed: true}
	if other != nil {
		same = *other
	}
	same.By, same.At = v.By, v.At
	return Digest(same) == Digest(v)
}

// Repeated is the status m with a verdict that repeats its own, which was not written since;
// false if it does not.
func Repeated(m Status, v *Verdict) (Status, bool) {
	if v == nil || m.Pending == nil || m.Pending.Digest != v.Plan || !v.Repeats(m.Review) {
		return m, false
	}
	m.Review = v
	return m, true
}

// KeptVerdict is the verdict of the status m about its pending plan as it was kept beside the
// plan, nil if the status says another one: it may say which reviewers were asked before.
func KeptVerdict(m Status, j policy.Judgement) *Verdict {
	if m.Pending == nil {
		return nil
	}
	v := Verdict{Plan: j.Plan, Passed: true}
	if m.Review != nil {
		v = *m.Review
	}
	v.By, v.At = j.By, j.At
	is, repeated := Repeated(m, &v)
	if !repeated || !JudgedAs(is, *m.Pending, j) {
		return nil
	}
	return &v
}

// Reviewed is the status m with what the reviewers said of the pending plan. If the policies say
// another thing than before, the plan gets another name, so that an approval of the last
// one does not count. The same holds if a plan is held that was approved before it had a
// verdict.
func Reviewed(m Status, v Verdict, approved ...string) Status {
	before := m.Review
	m.Review = &v
	if m.Pending == nil || m.Pending.Digest != v.Plan || m.Pending.Verdict == v.Digest {
		return m
	}
	p := *m.Pending
	p.Verdict = v.Digest
	shown := before != nil && before.Plan == p.Digest // users may have seen what was said then
	if shown || (v.Held || v.Refused) && slices.ContainsFunc(approved, m.Pending.Is) {
		p.Name = nameUnder(m, p)
		m.PlanNote = "the plan " + m.Pending.Name + " is now called " + p.Name + ": what policies find in it has changed, and an approval of " + m.Pending.Name + " does not count"
	}
	m.PlanNames = remember(m.PlanNames, PlanName{p.Name, p.Approvable()})
	m.Pending = &p
	return m
}

// outcome is what the reviewers said together.
func (v Verdict) outcome() string {
	switch {
	case v.Refused:
		return "refused"
	case v.Held:
		return "held"
	case v.Passed && v.Allowed:
		return "allowed"
	case v.Passed:
		return "passed"
	default:
		return ""
	}
}

// Judged is what is kept of a verdict beside the plan, so that a user who may write the status
// gains nothing by that: what policies said in full, nil if there are none, and the name that
// the status m has for the plan.
func Judged(m Status, v Verdict, said *policy.Judgement) policy.Judgement {
	j := policy.Judgement{Plan: v.Plan, By: v.By, At: v.At}
	if said != nil {
		j = *said
	}
	j.Outcome = v.outcome()
	if m.Pending != nil && m.Pending.Digest == v.Plan {
		j.Name = m.Pending.Name
	}
	return j
}

// JudgedAs reports whether the verdict about the plan is the one that was kept beside it.
func JudgedAs(m Status, p Plan, j policy.Judgement) bool {
	v := m.Review
	if v == nil || j.Outcome == "" || j.Plan != p.Digest || v.Plan != p.Digest || j.By != v.By || j.Name != p.Name ||
		j.Outcome != v.outcome() || policy.Digest(j.Findings) != v.Digest || p.Verdict != v.Digest {
		return false
	}
	kept, more := policy.Keep(j.Findings)
	return more == v.More && Digest(kept) == Digest(v.Findings)
}

// Unjudged is the status m once its verdict is not the one that was kept: the reviewers are
// asked again.
func Unjudged(m Status) Status {
	m.Review = nil
	m.PlanNote = "the verdict in the status was not the one that Terrier stored, so the reviewers were asked again"
	return m
}

// nameUnder is the name of the pending plan under another verdict: the one that it had
// under the same verdict before, or a longer one.
func nameUnder(m Status, p Plan) string {
	base, digest := m.Pending.Name, p.Approvable()
	for _, n := range m.PlanNames {
		switch {
		case n.Digest == digest && n.Name != m.Pending.Name:
			return n.Name
		case n.Digest == p.Digest:
			base = n.Name
		}
	}
	_, hash, _ := strings.Cut(digest, ":")
	return base + "-" + hash[:min(len(hash), 8)]
}

// Reviewers is the digest of the reviewers that have a say now: a deleted stack is judged
// by policies only.
func Reviewers(o Observation) string {
	switch {
	case o.Deleting:
		return o.Spec.Policies
	case o.Spec.Mode == DriftOnly && !o.Spec.Force:
		return ""
	default:
		return o.Spec.Reviews
	}
}

// ReviewedBy names who has a say about the plans of a stack: its policies, its webhooks, or
// both.
func ReviewedBy(o Observation) string {
	switch {
	case o.Spec.Policies == "":
		return "webhooks"
	case o.Deleting || !o.Spec.Webhooks:
		return "policies"
	default:
		return "policies and webhooks"
	}
}

// verdictOf is what the reviewers of now said of the pending plan, nil if they said nothing.
func verdictOf(o Observation) *Verdict {
	r, p := o.Status.Review, o.Status.Pending
	if Reviewers(o) == "" || r == nil || p == nil || r.Plan != p.Digest {
		return nil
	}
	return r
}

// allowed reports whether a policy says that the pending plan needs no approval.
func allowed(o Observation) bool {
	v := verdictOf(o)
	return v != nil && v.Allowed && v.Passed
}

// failed reports whether a policy could not be evaluated.
func (v *Verdict) failed() bool {
	for _, f := range v.Findings {
		if f.Error && !f.DryRun {
			return true
		}
	}
	return false
}

// withheld is why no run may change resources now.
func withheld(o Observation) policy.Withheld {
	w := withheldBefore(o)
	if by := Overriding(o); !w.None() && len(by.Given) > 0 && appliesPending(o, unwithheld(o).Action) {
		w = o.Spec.Times.Overridden(o.Now, by).Withhold(o.Now, o.SourceAt)
	}
	if !w.None() {
		return w
	}
	return o.Spent
}

// unwithheld is what would be decided at another time.
func unwithheld(o Observation) Decision {
	o.Spec.Times, o.Spent = policy.Times{}, policy.Withheld{}
	return Decide(o)
}

// changesResources reports whether the action starts a run that may change resources,
// other than a command of a break-glass session.
func changesResources(a Action) bool {
	switch a.(type) {
	case Apply, RunScript, Destroy:
		return true
	case Wait, Start, Cancel, Publish, Renew, RollBack, Review, Finish:
	}
	return false
}

// waitForTime waits until policies let the run start.
func waitForTime(o Observation) Decision {
	w := withheld(o)
	d := Decision{Action: Wait{}, Ready: Held, Reason: ApplyWithheld, Message: "Waiting: " + w.Policy + ": " + w.Rule + ": " + w.Why + "."}
	if p := o.Status.Pending; p != nil && (o.Deleting || o.pendingIsCurrent()) {
		d.Message = "The plan " + p.Name + " (" + p.Changes.String() + ") is not applied yet: " + w.Policy + ": " + w.Rule + ": " + w.Why + "."
	}
	if w.Until.IsZero() {
		d.Message += " No time is known at which that changes: change the policy."
	} else {
		d.Message += " Terrier continues at " + w.Until.UTC().Format(time.RFC3339) + "."
		d.Action = Wait{max(time.Second, w.Until.Sub(o.Now))}
	}
	d.Message += overriding(o)
	return d
}

// tooOldFor is the policy for which the pending plan is too old to be applied, nil if there is
// none. A later plan of the same changes confirms a plan.
func tooOldFor(o Observation) *policy.Age {
	m := o.Status
	if m.Pending == nil {
		return nil
	}
	made := m.Pending.At
	if m.PlannedAt.After(made) && m.Planned.same(m.Pending.PlanInputs) {
		made = m.PlannedAt
	}
	return o.Spec.Times.Outdates(o.Now, made)
}
