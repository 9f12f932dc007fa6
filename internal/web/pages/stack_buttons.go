package pages

import (
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// stackButtons are the actions on a stack, each with the reason why it is disabled.
// The command decides in the end; these reasons only spare a failing request. may says
// why the visitor may not change the stack.
func stackButtons(s query.Stack, may string) []ui.Button {
	to := func(action string) string { return stackPath(s.Key(), action) }
	first := func(reasons ...string) string {
		for _, r := range append([]string{may}, reasons...) {
			if r != "" {
				return r
			}
		}
		return ""
	}
	suspended := when(s.Suspended, "The stack is suspended. Resume it first.")
	deleting := when(s.Deleting, "The object is being deleted.")
	out := []ui.Button{{Label: "Plan now", To: to("replan"), Why: first(suspended)}}
	if s.Suspended {
		out = append(out, ui.Button{Label: "Resume", To: to("resume"), Why: first()})
	} else {
		out = append(out, ui.Button{Label: "Suspend", To: to("suspend"), Why: first()})
	}
	unlock := ui.Button{Label: "Unlock", To: to("unlock"), Look: "danger", Why: first(when(s.Lock == nil, "The state is not locked by another holder."))}
	if s.Lock != nil {
		unlock.Fields = map[string]string{"lock": s.Lock.ID}
	}
	repair := ui.Button{Label: "Repair", Href: stackPath(s.Key(), "repair"), Why: first(suspended,
		when(s.Untracked == nil, "The state contains all resources of the stack."),
		when(s.Mode == stack.DriftOnly, "The mode driftOnly does not allow imports into the state."))}
	return append(out, unlock, repair, ui.Button{Label: "Preview destroy", To: to("preview-destroy"), Why: first(suspended, deleting)})
}

func when(yes bool, reason string) string {
	if yes {
		return reason
	}
	return ""
}

// Decide is a plan to approve or reject; the part "decide" shows
// it. Its form names the plan that was shown, so that no other plan is approved.
type Decide struct {
	Key     query.Key
	Plan    query.PlanInfo
	Approve string // addresses that the form posts to
	Reject  string
	Back    string // where the browser goes afterwards, see backTo
	Why     string // why the visitor cannot decide
	Warn    string // what an approval destroys
	Said    string // the decision so far: approved, or nothing
	See     string // the address of the plan
	Confirm bool   // the plan destroys: a checkbox has to be selected
}

// decideOf is for the pending plan of s.
func decideOf(s query.Stack, may, back string) Decide {
	p := query.PlanInfo{Name: s.Pending}
	if s.Plan != nil {
		p = *s.Plan
	}
	d := Decide{Key: s.Key(), Plan: p, Approve: stackPath(s.Key(), "approve"), Reject: stackPath(s.Key(), "reject"), Back: back, Why: may, See: planPath(s.Key(), p)}
	if why := undecidable(s); why != "" {
		d.Why = why // for every user
	}
	if s.Approved != "" && (s.Approved == p.Name || s.Approved == p.Digest) {
		d.Said = "approved"
	}
	switch {
	case p.Destroy:
		d.Warn = "This plan destroys all resources of the stack."
	case p.Changes.Destroy > 0:
		d.Warn = "This plan destroys " + query.Count(p.Changes.Destroy, "resource") + "."
	}
	d.Confirm = d.Warn != ""
	return d
}

// planPath is the address of a plan, by its digest where it is known.
func planPath(k query.Key, p query.PlanInfo) string {
	if p.Digest == "" {
		return stackPath(k, "plan")
	}
	return ui.With(stackPath(k, "plan"), nil, "digest", p.Digest)
}

// undecidable says why plans of a stack are neither approved nor rejected; empty
// if they are. The command knows more and decides.
func undecidable(s query.Stack) string {
	switch {
	case s.Deleting:
		return ""
	case s.Untracked != nil && s.Mode != stack.PlanOnly && s.Mode != stack.DriftOnly:
		return ""
	case s.Mode == stack.PlanOnly:
		return "planOnly is set: plans of this stack are never applied."
	case s.Mode == stack.Auto:
		return "approvePlan is auto: plans of this stack are applied without an approval."
	case s.Mode == stack.DriftOnly:
		return "approvePlan is disable: this stack is only checked for drift."
	default:
		return ""
	}
}
