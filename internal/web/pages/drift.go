package pages

import (
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// Drift lists the stacks with drifted resources.
func Drift(v *Visit) (Page, error) {
	q := boardQuery(v.Query)
	q.Statuses, q.Sort = []query.Status{query.StatusDrifted}, "since"
	found, err := v.page(q)
	if err != nil {
		return Page{}, err
	}
	view := driftView(found.Items, newStackRights(v, found.Items).whyNot)
	view.Query, view.Empty = q, noDrift
	if q.Text != "" || q.Namespace != "" {
		view.Empty = ui.Empty{Title: "No matching drift", Href: v.Path, Link: "Show all drift"}
	}
	view.Pager = ui.NewPager(v.Path, v.Query, q.Offset, len(found.Items), pageRows, found.Total, "stack")
	return Page{Title: "Drift", Section: "drift", Template: "drift", Live: Live{Stacks: true, Cursor: found.Cursor}, Data: view}, nil
}

// noDrift is shown where no drift is known.
var noDrift = ui.Empty{
	Title: "No drift", Text: "No drift check found drifted resources. Each stack is checked at its interval; a suspended stack is not checked. To check one now:",
	Command: "terrier replan NAMESPACE/NAME",
}

type driftList struct {
	Query query.BoardQuery
	Empty ui.Empty
	Rows  []driftRow
	Pager ui.Pager
}

type driftRow struct {
	query.Row
	Href    string
	Details string
	Source  string
	Replan  ui.Button
	Decide  *Decide
}

func driftView(rows []query.Row, whyNot func(query.Key) string) driftList {
	var out driftList
	for _, r := range rows {
		may := whyNot(r.Key())
		d := driftRow{Row: r, Href: stackPath(r.Key()), Details: stackPath(r.Key(), tabDrift), Source: sourceText(&r.Stack, true)}
		d.Replan = ui.Button{Label: "Plan now", To: stackPath(r.Key(), "replan"), Fields: map[string]string{"back": "drift"}, Why: may, Name: r.Key().String()}
		if may == "" && r.Suspended {
			d.Replan.Why = "The stack is suspended. Resume it first."
		}
		if r.Pending != "" {
			x := decideOf(r.Stack, may, "drift")
			d.Decide = &x
		}
		out.Rows = append(out.Rows, d)
	}
	return out
}
