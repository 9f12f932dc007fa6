package query

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/identity"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Verdict is what policies find in the pending plan.
type Verdict struct {
	Effect   policy.Effect    `json:"effect,omitempty"` // of all findings together; empty if none has one
	At       time.Time        `json:"at"`
	Findings []policy.Finding `json:"findings,omitempty"` // lists have none of them
	More     int              `json:"more,omitempty"`     // how many findings there are besides
}

// verdictOf is the verdict about the pending plan, nil if policies find nothing in it.
func verdictOf(m stack.Status) *Verdict {
	r, p := m.Review, m.Pending
	if r == nil || p == nil || r.Plan != p.Digest || len(r.Findings) == 0 {
		return nil
	}
	return &Verdict{Effect: policy.Combine(r.Findings), At: r.At, Findings: r.Findings, More: r.More}
}

// Severity are the findings of one severity.
type Severity struct {
	Name     string // critical, high, medium, low, or other for those that have none
	Findings []policy.Finding
}

// BySeverity groups the findings, the most severe first.
func (v *Verdict) BySeverity() []Severity {
	if v == nil {
		return nil
	}
	var out []Severity
	for _, name := range policy.Severities() {
		g := Severity{Name: cmp.Or(name, "other")}
		for _, f := range v.Findings {
			if f.Severity == name || name == "" && !known(f.Severity) {
				g.Findings = append(g.Findings, f)
			}
		}
		if len(g.Findings) > 0 {
			out = append(out, g)
		}
	}
	return out
}

func known(severity string) bool {
	for _, s := range policy.Severities() {
		if s == severity {
			return true
		}
	}
	return false
}

// EffectText says what a finding does, in a word or two.
func EffectText(f policy.Finding) string {
	if f.DryRun {
		return "dry run: " + string(f.Effect)
	}
	does := "holds"
	switch f.Effect {
	case policy.Deny:
		does = "denies"
	case policy.Warn:
		does = "warns"
	case policy.Allow:
		does = "allows"
	case policy.Hold:
	}
	if f.Policy == policy.OwnGuards { // they are several
		does = strings.Replace(strings.TrimSuffix(does, "s"), "denie", "deny", 1)
	}
	if f.Error {
		does += ": not evaluated"
	}
	return does
}

// Is reports whether a name, or the identity of the plan under its verdict, means this plan.
func (p PlanInfo) Is(approved string) bool {
	return approved != "" && (approved == p.Name || approved == cmp.Or(p.Approvable, p.Digest))
}

// Approvals are the approvals of a pending plan that a policy holds.
type Approvals struct {
	By         []string `json:"by,omitempty"`         // the users who approved it, as the object says
	Claimed    []string `json:"claimed,omitempty"`    // those of them whom the controller has not verified, or not yet
	Have       int      `json:"have,omitempty"`       // how many of these approvals count
	Need       int      `json:"need,omitempty"`       // how many it takes
	Left       string   `json:"left,omitempty"`       // which ones are still needed; empty if none are
	Not        []string `json:"not,omitempty"`        // which approvals do not count, and why
	Unverified string   `json:"unverified,omitempty"` // why no approval can be verified
	Next       string   `json:"next,omitempty"`       // the command by which the next user approves the plan
}

// approvalsOf are the approvals of the pending plan, nil unless a policy holds it and a user has
// approved it. Approvals that the controller has not seen yet are as old as the newest.
func approvalsOf(o *Object) *Approvals {
	r := o.held()
	if r == nil {
		return nil
	}
	seen := stack.Observation{Now: r.At, Spec: o.Spec, Status: o.Status, Deleting: o.Deleting()}
	seen.Spec.Reviews, seen.Spec.Policies = r.By, r.By // the controller knows the reviewers of now
	for _, g := range o.Status.Approvals {
		if g.At.After(seen.Now) {
			seen.Now = g.At
		}
	}
	seen.Status.Approvals = stack.Approvers{Seen: o.Status.Approvals}.WithStamps(o.Status, o.Spec, seen.Now.Add(time.Nanosecond)).Seen
	given := stack.Given(seen)
	if len(given) == 0 && (o.Status.Unverified == "" || !o.Spec.Approves(o.Status.Pending)) {
		return nil
	}
	a := &Approvals{Unverified: o.Status.Unverified}
	for _, g := range given {
		if g.By == "" {
			continue
		}
		a.By = append(a.By, g.By)
		if a.Unverified != "" || !slices.ContainsFunc(o.Status.Approvals, func(seen policy.Given) bool { return seen.Plan == g.Plan && seen.By == g.By }) {
			a.Claimed = append(a.Claimed, g.By)
		}
	}
	var left []string
	for i, l := range stack.Lacks(seen) {
		if i == 0 {
			a.Have, a.Need, a.Not = len(l.By), l.Need, l.Not
		}
		left = append(left, leftOf(l))
	}
	if a.Left = strings.Join(left, "; "); a.Left != "" {
		a.Next = "terrier approve " + o.Spec.Words.Argument + " " + o.Status.Pending.Name
	}
	return a
}

