package query

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/afterapply"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/prerequisite"
	"github.com/terrier-iac/terrier/internal/query/meaning"
	"github.com/terrier-iac/terrier/internal/query/steps"
	"github.com/terrier-iac/terrier/internal/stack"
)

// explained is Explained for one stack: it advises no approval that would be refused.
func (o *Object) explained(r stack.Reason) meaning.Situation {
	s := meaning.Of(r, o.Spec.Words)
	if r == stack.Suspended && o.Spec.DestroyLast {
		s.Means += " A deletion of the object still " + o.destroys() + "."
		s.Do += " To keep the resources when the object is deleted, annotate it with terrier.dev/deletion=retain."
	}
	if o.Spec.Script {
		s.Means = o.ofScript(r, s.Means)
	}
	if why := o.undecidable(); why != "" && r == stack.DriftFound {
		s.Do = "View the drift with terrier drift show. Change the configuration to match the resources with terrier drift accept. The plan cannot be approved: " + why + "."
	}
	return s
}

// destroys is what a deletion of the object does, for a sentence.
func (o *Object) destroys() string {
	does := "destroys its resources"
	if o.Spec.Script {
		does = "runs its destroy script"
	}
	if o.Spec.ApproveDestroy {
		does += " once a user approved the plan of it"
	}
	return does
}

// ofScript is what r means to a stack that a script applies; otherwise the text that
// holds for every stack.
func (o *Object) ofScript(r stack.Reason, otherwise string) string {
	m := o.Status
	switch {
	case r == stack.Applying && m.Pending == nil:
		return "Terrier is running the script of the stack."
	case r == stack.Applying:
		return "Terrier is running the script of the stack for a plan."
	case r == stack.Applied && m.Applied != nil && m.Applied.Name != "" && !m.Unapplied:
		return "The script has ended with exit code 0, and applied the plan."
	case r == stack.Applied:
		return "The script has ended with exit code 0."
	case r == stack.Destroying:
		return "Terrier is running the destroy script of the stack."
	case r == stack.InputsFailed:
		return "Terrier cannot read a script or a variable: a ConfigMap, a Secret or one of its keys is missing, or its value does not fit."
	default:
		return otherwise
	}
}

// undecidable says why the plans of a stack can be neither approved nor rejected; empty if
// the pending plan, or the next one, can be.
func (o *Object) undecidable() string {
	switch mode := o.Spec.Mode; {
	case o.denied() != "":
		return o.denied()
	case o.Deleting() && (o.Spec.ApproveDestroy || o.held() != nil):
		return ""
	case o.Deleting():
		return "it is being deleted"
	case mode == stack.PlanOnly:
		return "planOnly is set, so that no plan is applied"
	case mode == stack.DriftOnly:
		return "approvePlan is disable, so that Terrier only checks for drift"
	case !o.Spec.AwaitsApproval(o.Status):
		return o.Spec.Words.Automatic + ", so that every plan is applied without an approval"
	default:
		return ""
	}
}

// denied says that a policy or a reviewer denies the pending plan, and what to do; empty if none
// does.
func (o *Object) denied() string {
	r, p := o.Status.Review, o.Status.Pending
	if r == nil || p == nil || !r.Refused || r.Plan != p.Digest {
		return ""
	}
	if len(r.Findings) == 0 {
		return "a reviewer refused the plan " + p.Name + ": " + strings.TrimRight(r.Message, ". ")
	}
	return "the plan " + p.Name + " is " + strings.TrimRight(r.Message, ". ") + "; change the module or its inputs, or the policy"
}

// Denied is why the pending plan cannot be approved whatever a user does; empty if it can.
func Denied(o *Object) string { return o.denied() }

// held is the verdict that holds the pending plan, nil if there is none.
func (o *Object) held() *stack.Verdict {
	if r, p := o.Status.Review, o.Status.Pending; r != nil && p != nil && r.Held && r.Plan == p.Digest {
		return r
	}
	return nil
}

// Explanation says why a stack has its status.
type Explanation struct {
	Stack    Stack             `json:"stack"`
	Means    meaning.Situation `json:"means"`
	Failures int               `json:"failures,omitempty"`
	Facts    []string          `json:"facts,omitempty"` // what else is known
	Rules    []RuleOutcome     `json:"rules"`
	Story    []Step            `json:"story,omitempty"` // the next steps, of a manifest

	Prerequisites []steps.Prerequisite `json:"prerequisites,omitempty"` // what its plans wait for
	Steps         *steps.Steps         `json:"steps,omitempty"`         // after its applies; nil without any

	// Assumed says that the explanation is of a manifest, and nothing of it was read
	// in a cluster.
	Assumed bool `json:"assumed,omitempty"`
}

// What begins the facts about prerequisites and steps, which Explanation has as values, too.
const (
	FactOfPrerequisite = "the prerequisite "
	FactOfStep         = "the step "
)

