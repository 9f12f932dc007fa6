package pages

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/web/planview"
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
	if b := s.CanRollBack; b != nil {
		out = append(out, ui.Button{Label: "Roll back", To: to("rollback"), Fields: map[string]string{"leaves": b.Leaves}, Name: "Roll back from " + b.From + " to " + b.To, Why: first(suspended)})
	} else if s.RolledBack != nil {
		out = append(out, ui.Button{Label: "End rollback", To: to("rollback"), Fields: map[string]string{"end": "yes"}, Why: first(suspended, deleting)})
	}
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
	Said    string // the decision so far, as a sentence; empty if there is none
	Against bool   // that decision is a rejection
	Again   bool   // it is an approval, and others are needed
	See     string // the address of the plan
	Confirm bool   // the plan destroys: a checkbox has to be selected
	Shows   bool   // this page shows what the plan destroys; without it, the plan cannot be approved here
	Now     string // the address of an override of windows; empty if the visitor may not
	Lost    []planview.Lost
	More    int // resources that the plan destroys and the page does not name
}

// lostShown is how many resources that a plan destroys are named beside its approval.
const lostShown = 50

// shows names what the plan destroys beside its approval.
func (d *Decide) shows(p *planview.Plan) {
	d.Shows = true
	d.Lost, d.More = p.Destroyed(lostShown)
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
	switch running := s.Run != nil && stack.RunKind(s.Run.Kind).Applies(); {
	case running:
		d.Said, d.Why = p.Name+" is being applied.", "The run "+s.Run.ID+" applies the plan. It is too late to reject it."
	case p.Is(s.Approved) && s.Approvals != nil && s.Approvals.Left != "":
		d.Said, d.Again = p.Name+" has approvals: "+s.Approvals.Text(), true
	case p.Is(s.Approved):
		d.Said = p.Name + " is " + s.ApprovedBy(p) + " and will be applied."
	case s.Rejection != nil:
		d.Said, d.Against = p.Name+" was "+s.Rejection.String()+".", true
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

// overridable has the form offer to apply the plan although policies withhold it now, if the
// visitor may.
func (d *Decide) overridable(v *Visit, s query.Stack, may string) {
	running := s.Run != nil && stack.RunKind(s.Run.Kind).Applies()
	if s.Override != nil && s.Override.May && may == "" && !running && v.Can != nil && v.Can(ofStack("update", access.ResourceWindows, s.Key())) {
		d.Now = stackPath(s.Key(), "override-window")
	}
}

// planPath is the address of a plan, by its digest where it is known.
func planPath(k query.Key, p query.PlanInfo) string {
	if p.Digest == "" {
		return stackPath(k, "plan")
	}
	return ui.With(stackPath(k, "plan"), nil, "digest", p.Digest)
}

// undecidable says why plans of a stack are neither approved nor rejected; empty
// if they are.
func undecidable(s query.Stack) string {
	if s.Undecidable == "" {
		return ""
	}
	return "Plans of this stack cannot be approved or rejected: " + s.Undecidable + "."
}

var _ = says(map[Said]string{
	"asked":           "A new plan was requested. This page shows it as soon as it is ready.",
	"approved":        "Approved. Exactly this plan is applied.",
	"approved-by-one": "Your approval is recorded. The plan is applied once the other approvals that the policy asks for are there.",
	"overridden":      "Recorded. This plan is applied now if the policies let you override their windows. Otherwise the status says what is missing.",
	"rejected":        "Rejected. The plan is not applied. A change of the module or its inputs makes another plan.",
	"rerun":           "Requested the steps after the apply. All of them run again.",
	"suspended":       "Suspended. An active run ends first.",
	"resumed":         "Resumed.",
	"cancelling":      "The run is being cancelled. The status says how long its engine may take to end and to write the state.",
	"unlocking":       "The lock will be broken, and the stack will be reconciled.",
	"previewing":      "A preview of the destroy is being planned. The list below shows its run. Nothing is destroyed.",
	"nothing":         "There is nothing to destroy.",
	"repairing":       "A repair plan was requested. This page shows it as soon as it is ready. It is applied only after you confirm it.",
	"repaired":        "Confirmed. Exactly this repair plan is applied.",
	"drift-accepted":  "Accepted. Terrier does not enforce the configuration for a day. Apply the change to the configuration before.",
	"state-accepted":  "Accepted. The stack continues with the stored state.",
	"state-locked":    "Locked. The state cannot be written until you unlock it.",
	"state-unlocked":  "Unlocked.",
	"rolled-back":     "Rolled back. The next run uses this version of the state.",
	"rolling-back":    "A rollback was requested. This page shows its plan as soon as it is ready.",
	"rollback-ended":  "The end of the rollback was requested. Terrier plans what the object asks for.",
})

// backTo is the page after a form: the page that the form came from,
// by a name that the form carries, or the stack.
func backTo(v *Visit) string {
	k := v.Key()
	switch v.Form.Get("back") {
	case "approvals":
		return "/approvals"
	case "drift":
		return "/drift"
	case "plan":
		return planPath(k, query.PlanInfo{Digest: v.Form.Get("digest")})
	default:
		return stackPath(k)
	}
}

// seenPlan is the plan that the form showed.
func seenPlan(v *Visit) (query.PlanInfo, error) {
	p := query.PlanInfo{Name: v.Form.Get("plan"), Digest: v.Form.Get("digest")}
	if p.Name == "" {
		return p, fault.New(fault.Invalid, "PlanUnnamed", errors.New("the form names no plan"))
	}
	return p, nil
}

// reviewedPlan is the plan that the form showed. A plan that destroys resources is decided on
// only by a visitor who has seen which.
func reviewedPlan(v *Visit) (query.PlanInfo, error) {
	seen, err := seenPlan(v)
	if err != nil {
		return seen, err
	}
	if s, err := v.Backend.Stacks.Get(v.Context, v.Key()); err == nil && s.Plan != nil && s.Plan.Name == seen.Name && v.Form.Get("sure") == "" && decideOf(s, "", "").Confirm {
		return seen, fault.New(fault.Invalid, "DestroyUnseen", fmt.Errorf("the plan %s destroys resources, and the checkbox that confirms it is not selected", seen.Name))
	}
	return seen, nil
}

// Approve approves the plan that the form showed.
func Approve(v *Visit) (Done, error) {
	seen, err := reviewedPlan(v)
	if err != nil {
		return Done{}, err
	}
	got, err := v.Person.Stacks.Approve(v.Context, v.Key(), seen, v.Form.Get("comment"))
	if err != nil {
		return Done{}, err
	}
	said := Said("approved")
	if got.Approvals != nil && got.Approvals.Left != "" {
		said = "approved-by-one"
	}
	return Done{To: backTo(v), Said: said}, nil
}

// OverrideWindow has the plan that the form showed applied although policies withhold it now.
func OverrideWindow(v *Visit) (Done, error) {
	seen, err := reviewedPlan(v)
	if err != nil {
		return Done{}, err
	}
	if _, err := v.Person.Stacks.OverrideWindow(v.Context, v.Key(), seen, v.Form.Get("comment")); err != nil {
		return Done{}, err
	}
	return Done{To: backTo(v), Said: "overridden"}, nil
}

// Reject rejects the plan that the form showed.
func Reject(v *Visit) (Done, error) {
	seen, err := seenPlan(v)
	if err != nil {
		return Done{}, err
	}
	if _, err := v.Person.Stacks.Reject(v.Context, v.Key(), seen, v.Form.Get("comment")); err != nil {
		return Done{}, err
	}
	return Done{To: backTo(v), Said: "rejected"}, nil
}

// Replan requests a new plan.
func Replan(v *Visit) (Done, error) {
	_, err := v.Person.Stacks.Replan(v.Context, v.Key())
	return Done{To: backTo(v), Said: "asked"}, err
}

// RerunSteps has the steps that the form showed run again, and no others.
func RerunSteps(v *Visit) (Done, error) {
	_, err := v.Person.Stacks.RerunSteps(v.Context, v.Key(), v.Form.Get("steps"))
	return Done{To: backTo(v), Said: "rerun"}, err
}

// RollBackStack rolls a stack back from what the form showed, or ends a rollback.
func RollBackStack(v *Visit) (Done, error) {
	order, said := command.StackRollback{Leaves: v.Form.Get("leaves")}, Said("rolling-back")
	switch {
	case v.Form.Get("end") != "":
		order, said = command.StackRollback{End: true}, "rollback-ended"
	case order.Leaves == "":
		return Done{}, fault.New(fault.Invalid, "RollbackUnnamed", errors.New("the form does not say what the stack is rolled back from"))
	}
	_, err := v.Person.Stacks.RollBack(v.Context, v.Key(), order)
	return Done{To: backTo(v), Said: said}, err
}

// Suspend suspends a stack.
func Suspend(v *Visit) (Done, error) {
	return Done{To: backTo(v), Said: "suspended"}, v.Person.Stacks.Suspend(v.Context, v.Key())
}

// Resume resumes a stack.
func Resume(v *Visit) (Done, error) {
	return Done{To: backTo(v), Said: "resumed"}, v.Person.Stacks.Resume(v.Context, v.Key())
}

// Unlock breaks the lock that the form showed, and no other.
func Unlock(v *Visit) (Done, error) {
	return Done{To: backTo(v), Said: "unlocking"}, v.Person.Stacks.Unlock(v.Context, v.Key(), v.Form.Get("lock"))
}

// cancelForm cancels the run of a stack, once a checkbox is selected.
type cancelForm struct {
	To  string // the address that it posts to
	Run query.Running
	Why string // why the visitor cannot cancel the run

	Cancelled *stack.Cancellation // of this run; nil unless it was cancelled already
}

// cancelOf is the form for the run of s, nil if there is none.
func cancelOf(s query.Stack, may string) *cancelForm {
	if s.Run == nil {
		return nil
	}
	f := &cancelForm{To: stackPath(s.Key(), "cancel"), Run: *s.Run, Why: may}
	if c := s.Cancelled; c != nil && c.Run == s.Run.ID {
		f.Cancelled = c
	}
	return f
}

// Cancel cancels the run that the form showed, and no other.
func Cancel(v *Visit) (Done, error) {
	if v.Form.Get("sure") == "" {
		return Done{}, fault.New(fault.Invalid, "CancelUnconfirmed", errors.New("the checkbox that confirms the cancellation is not selected"))
	}
	_, err := v.Person.Stacks.Cancel(v.Context, v.Key(), v.Form.Get("run"))
	return Done{To: backTo(v), Said: "cancelling"}, err
}

// browserWaits is how long a browser waits for the controller, for instance for a
// preview. After that it is sent to the page that shows the result later.
const browserWaits = 5 * time.Second

// PreviewDestroy plans a destroy without applying it.
func PreviewDestroy(v *Visit) (Done, error) {
	ctx, cancel := context.WithTimeout(v.Context, browserWaits)
	defer cancel()
	doc, err := v.Person.Stacks.PreviewDestroy(ctx, v.Key())
	switch {
	case err != nil && ctx.Err() != nil && v.Context.Err() == nil:
		return Done{To: stackPath(v.Key(), tabRuns), Said: "previewing"}, nil
	case err != nil:
		return Done{}, err
	case doc.Digest == "":
		return Done{To: stackPath(v.Key()), Said: "nothing"}, nil
	default:
		return Done{To: planPath(v.Key(), doc.PlanInfo)}, nil
	}
}
