// Package planview turns a plan into what a page shows of it: groups of changes
// in the order of what can be lost, attributes with both values, and the
// diagnostics of the engine. It reads no store and asks for no right: a page does
// that before. Start with Parse and Groups.
package planview

import (
	"bytes"
	"html/template"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/web/ansi"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// Kind is how a page shows what is done to resources.
type Kind struct {
	Action plan.Action
	Title  string // of a group that is planned
	Found  string // of one that was changed outside
	Mark   string
	Tone   ui.Tone
	Open   bool // the attributes of the first ones are shown at once
}

// Kinds are in the order of how much there is to lose.
var Kinds = []Kind{
	{plan.Delete, "Destroy", "Deleted", "-", ui.ToneBad, true},
	{plan.Replace, "Replace", "Replaced", "±", ui.ToneBad, true},
	{plan.ForgetCreate, "Forget and create", "Forgotten and created", "·+", ui.ToneWarn, true},
	{plan.Update, "Update", "Changed", "~", ui.ToneWarn, true},
	{plan.Create, "Create", "Created", "+", ui.ToneOK, false},
	{plan.Import, "Import", "Imported", "↓", ui.ToneBusy, true},
	{plan.Move, "Move", "Moved", "→", ui.ToneIdle, false},
	{plan.Forget, "Forget", "Forgotten", "·", ui.ToneWarn, false},
	{plan.Read, "Read", "Read", "?", ui.ToneIdle, false},
}

// place is where an action stands in that order.
func place(a plan.Action) int {
	if i := slices.IndexFunc(Kinds, func(x Kind) bool { return x.Action == a }); i >= 0 {
		return i
	}
	return len(Kinds)
}

// Plan is a plan as it is kept between visits: in the order in which it is
// shown.
type Plan struct {
	Document *plan.Document
	Changes  []plan.Change
	Outputs  []plan.OutputChange
	Drift    []plan.Change
	Counts   stack.Changes
	Bytes    int
}

// Parse makes a Plan of a document.
func Parse(raw []byte) (*Plan, error) {
	d, err := plan.ParseDocument(raw)
	if err != nil {
		return nil, err
	}
	p := &Plan{Document: d, Changes: d.Items(), Outputs: d.Outputs(), Drift: d.Drift(), Counts: d.Changes(), Bytes: len(raw)}
	for _, list := range [][]plan.Change{p.Changes, p.Drift} {
		slices.SortStableFunc(list, func(a, b plan.Change) int { return place(a.Action) - place(b.Action) })
	}
	return p, nil
}

// Destroyed are the addresses of the resources that the plan destroys, also those
// that it creates again: the first most of them, and how many more there are.
func (p *Plan) Destroyed(most int) (shown []Lost, more int) {
	for _, c := range p.Changes {
		if c.Action != plan.Delete && c.Action != plan.Replace {
			continue
		}
		if len(shown) == most {
			more++
			continue
		}
		shown = append(shown, Lost{Address: ui.Visible(c.Address), Again: c.Action == plan.Replace})
	}
	return shown, more
}

// Lost is a resource that a plan destroys.
type Lost struct {
	Address string
	Again   bool // the plan creates it again
}

// Filter chooses changes.
type Filter struct {
	Text   string
	Action plan.Action
}

// Choose returns the changes that f chooses, and how many of each action there
// are when only the text counts.
func (f Filter) Choose(all []plan.Change) (found []plan.Change, counts map[plan.Action]int) {
	counts = map[plan.Action]int{}
	for _, c := range all {
		if f.Text != "" && !f.matches(c) {
			continue
		}
		counts[c.Action]++
		if f.Action == "" || f.Action == c.Action {
			found = append(found, c)
		}
	}
	return found, counts
}

// matches looks for every word in the addresses of a change, its provider and
// the names of its attributes. Values are not searched.
func (f Filter) matches(c plan.Change) bool {
	for word := range strings.FieldsSeq(strings.ToLower(f.Text)) {
		has := func(s string) bool { return strings.Contains(strings.ToLower(s), word) }
		if has(c.Address) || has(c.Previous) || has(c.Provider) ||
			slices.ContainsFunc(c.Diffs, func(d plan.Diff) bool { return has(d.Path) }) {
			continue
		}
		return false
	}
	return true
}

// Counts counts changes by action.
func Counts(list []plan.Change) map[plan.Action]int {
	out := map[plan.Action]int{}
	for _, c := range list {
		out[c.Action]++
	}
	return out
}

// Text is a plan as the command line prints it.
func Text(d *plan.Document) []template.HTML {
	var b bytes.Buffer
	if err := plan.Render(&b, d, plan.Options{Color: true, Wide: true}); err != nil {
		return nil // a buffer takes everything
	}
	var a ansi.Terminal
	var out []template.HTML
	for line := range strings.Lines(b.String()) {
		out = append(out, a.Line(line))
	}
	return out
}
