package pages

import (
	"fmt"
	"slices"

	"github.com/terrier-iac/terrier/internal/query"
)

// ToStacks does one thing to all stacks that were ticked, and says of each what
// became of it: nothing is done to some of them and kept quiet about.
func ToStacks(v *Visit) (Done, error) {
	d := bulkDeeds[v.Form.Get("do")]
	view := bulkResult{Done: d.done, Back: listAddress(v.Form.Get("back"))}
	keys, bad := chosen(v.Form["stack"])
	switch {
	case d.do == nil:
		view.Nothing = "The form does not say what to do."
	case len(keys)+len(bad) == 0:
		view.Nothing = "No stack is ticked."
	case len(keys)+len(bad) > pageRows:
		view.Nothing = fmt.Sprintf("%d stacks are too many at once: %d are the most. Nothing was done.", len(keys)+len(bad), pageRows)
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
	return Done{Page: &Page{Title: "What was done", Section: "stacks", Template: "stacks_done", Data: view}}, nil
}

// deed is one thing that can be done to many stacks.
type deed struct {
	done string
	do   func(*Visit, query.Key) error
}

var bulkDeeds = map[string]deed{
	"replan": {"A new plan is asked for", func(v *Visit, k query.Key) error {
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
	Nothing   string // why nothing was done at all
	Back      string
}

type bulkRow struct{ Name, Href, Why, Hint string }

// chosen are the stacks that a form names, each once.
func chosen(names []string) (keys []query.Key, bad []bulkRow) {
	for _, n := range names {
		k, err := query.ParseKey(n, "")
		if err != nil {
			bad = append(bad, bulkRow{Name: cut(100, n), Why: "That is not the name of a stack."})
			continue
		}
		if !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	return keys, bad
}