// RuleOutcome is what became of one rule.
type RuleOutcome struct {
	Rule  string `json:"rule"`
	Does  string `json:"does"`
	Fires bool   `json:"fires,omitempty"`
	Tried bool   `json:"tried,omitempty"` // it did not apply
	Why   string `json:"why,omitempty"`   // of the rule that fires: why it is there
}

// Explain says why a stack has its status.
func (s *Stacks) Explain(ctx context.Context, key Key) (Explanation, error) {
	o, err := s.Read(ctx, key)
	if err != nil {
		return Explanation{}, err
	}
	st := View(o)
	e := Explanation{Stack: st, Means: o.explained(stack.Reason(st.Phase)), Facts: facts(st, o.Status), Rules: ruleOutcomes(st.Rule, o.Spec.Words)}
	e.Prerequisites, e.Steps = steps.Gates(o.Configuration.Prerequisites, o.View.Conditions), stepsOf(o)
	if why := uncompared(o.Configuration); why != "" {
		e.Facts = append(e.Facts, why)
	}
	for _, c := range o.View.Conditions {
		if name, ok := strings.CutPrefix(c.Type, prerequisite.ConditionPrefix); ok {
			e.Facts = append(e.Facts, FactOfPrerequisite+name+": "+c.Message)
		}
		if name, ok := strings.CutPrefix(c.Type, afterapply.ConditionPrefix); ok {
			e.Facts = append(e.Facts, strings.TrimSuffix(FactOfStep+name+" after the apply: "+c.Reason+": "+c.Message, ": "))
		}
	}
	if fact := s.nextCheckFact(ctx, o); fact != "" {
		e.Facts = append(e.Facts, fact)
	}
	if fact := inGitFact(o); fact != "" {
		e.Facts = append(e.Facts, fact)
	}
	return e, nil
}

// nextCheckFact says when drift is checked next, and why then, if that is not the interval of the
// stack. Without an answer of the records the rest of the explanation is as true, so that the
// fact is why there is none.
func (s *Stacks) nextCheckFact(ctx context.Context, o *Object) string {
	c, err := s.nextCheck(ctx, o)
	switch {
	case fault.Of(err) == fault.Missing:
		return ""
	case err != nil:
		return "it is not known when drift is checked next: " + err.Error()
	case c.Why == "" || c.Next.IsZero():
		return ""
	}
	return fmt.Sprintf("drift is checked next at %s: %s", c.Next.UTC().Format(time.RFC3339), c.Why)
}

// inGitFact says where a state in git is, and whether it is too large for that; empty for one
// that is elsewhere.
func inGitFact(o *Object) string {
	b := o.Configuration.Backend
	if b.Git == nil {
		return ""
	}
	fact := "the state is in " + kube.RefOf(o.Configuration, o.GetNamespace()).InWords()
	if n := o.Status.LastState.Resources; n > b.Git.Bound() {
		fact += fmt.Sprintf(". It has %d resources, and git is for states of at most %d: each apply adds the whole state to the repository. Move it to a Secret or a bucket, or raise warnAbove in the settings of the backend", n, b.Git.Bound())
	}
	return fact
}

// ruleOutcomes lists the rules in their order, with what became of each.
func ruleOutcomes(fired string, w stack.Words) []RuleOutcome {
	var out []RuleOutcome
	reached := false
	for _, r := range meaning.Rules() {
		v := RuleOutcome{Rule: r.Rule, Does: r.Does, Fires: r.Rule == fired}
		if v.Fires {
			reached, v.Why = true, w.In(r.Why)
		}
		v.Tried = fired != "" && !reached
		out = append(out, v)
	}
	return out
}

// ApprovedBy says that p was approved, by whom, and whether that is verified; nothing if the
// object approves another plan, or if no approval was needed.
func (s Stack) ApprovedBy(p PlanInfo) string {
	if p.Name == "" || !p.Is(s.Approved) {
		return ""
	}
	return "approved" + by(s.Decider())
}

// approvedBy is ApprovedBy, behind a comma.
func (s Stack) approvedBy(p PlanInfo) string {
	if text := s.ApprovedBy(p); text != "" {
		return ", " + text
	}
	return ""
}

// AppliedText says of the plan that was applied last when that was, and who approved
// it; nothing if none was applied.
func (s Stack) AppliedText() string {
	p := s.Applied
	if p == nil {
		return ""
	}
	text := "the plan " + p.Name + " was applied"
	if p.Name == "" {
		text = "the script, which needs no plan, succeeded"
	}
	if approved := s.ApprovedBy(*p); approved != "" {
		text = "the plan " + p.Name + " was " + approved + ", and was applied"
	}
	if s.AppliedAt.IsZero() {
		return text
	}
	return text + " at " + s.AppliedAt.UTC().Format(time.RFC3339)
}

func by(who string) string {
	if who == "" {
		return ""
	}
	return " by " + who
}

