package pages

import (
	"fmt"
	"slices"

	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// ToStacks carries out one action on all selected stacks, and shows the result for
// each of them.
func ToStacks(v *Visit) (Done, error) {
	d := bulkActions[v.Form.Get("do")]
	view := bulkResult{Done: d.done, Back: listAddress(v.Form.Get("back"))}
	keys, bad := chosen(v.Form["stack"])
	switch {
	case d.do == nil:
		view.Nothing = "The form names no action."
	case len(keys)+len(bad) == 0:
		view.Nothing = "No stack is selected."
	case len(keys)+len(bad) > pageRows:
		view.Nothing = fmt.Sprintf("%d stacks are selected, and the limit is %d. Nothing was changed.", len(keys)+len(bad), pageRows)
	default:
		view.Refused = bad
		for _, k := range keys {
			r := bulkRow{Name: k.String(), Href: stackPath(k)}
			if err := d.do(v, k); err != nil {
				r.Why, r.Hint = err.Error(), browserHint(err)
				view.Refused = append(view.Refused, r)
				if v.Refused != nil {
					v.Refused(k, err)
				}
				continue
			}
			view.Succeeded = append(view.Succeeded, r)
		}
	}
	return Done{Page: &Page{Title: "Result", Section: "stacks", Template: "stacks_done", Data: view}}, nil
}

// bulkAction is one action on many stacks.
type bulkAction struct {
	done string
	do   func(*Visit, query.Key) error
}

var bulkActions = map[string]bulkAction{
	"replan": {"New plan requested", func(v *Visit, k query.Key) error {
		_, err := v.Person.Stacks.Replan(v.Context, k)
		return err
	}},
	"suspend": {"Suspended", func(v *Visit, k query.Key) error { return v.Person.Stacks.Suspend(v.Context, k) }},
	"resume":  {"Resumed", func(v *Visit, k query.Key) error { return v.Person.Stacks.Resume(v.Context, k) }},
}

type bulkResult struct {
	Done      string
	Succeeded []bulkRow
	Refused   []bulkRow
	Nothing   string // why no stack was changed
	Back      string
}

type bulkRow struct{ Name, Href, Why, Hint string }

// chosen are the stacks that a form names, each once.
func chosen(names []string) (keys []query.Key, bad []bulkRow) {
	for _, n := range names {
		k, err := query.ParseKey(n, "")
		if err != nil {
			bad = append(bad, bulkRow{Name: ui.Cut(100, n), Why: "This is not the name of a stack."})
			continue
		}
		if !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	return keys, bad
}
