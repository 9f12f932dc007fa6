package pages

import (
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// action is how a page shows what is done to resources.
type action struct {
	Action plan.Action
	Title  string // of a group that is planned
	Found  string // of one that was changed outside
	Mark   string
	Tone   ui.Tone
	Open   bool // its attributes are shown at once
}

// actions are in the order of how much there is to lose.
var actions = []action{
	{plan.Delete, "Destroy", "Deleted", "-", ui.ToneBad, false},
	{plan.Replace, "Replace", "Replaced", "±", ui.ToneBad, true},
	{plan.Update, "Update", "Changed", "~", ui.ToneWarn, true},
	{plan.Create, "Create", "Created", "+", ui.ToneOK, false},
	{plan.Import, "Import", "Imported", "↓", ui.ToneBusy, true},
	{plan.Move, "Move", "Moved", "→", ui.ToneIdle, false},
	{plan.Forget, "Forget", "Forgotten", "·", ui.ToneWarn, false},
	{plan.Read, "Read", "Read", "?", ui.ToneIdle, false},
}

// place is where an action stands in that order.
func place(a plan.Action) int {
	if i := slices.IndexFunc(actions, func(x action) bool { return x.Action == a }); i >= 0 {
		return i
	}
	return len(actions)
}

// parsedPlan is a plan as it is kept between visits: in the order in which it is
// shown.
type parsedPlan struct {
	doc     *plan.Document
	changes []plan.Change
	outputs []plan.OutputChange
	drift   []plan.Change
	counts  stack.Changes
	bytes   int
}

func parsePlan(raw []byte) (*parsedPlan, error) {
	d, err := plan.ParseDocument(raw)
	if err != nil {
		return nil, err
	}
	p := &parsedPlan{doc: d, changes: d.Items(), outputs: d.Outputs(), drift: d.Drift(), counts: d.Changes(), bytes: len(raw)}
	for _, list := range [][]plan.Change{p.changes, p.drift} {
		slices.SortStableFunc(list, func(a, b plan.Change) int { return place(a.Action) - place(b.Action) })
	}
	return p, nil
}

// planFilter chooses changes.
type planFilter struct {
	Text   string
	Action plan.Action
}

// choose returns the changes that f chooses, and how many of each action there
// are when only the text counts.
func (f planFilter) choose(all []plan.Change) (found []plan.Change, counts map[plan.Action]int) {
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
func (f planFilter) matches(c plan.Change) bool {
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

// changeGroup is changes of one action in a row.
type changeGroup struct {
	action
	Heading string
	Total   int
	Outside bool // it is below a heading about drift
	Changes []change
}

// change is what is done to one resource instance.
type change struct {
	ID         string // of the element
	Link       string // its address
	Address    string
	Mark       string
	Tone       ui.Tone
	Badges     []ui.Pill
	Notes      []string
	Attributes []attribute
	Left       int      // attributes that there was no room for
	Unchanged  []string // names
	Config     string
	Open       bool
}

// grouped makes groups of changes that are in order. link is the address of the
// page that they are on.
func grouped(list []plan.Change, totals map[plan.Action]int, found bool, prefix, link string) []changeGroup {
	var out []changeGroup
	few := len(list) <= fewChanges
	for _, c := range list {
		if len(out) == 0 || out[len(out)-1].Action != c.Action {
			g := changeGroup{action: action{Action: c.Action, Title: string(c.Action), Found: string(c.Action), Mark: "·", Tone: ui.ToneIdle}, Total: totals[c.Action]}
			if i := place(c.Action); i < len(actions) {
				g.action = actions[i]
			}
			g.Heading, g.Outside = g.Title, found
			if found {
				g.Heading = g.Found
			}
			out = append(out, g)
		}
		g := &out[len(out)-1]
		g.Changes = append(g.Changes, changeOf(c, g.action, few, prefix, link))
	}
	return out
}

const (
	fewChanges      = 25  // of which all attributes are shown at once
	attributesShown = 100 // of one change
)

func changeOf(c plan.Change, a action, few bool, prefix, link string) change {
	x := change{ID: prefix + ui.Anchor(c.Address+c.Deposed), Address: ui.Visible(c.Address), Mark: a.Mark, Tone: a.Tone, Unchanged: c.Unchanged, Config: c.Config}
	x.Link = link + "#" + x.ID
	diffs := c.Diffs
	if c.Action == plan.Forget {
		diffs = nil // the attributes do not change: the resource only leaves the state
	}
	x.Open = (a.Open || few) && c.Action != plan.Delete && len(diffs) > 0
	for _, d := range diffs[:min(len(diffs), attributesShown)] {
		x.Attributes = append(x.Attributes, attributeOf(d))
	}
	x.Left = len(diffs) - len(x.Attributes)
	badge := func(tone ui.Tone, word string) { x.Badges = append(x.Badges, ui.PillOf(tone, word)) }
	if c.Reason == "replace_because_tainted" {
		badge(ui.ToneBad, "tainted")
	}
	if c.Action == plan.Replace && c.CreateFirst {
		badge(ui.ToneOK, "created first")
	} else if c.Action == plan.Replace {
		badge(ui.ToneBad, "destroyed first")
	}
	if c.Deposed != "" {
		badge(ui.ToneWarn, "deposed "+ui.Cut(20, ui.Visible(c.Deposed)))
	}
	if c.Mode == "data" {
		badge(ui.ToneIdle, "data")
	}
	if why := c.Because(); why != "" {
		x.Notes = append(x.Notes, because[c.Action]+" because "+why)
	}
	if c.Action == plan.Forget {
		x.Notes = append(x.Notes, "the resource itself is kept")
	}
	if c.Previous != "" {
		x.Notes = append(x.Notes, "moved from "+ui.Visible(c.Previous))
	}
	if c.Import != "" {
		x.Notes = append(x.Notes, "imported by the id "+ui.Cut(200, ui.Visible(c.Import)))
	}
	return x
}

// because begins the sentence that says why.
var because = map[plan.Action]string{
	plan.Delete: "destroyed", plan.Replace: "replaced", plan.Update: "updated", plan.Create: "created", plan.Read: "read during the apply",
	plan.Forget: "forgotten", plan.Move: "moved", plan.Import: "imported",
}
