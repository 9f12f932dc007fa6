package pages

import (
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/query"
)

// StackDrift says what differs from what was applied.
func StackDrift(v *Visit) (Page, error) {
	head, err := headOf(v, tabDrift)
	if err != nil {
		return Page{}, err
	}
	view := driftDetail{Head: head}
	d, err := v.House.Details.DriftDetails(v.Context, v.Key())
	switch {
	case fault.Of(err) == fault.Missing, err == nil && d.Since.IsZero() && len(d.Drifted) == 0 && d.Changes.None():
		view.None = true
	case err != nil:
		view.Problem = problemOf("The drift cannot be shown", err)
	default:
		view.fill(d)
	}
	if at, err := v.House.Details.LookedAt(v.Context, v.Key()); err == nil {
		view.Looked = at // the page is as good without
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
	Looked  time.Time // for drift, last; zero if that is not known
	See     string    // the address of the plan that was made of it
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

// Bounds of what is shown of a drift; the plan has it all.
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

// driftWord is what somebody did to an object outside.
func driftWord(a plan.Action) string {
	switch a {
	case plan.Delete:
		return "is gone"
	case plan.Create:
		return "is new"
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
