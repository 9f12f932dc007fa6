package plan

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
)

// Change is what a plan does to one resource instance. Values in it are
// masked.
type Change struct {
	Address     string          `json:"address"`
	Previous    string          `json:"previous,omitempty"` // the address it is moved from
	Module      string          `json:"module,omitempty"`
	Mode        string          `json:"mode,omitempty"` // managed or data
	Type        string          `json:"type,omitempty"`
	Name        string          `json:"name,omitempty"`
	Key         json.RawMessage `json:"key,omitempty"`      // of count or for_each
	Provider    string          `json:"provider,omitempty"` // its full address
	Deposed     string          `json:"deposed,omitempty"`  // the key of an object left over from a replacement
	Action      Action          `json:"action"`
	CreateFirst bool            `json:"createFirst,omitempty"` // of a Replace: the new one is made before the old one goes
	Reason      string          `json:"reason,omitempty"`      // replace_because_tainted, …
	Import      string          `json:"import,omitempty"`      // the id it is imported by
	Config      string          `json:"config,omitempty"`      // configuration that the engine generated for an import
	Diffs       []Diff          `json:"diffs,omitempty"`
	Unchanged   []string        `json:"unchanged,omitempty"` // attributes of an update or a replacement that stay as they are
}

// OutputChange is what a plan does to one output. Its Diff has no path.
type OutputChange struct {
	Name   string `json:"name"`
	Action Action `json:"action"`
	Diff   Diff   `json:"diff"`
}

// Items returns what the plan does to each resource instance, by address.
// Instances that stay as they are are not among them.
func (d *Document) Items() []Change { return d.changes(d.wire.Changes) }

// Drift returns what was changed outside since the state was last written.
func (d *Document) Drift() []Change { return d.changes(d.wire.Drift) }

// Outputs returns the outputs that change, by name.
func (d *Document) Outputs() []OutputChange {
	var out []OutputChange
	for _, name := range slices.Sorted(maps.Keys(d.wire.Outputs)) {
		c := d.wire.Outputs[name]
		if action(c.Actions) == NoOp {
			continue
		}
		w := differ{doc: d}
		w.emit(nil, side{decode(c.Before), decode(c.BeforeSensitive)}, side{decode(c.After), decode(c.AfterSensitive)}, decode(c.Unknown))
		out = append(out, OutputChange{Name: name, Action: action(c.Actions), Diff: w.out[0]})
	}
	return out
}

func (d *Document) changes(list []wireResource) []Change {
	var out []Change
	for _, r := range list {
		if r.action() != NoOp {
			out = append(out, d.change(r))
		}
	}
	slices.SortFunc(out, func(a, b Change) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.Deposed, b.Deposed))
	})
	return out
}

func (d *Document) change(r wireResource) Change {
	c := Change{
		Address: r.Address, Module: r.Module, Mode: r.Mode, Type: r.Type, Name: r.Name, Key: r.Key,
		Provider: r.Provider, Deposed: r.Deposed, Action: r.action(), Reason: r.Reason,
		CreateFirst: r.action() == Replace && r.Delta.Actions[0] == Create,
		Config:      d.hide.String(r.Delta.Generated),
	}
	if r.Previous != r.Address {
		c.Previous = r.Previous
	}
	if i := r.Delta.Importing; i != nil {
		c.Import = cmp.Or(i.ID, string(i.Identity))
	}
	w := differ{doc: d, forces: r.Delta.ReplacePaths, unseen: r.Delta.Concealed}
	before := side{decode(r.Delta.Before), decode(r.Delta.BeforeSensitive)}
	after := side{decode(r.Delta.After), decode(r.Delta.AfterSensitive)}
	unknown := decode(r.Delta.Unknown)
	w.walk(nil, before, after, unknown)
	c.Diffs = w.out
	if c.Action == Update || c.Action == Replace || c.Action == ForgetCreate {
		c.Unchanged = w.unchanged(before, after, unknown)
	}
	return c
}

// unchanged lists the attributes that are set and stay as they are.
func (d *differ) unchanged(before, after side, unknown any) []string {
	attributes, _ := before.value.(map[string]any)
	var out []string
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		if attributes[name] == nil || anyMarked(child(unknown, name)) {
			continue
		}
		if w := (differ{doc: d.doc, unseen: d.unseen}); len(w.at(name, before, after)) == 0 {
			out = append(out, name)
		}
	}
	return out
}

// at returns what differs in one attribute.
func (d *differ) at(name string, before, after side) []Diff {
	d.walk([]any{name}, before.at(name), after.at(name), nil)
	return d.out
}

// Because says in plain words why the engine does it; it is empty where there is
// nothing to say.
func (c Change) Because() string {
	if c.Reason == "" {
		return ""
	}
	return reason(c.Reason)
}
