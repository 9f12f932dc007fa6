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
	"asked":          "A new plan is asked for. It shows up here as soon as it is made.",
	"approved":       "Approved. Exactly this plan is applied.",
	"rejected":       "Rejected. The plan stays until something replaces it.",
	"suspended":      "Suspended. A run that goes on ends first.",
	"resumed":        "Resumed.",
	"unlocking":      "The lock will be broken, and the stack goes on.",
	"previewing":     "What a destroy would take down is being planned. The run shows up below; nothing is taken down.",
	"nothing":        "There is nothing to take down.",
	"repairing":      "A plan of the repair is asked for. It shows up here as soon as it is made, and waits for you.",
	"repaired":       "The repair goes ahead with exactly this plan.",
	"state-accepted": "Accepted. The stack goes on from what is stored.",
	"state-locked":   "Locked. Nothing writes the state until the lock is freed.",
	"state-unlocked": "The lock was freed.",
	"rolled-back":    "The older state is the newest now. The next plan is made against it.",
})

// backTo is where the browser goes after a form: the page that it came from,
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

// seenPlan is the plan that somebody had before them when they decided.
func seenPlan(v *Visit) (query.PlanInfo, error) {
	p := query.PlanInfo{Name: v.Form.Get("plan"), Digest: v.Form.Get("digest")}
	if p.Name == "" {
		return p, fault.New(fault.Invalid, "PlanUnnamed", errors.New("the form names no plan"))
	}
	return p, nil
}

// Approve lets the plan that was seen be applied.
func Approve(v *Visit) (Done, error) {
	seen, err := seenPlan(v)
	if err != nil {
		return Done{}, err
	}
	if s, err := v.House.Stacks.Get(v.Context, v.Key()); err == nil && s.Plan != nil && s.Plan.Name == seen.Name && v.Form.Get("sure") == "" && decideOf(s, "", "").Confirm {
		return Done{}, fault.New(fault.Invalid, "DestroyUnseen", fmt.Errorf("the plan %s destroys something, and the box that says you have seen what is not ticked", seen.Name))
	}
	if _, err := v.Person.Stacks.Approve(v.Context, v.Key(), seen, v.Form.Get("comment")); err != nil {
		return Done{}, err
	}
	return Done{To: backTo(v), Said: "approved"}, nil
}

// Reject turns down the plan that was seen.
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

// Replan asks for a new plan.
func Replan(v *Visit) (Done, error) {
	_, err := v.Person.Stacks.Replan(v.Context, v.Key())
	return Done{To: backTo(v), Said: "asked"}, err
}

// Suspend leaves a stack alone.
func Suspend(v *Visit) (Done, error) {
	return Done{To: backTo(v), Said: "suspended"}, v.Person.Stacks.Suspend(v.Context, v.Key())
}

// Resume ends that.
func Resume(v *Visit) (Done, error) {
	return Done{To: backTo(v), Said: "resumed"}, v.Person.Stacks.Resume(v.Context, v.Key())
}

// Unlock breaks the lock that was seen, and no other.
func Unlock(v *Visit) (Done, error) {
	return Done{To: backTo(v), Said: "unlocking"}, v.Person.Stacks.Unlock(v.Context, v.Key(), v.Form.Get("lock"))
}

// browserWaits is how long a browser waits for an answer of the controller, such
// as a preview. It comes either way, and the page that shows it is led to.
const browserWaits = 5 * time.Second

// PreviewDestroy plans a destroy only to show it.
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
