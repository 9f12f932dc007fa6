package pages

import (
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/query"
)

// StackDrift shows the drifted resources of a stack.
func StackDrift(v *Visit) (Page, error) {
	head, err := headOf(v, tabDrift)
	if err != nil {
		return Page{}, err
	}
	view := driftDetail{Head: head}
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
	if d.Digest != "" {
		view.See = planPath(v.Key(), query.PlanInfo{Digest: d.Digest})
	}
	return stackPage(v, "stack_drift", "Drift", view), nil
}

type driftDetail struct {
	Head    stackHead
	Drift   query.DriftDetail
	Items   []driftItem
	Hidden  int
	Looked  time.Time // time of the last drift check; zero if unknown
	See     string    // the address of the plan that fixes it
	None    bool
	Problem *Problem
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