// facts are what a user would ask next.
func facts(s Stack, m stack.Status) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if p := s.Plan; p != nil {
		does := "is pending"
		switch {
		case s.Run != nil && stack.RunKind(s.Run.Kind).Applies():
			does = "is being applied by the run " + s.Run.ID
		case s.Rejection != nil:
			does = "was " + s.Rejection.String()
		case p.Is(s.Approved) && s.Approvals != nil && len(s.Approvals.By) > 0:
			does = "is approved by " + s.Approvals.Users()
		case p.Is(s.Approved):
			does = "is " + s.ApprovedBy(*p)
		}
		add("the plan %s %s: %s", p.Name, does, p.Changes)
		if a := s.Approvals; a != nil && a.Left != "" {
			add("approvals of it: %s", strings.TrimRight(a.Text(), "."))
		}
		if v := s.Override; v != nil {
			add("the windows of policies: %s", v.Text())
		}
	}
	if m.PlanNote != "" {
		add("%s", m.PlanNote)
	}
	if p := s.Applied; p != nil {
		at := m.AppliedAt.UTC().Format(time.RFC3339)
		switch {
		case p.Name == "":
			add("the script succeeded last at %s", at)
		case m.Unapplied:
			add("the script ran for the plan %s%s at %s, and nothing changed in the state", p.Name, s.approvedBy(*p), at)
		default:
			add("applied last: %s at %s%s", p.Name, at, s.approvedBy(*p))
		}
	}
	for _, i := range s.Identities {
		add("its runs sign in to %s", i)
	}
	if s.Drift != nil {
		add("drift since %s: %s", s.Drift.At.UTC().Format(time.RFC3339), s.Drift.Changes)
	}
	out = append(out, toleratedFacts(s)...)
	out = append(out, troubles(s, m)...)
	if g := m.BreakGlass; g != nil && s.Phase == string(stack.BreakGlassSession) {
		add("the session ends at %s at the latest", g.Until.UTC().Format(time.RFC3339))
	}
	if h := m.LastCommand; h != nil {
		add("last command of a session: %s (%s), by %s at %s", h.Command, h.Outcome, cmp.Or(h.By, "an unknown user"), h.At.UTC().Format(time.RFC3339))
	}
	if s.Suspended {
		add("the stack is suspended")
	}
	if s.Deleting {
		add("the object is being deleted")
	}
	var applied stack.PlanInputs
	if m.Applied != nil {
		applied = m.Applied.PlanInputs
	}
	if s.Deleting && m.Failures > 0 && m.Corrects(m.FailedFor, applied) {
		add("the last destroy was made from %s, with the inputs %.19s: they changed after the deletion began", m.FailedFor.Revision, m.FailedFor.Inputs)
	}
	return out
}

// toleratedFacts are what rules let drift, each attribute with its rule.
func toleratedFacts(s Stack) []string {
	var out []string
	list := func(t *stack.ToleratedDrift, what string) {
		if t.Total() > 0 {
			out = append(out, what+": "+t.String())
			for _, a := range t.Of {
				out = append(out, "may drift: "+a.String())
			}
			if more := t.Attributes - len(t.Of); more > 0 {
				out = append(out, fmt.Sprintf("may drift: %d more attributes", more))
			}
		}
	}
	list(s.Tolerated, "rules let drift")
	if p := s.Plan; p != nil && p.Tolerated != nil {
		list(p.Tolerated, "the plan also resets what rules let drift")
		for _, a := range p.Tolerated.Ended {
			out = append(out, "a rule has ended, so that this is drift: "+a.String())
		}
	}
	return out
}

// troubles are the facts that need a user.
func troubles(s Stack, m stack.Status) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if m.Failures > 0 {
		add("%s failed, the last time at %s in the step %s", Count(m.Failures, "attempt"), m.FailedAt.UTC().Format(time.RFC3339), cmp.Or(m.FailedStep, string(m.FailedKind), "start"))
	}
	if g := m.Untracked; g != nil {
		add("the run %s was interrupted, and %s that it created may be untracked", g.Run, Count(g.Count(), "resource"))
	}
	if f := s.FailingCheckBlocks; f != nil {
		add("since %s, %s", f.Since.UTC().Format(time.RFC3339), f)
	}
	if l := s.Lock; l != nil {
		add("the state is locked by %q since %q, lock %s", l.Who, l.Since, l.ID)
	}
	if c := m.Recurrence; c != nil && c.Applies > 1 {
		add("the same changes were applied %s in a row, among them %s", Count(c.Applies, "time"), c.Example)
	}
	if r := m.Review; r != nil && r.Held && len(r.Findings) == 0 {
		add("the plan is held until it is approved, since %s: %s", r.At.UTC().Format(time.RFC3339), r.Message)
	} else if r != nil && !r.Passed && !r.Held && len(r.Findings) == 0 {
		what := "the policies or webhooks could not be asked about the plan"
		if r.Refused {
			what = "a webhook refused the plan"
		}
		add("%s at %s", what, r.At.UTC().Format(time.RFC3339))
	}
	return out
}
