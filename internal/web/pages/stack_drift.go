package pages

import (
	"net/url"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// StackDrift shows the drifted resources of a stack.
func StackDrift(v *Visit) (Page, error) {
	head, err := headOf(v, tabDrift)
	if err != nil {
		return Page{}, err
	}
	view := driftDetail{Head: head, Tolerated: head.Stack.Tolerated}
	if p := head.Stack.Plan; p != nil && p.Tolerated != nil {
		if view.Resets = p.Tolerated.Attributes > 0; view.Resets {
			view.Tolerated = p.Tolerated
		}
		for _, a := range p.Tolerated.Ended {
			view.Ended = append(view.Ended, "A rule has ended, so that this is drift: "+a.String()+".")
		}
	}
	d, err := v.Backend.Details.DriftDetails(v.Context, v.Key())
	switch {
	case fault.Of(err) == fault.Missing, err == nil && d.Since.IsZero() && len(d.Drifted) == 0 && d.Changes.None():
		view.None = true
	case err != nil:
		view.Problem = problemOf("The drift cannot be shown", err)
	default:
		view.fill(d)
	}
	if at, err := v.Backend.Details.CheckedAt(v.Context, v.Key()); err == nil {
		view.Looked = at // without an answer, the page only lacks the time
	}
	if next, err := v.Backend.Stacks.NextCheck(v.Context, v.Key()); err == nil {
		view.Next, view.NextWhy = next.Next, next.Why // likewise
	}
	if d.Digest != "" {
		view.See = planPath(v.Key(), query.PlanInfo{Digest: d.Digest})
		view.propose(v, d.Digest)
	}
	return stackPage(v, "stack_drift", "Drift", view), nil
}

// propose shows the change of the configuration that accepts the drift, once the visitor asks for
// it: it takes a moment to make.
func (d *driftDetail) propose(v *Visit, digest string) {
	here := stackPath(v.Key(), tabDrift)
	d.Accept = acceptDrift{Digest: digest, Ask: ui.With(here, nil, "accept", "yes") + "#accept", To: here + "/accept", Why: mayChange(v, v.Key())}
	if v.Query.Get("accept") == "" {
		return
	}
	p, err := v.Backend.Stacks.ProposeDrift(v.Context, v.Key(), query.DriftOrder{IgnoreChanges: v.Query.Get("ignore") == "yes"})
	if err != nil {
		d.Accept.Problem = problemOf("The change of the configuration cannot be made", err)
		return
	}
	d.Accept.Asked, d.Accept.Patch = true, &p
	d.Accept.Ignore = ui.With(here, url.Values{"accept": {"yes"}}, "ignore", "yes") + "#accept"
}

// acceptDrift is the change of the configuration that accepts drift.
type acceptDrift struct {
	Digest  string // of the drift that is shown
	Ask     string // the address with the change
	Ignore  string // the address with another change, by which the engine ignores the attributes
	To      string // the address of the form
	Why     string // why the visitor cannot accept it
	Asked   bool
	Patch   *query.DriftPatch
	Problem *Problem
}

// AcceptDrift accepts exactly the drift that was shown.
func AcceptDrift(v *Visit) (Done, error) {
	_, err := v.Person.Stacks.AcceptDrift(v.Context, v.Key(), command.AcceptDriftOrder{Digest: v.Form.Get("digest"), Reason: ui.Cut(200, strings.TrimSpace(v.Form.Get("reason")))})
	return Done{To: stackPath(v.Key(), tabDrift), Said: "drift-accepted"}, err
}

type driftDetail struct {
	Accept  acceptDrift
	Head    stackHead
	Drift   query.DriftDetail
	Items   []driftItem
	Hidden  int
	Looked  time.Time // time of the last drift check; zero if unknown
	Next    time.Time // of the next one, as far as the last one knew; zero if unknown
	NextWhy string    // why it is then; empty if it is the interval of the stack
	See     string    // the address of the plan that fixes it
	None    bool
	Problem *Problem

	Tolerated *stack.ToleratedDrift // attributes that a rule lets drift; nil if there are none
	Resets    bool                  // the pending plan resets them
	Ended     []string              // about rules that ended: sentences
}

type driftItem struct {
	Address string
	Action  plan.Action
	Word    string
	Diffs   []driftDiff
	More    int
}

type driftDiff struct {
	Path, Before, After string
	Sensitive           bool
}

// Bounds of the list of drifted resources; the plan has all of them.
const (
	driftedShown = 200
	diffsShown   = 50
)

func (d *driftDetail) fill(detail query.DriftDetail) {
	d.Drift = detail
	items := detail.Drifted
	if len(items) > driftedShown {
		d.Hidden = len(items) - driftedShown
		items = items[:driftedShown]
	}
	for _, c := range items {
		x := driftItem{Address: c.Address, Action: c.Action, Word: driftWord(c.Action)}
		for i, diff := range c.Diffs {
			if i == diffsShown {
				x.More = len(c.Diffs) - i
				break
			}
			x.Diffs = append(x.Diffs, driftDiff{diff.Path, sideText(diff.Before), sideText(diff.After), diff.Sensitive})
		}
		d.Items = append(d.Items, x)
	}
}

// driftWord is the change of a resource outside of Terrier.
func driftWord(a plan.Action) string {
	switch a {
	case plan.Delete:
		return "was deleted"
	case plan.Create:
		return "was created"
	case plan.Update, plan.Replace:
		return "was changed"
	default:
		return string(a)
	}
}

// sideText is one side of a difference.
func sideText(v any) string {
	if v == nil {
		return "(none)"
	}
	return valueText(v)
}
