package pages

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

var _ = says(map[Said]string{
	"asked":          "A new plan was requested. This page shows it as soon as it is ready.",
	"approved":       "Approved. Exactly this plan is applied.",
	"rejected":       "Rejected. The plan is not applied, and stays until another plan replaces it.",
	"suspended":      "Suspended. An active run ends first.",
	"resumed":        "Resumed.",
	"unlocking":      "The lock will be broken, and the stack will be reconciled.",
	"previewing":     "A preview of the destroy is being planned. The list below shows its run. Nothing is destroyed.",
	"nothing":        "There is nothing to destroy.",
	"repairing":      "A repair plan was requested. This page shows it as soon as it is ready. It is applied only after you confirm it.",
	"repaired":       "Confirmed. Exactly this repair plan is applied.",
	"state-accepted": "Accepted. The stack continues with the stored state.",
	"state-locked":   "Locked. The state cannot be written until you unlock it.",
	"state-unlocked": "Unlocked.",
	"rolled-back":    "Rolled back. The next plan uses this version of the state.",
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

// Approve approves the plan that the form showed.
func Approve(v *Visit) (Done, error) {
	seen, err := seenPlan(v)
	if err != nil {
		return Done{}, err
	}
	if s, err := v.House.Stacks.Get(v.Context, v.Key()); err == nil && s.Plan != nil && s.Plan.Name == seen.Name && v.Form.Get("sure") == "" && decideOf(s, "", "").Confirm {
		return Done{}, fault.New(fault.Invalid, "DestroyUnseen", fmt.Errorf("the plan %s destroys resources, and the checkbox that confirms it is not selected", seen.Name))
	}
	if _, err := v.Person.Stacks.Approve(v.Context, v.Key(), seen, v.Form.Get("comment")); err != nil {
		return Done{}, err
	}
	return Done{To: backTo(v), Said: "approved"}, nil
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
