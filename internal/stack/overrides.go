package stack

import (
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/policy"
)

// Policies say when plans may be applied: windows and freezes. A user with a right of its own
// may have one plan applied at another time, where the policy lets users do so.

// overridden is the plan that a user wants to be applied outside of windows: its name, or what
// Plan.Approvable says.
func (s Spec) overridden() string {
	plan, _, _ := strings.Cut(s.OverridesWindow, " ")
	return plan
}

// WantsOverride reports whether a user wants the pending plan to be applied at a time at which
// policies apply none, so that it matters whether that user may.
func WantsOverride(o Observation) bool {
	return o.Status.Pending.Is(o.Spec.overridden()) && !withheldBefore(o).None()
}

// withheldBefore is why nothing may be applied now, if no user overrides it.
func withheldBefore(o Observation) policy.Withheld { return o.Spec.Times.Withhold(o.Now, o.SourceAt) }

// Overriding are the users who override windows and freezes for the pending plan. Where the
// stamps are not believed there are none.
func Overriding(o Observation) policy.Overrides {
	by := policy.Overrides{Requesters: o.Status.Requesters}
	if o.Status.Unproven != "" || !o.Status.Pending.Is(o.Spec.overridden()) {
		return by
	}
	for _, g := range o.Status.Overrides {
		if o.Status.Pending.Is(g.Plan) {
			by.Given = append(by.Given, g)
		}
	}
	return by
}

// Overrode names the users by whom windows or freezes are overridden now for the pending plan;
// none if nothing would withhold it anyway.
func Overrode(o Observation) []string {
	if withheldBefore(o).None() {
		return nil
	}
	var users []string
	for _, g := range Overriding(o).Given {
		users = append(users, g.By)
	}
	return users
}

// appliesPending reports whether an action applies exactly the pending plan: an override is for
// one plan, and not for what is destroyed or run without one.
func appliesPending(o Observation, a Action) bool {
	p := o.Status.Pending
	switch a := a.(type) {
	case Apply:
		return p != nil && a.Plan.Digest == p.Digest
	case RunScript:
		return p != nil && a.Plan != nil && a.Plan.Digest == p.Digest
	case Destroy:
		return p != nil && p.Destroy && plansDestroy(o) && a.Unlock == ""
	case Wait, Start, Cancel, Publish, Renew, RollBack, Review, Finish:
	}
	return false
}

// Override is what it takes to apply the pending plan although policies withhold it now.
type Override struct {
	Lacks []policy.Lack // one for each different rule
	Not   []string      // which users do not count, and why: clauses
}

// Overridable says what it takes to apply the pending plan although policies withhold it now;
// nil if no user may, or if nothing withholds it.
func Overridable(o Observation) *Override {
	if o.Status.Pending == nil || withheldBefore(o).None() {
		return nil
	}
	lacks, suffice := o.Spec.Times.Overridable(o.Now, o.SourceAt, Overriding(o))
	if !suffice {
		return nil
	}
	out := &Override{Lacks: lacks}
	for _, who := range o.Status.Powerless {
		out.Not = append(out.Not, "the override of "+who+" does not count: this user lacks update on terraforms/windows")
	}
	return out
}

// Missing says in words what an override lacks, and which users do not count.
func (v Override) Missing() string {
	var all []string
	for _, l := range v.Lacks {
		if m := l.String(); !slices.Contains(all, m) {
			all = append(all, m)
		}
	}
	return strings.Join(append(all, v.Not...), "; ")
}

// overriding is the sentence for the users who may have the pending plan applied now, empty if
// none may.
func overriding(o Observation) string {
	v := Overridable(o)
	if !appliesPending(o, unwithheld(o).Action) {
		return ""
	}
	if v == nil {
		if WantsOverride(o) {
			return " The override of " + strings.Join(Overrode(o), ", ") + " does not suffice: no user may override what withholds the plan."
		}
		return ""
	}
	if why := o.Status.Unproven; why != "" {
		return " No override of this can be verified: " + strings.TrimRight(why, ". ") + "."
	}
	how := "annotate the stack with terrier.dev/override-window=" + o.Status.Pending.Name
	if of := o.Spec.Words.Argument; of != "" {
		how = "run terrier approve " + of + " " + o.Status.Pending.Name + " --override-window"
	}
	return " A user with update on terraforms/windows may have it applied now, which " + v.Missing() + ": " + how + "."
}