// RunIdentity is how the runs of a stack sign in to another system, as the stack asks for it.
// It has no token.
type RunIdentity struct {
	Name     string `json:"name"` // aws, gcp, azure, vault, kubernetes, or the name of a token
	Audience string `json:"audience"`
	Role     string `json:"role,omitempty"` // empty if the other system chooses it

	// Of runs that change nothing: plans, drift checks, previews.
	PlanAudience string `json:"planAudience"`
	PlanRole     string `json:"planRole,omitempty"`
}

// identitiesOf are none for an annotation that cannot be read: the condition names it.
func identitiesOf(o *Object) []RunIdentity {
	r, err := dialect.Identity(o.Object)
	if err != nil || r == nil {
		return nil
	}
	var all []RunIdentity
	plans := r.Uses(identity.Plan)
	for i, u := range r.Uses(identity.Apply) {
		id := RunIdentity{Name: u.Name, Role: u.Role, PlanRole: plans[i].Role}
		id.Audience, _ = plan.MaskURLs(u.Audience)
		id.PlanAudience, _ = plan.MaskURLs(plans[i].Audience)
		all = append(all, id)
	}
	return all
}

// String is the identity in one line: with both phases if they differ.
func (i RunIdentity) String() string {
	as := func(role, audience string) string {
		if role == "" {
			return "audience " + audience
		}
		return role + ", audience " + audience
	}
	apply, plans := as(i.Role, i.Audience), as(i.PlanRole, i.PlanAudience)
	if apply == plans {
		return i.Name + ": " + apply
	}
	return i.Name + ": applies " + apply + "; plans " + plans
}

// Override says who wants the pending plan to be applied although policies withhold it now, by
// their windows and freezes.
type Override struct {
	May        bool     `json:"may,omitempty"`        // these policies let users do so
	By         []string `json:"by,omitempty"`         // the users who want it and may, as the API server stamped them
	Not        []string `json:"not,omitempty"`        // those who lack the right
	Unverified string   `json:"unverified,omitempty"` // why no user can be verified
}

// overrideOf is nil if nothing withholds the plan, or if no user may override it and none wants to.
func overrideOf(o *Object) *Override {
	m := o.Status
	out := &Override{May: m.Overridable, Not: m.Powerless, Unverified: m.Unproven}
	for _, g := range m.Overrides {
		if m.Pending.Is(g.Plan) {
			out.By = append(out.By, g.By)
		}
	}
	if !out.May && len(out.By)+len(out.Not) == 0 && out.Unverified == "" {
		return nil
	}
	return out
}

// Text says who overrides the windows, and who does not.
func (v Override) Text() string {
	var all []string
	if v.Unverified != "" {
		all = append(all, "no override can be verified: "+strings.TrimRight(v.Unverified, ". "))
	}
	if len(v.By) > 0 {
		all = append(all, "overridden by "+strings.Join(v.By, ", "))
	}
	for _, who := range v.Not {
		all = append(all, "the override of "+who+" does not count, because this user lacks update on terraforms/windows")
	}
	if len(all) == 0 && v.May {
		all = append(all, "users with update on terraforms/windows may override them for one plan")
	}
	return strings.Join(all, "; ")
}

// leftOf says what is still needed for a rule.
func leftOf(l policy.Lack) string {
	if l.Extra == "" {
		return l.Left()
	}
	return l.Left() + " (one of them because it is not known who requested the change: " + l.Extra + ")"
}

// Users are the users who approved the plan, and whether each was verified.
func (a Approvals) Users() string {
	var all []string
	for _, who := range a.By {
		all = append(all, claimed(who, !slices.Contains(a.Claimed, who)))
	}
	return strings.Join(all, ", ")
}

// Text says which approvals there are, and which are still needed.
func (a Approvals) Text() string {
	var b strings.Builder
	switch {
	case a.Unverified != "":
		fmt.Fprintf(&b, "No approval can be verified: %s.", strings.TrimRight(a.Unverified, ". "))
	default:
		fmt.Fprintf(&b, "%d of %d; still needed: %s.", a.Have, a.Need, a.Left)
	}
	for _, not := range a.Not {
		fmt.Fprintf(&b, " %s%s.", strings.ToUpper(not[:1]), not[1:])
	}
	return b.String()
}
