package planview

import (
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// Group is changes of one action in a row.
type Group struct {
	Kind
	Heading string
	Total   int
	Outside bool // it is below a heading about drift
	Changes []Change
}

// Change is what is done to one resource instance.
type Change struct {
	ID         string // of the element
	Link       string // its address
	Address    string
	Mark       string
	Tone       ui.Tone
	Badges     []ui.Pill
	Notes      []string
	Attributes []Attribute
	Left       int      // attributes that there was no room for
	Unchanged  []string // names
	Config     string
	Open       bool
}

// Groups makes groups of changes that are in order. link is the address of the
// page that they are on.
func Groups(list []plan.Change, totals map[plan.Action]int, found bool, prefix, link string) []Group {
	var out []Group
	for _, c := range list {
		if len(out) == 0 || out[len(out)-1].Action != c.Action {
			g := Group{Kind: Kind{Action: c.Action, Title: string(c.Action), Found: string(c.Action), Mark: "·", Tone: ui.ToneIdle}, Total: totals[c.Action]}
			if i := place(c.Action); i < len(Kinds) {
				g.Kind = Kinds[i]
			}
			g.Heading, g.Outside = g.Title, found
			if found {
				g.Heading = g.Found
			}
			out = append(out, g)
		}
		g := &out[len(out)-1]
		g.Changes = append(g.Changes, changeOf(c, g.Kind, len(g.Changes) < openChanges, prefix, link))
	}
	return out
}

const (
	openChanges     = 25  // of one group, whose attributes are shown at once
	attributesShown = 100 // of one change
)

func changeOf(c plan.Change, a Kind, open bool, prefix, link string) Change {
	x := Change{ID: prefix + ui.Anchor(c.Address+c.Deposed), Address: ui.Visible(c.Address), Mark: a.Mark, Tone: a.Tone, Unchanged: c.Unchanged, Config: c.Config}
	x.Link = link + "#" + x.ID
	diffs := c.Diffs
	if c.Action == plan.Forget {
		diffs = nil // the attributes do not change: the resource only leaves the state
	}
	x.Open = a.Open && open && len(diffs) > 0
	for _, d := range diffs[:min(len(diffs), attributesShown)] {
		x.Attributes = append(x.Attributes, AttributeOf(d))
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
	switch c.Action {
	case plan.Forget:
		x.Notes = append(x.Notes, "the resource itself is kept")
	case plan.ForgetCreate:
		x.Notes = append(x.Notes, "the resource itself is kept, and no state has it any more; another one is created")
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
	plan.Forget: "forgotten", plan.ForgetCreate: "forgotten and created", plan.Move: "moved", plan.Import: "imported",
}
