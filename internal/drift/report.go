package drift

import (
	"slices"

	"github.com/terrier-iac/terrier/internal/plan"
)

// How a resource drifted.
const (
	Changed  = "changed"  // attributes differ
	Replaced = "replaced" // attributes differ, and the plan would replace the resource for it
	Absent   = "absent"   // it is configured, and is not there
	Other    = "other"    // what the plan does to it is no drift of an attribute: see Action
)

// Resource is one resource that drifted.
type Resource struct {
	Address    string      `json:"address"`
	Module     string      `json:"module,omitempty"` // the address of its module; empty for the root module
	Type       string      `json:"type"`
	Name       string      `json:"name"`
	Keyed      bool        `json:"keyed,omitempty"` // it is one instance of a block with count or for_each
	How        string      `json:"how"`
	Action     plan.Action `json:"action"` // of the plan that would enforce the configuration
	Attributes []Attribute `json:"attributes,omitempty"`
}

// Attribute is one attribute that differs.
type Attribute struct {
	Path       string `json:"path"`                 // tags["a"], rule[0].port
	Configured any    `json:"configured,omitempty"` // the value that the plan would set; nil if none
	Real       any    `json:"real,omitempty"`       // the value that is there; nil if none
	Sensitive  bool   `json:"sensitive,omitempty"`  // both are masked
}

// Report lists what drifted, as the plan that would enforce the configuration says: for each
// attribute the configured value and the real one, both masked as in the plan. Attributes whose
// value only the apply tells are left out: nothing is configured for them.
func Report(d *plan.Document) []Resource {
	out := []Resource{}
	for _, c := range d.Items() {
		if c.Mode == "data" || c.Action == plan.NoOp || c.Action == plan.Read {
			continue
		}
		r := Resource{Address: c.Address, Module: c.Module, Type: c.Type, Name: c.Name, Keyed: len(c.Key) > 0, Action: c.Action, How: Other}
		switch {
		case c.Previous != "" || c.Deposed != "" || c.Import != "":
		case c.Action == plan.Update:
			r.How = Changed
		case c.Action == plan.Replace:
			r.How = Replaced
		case c.Action == plan.Create:
			r.How = Absent
		}
		if r.How == Changed || r.How == Replaced {
			for _, diff := range c.Diffs {
				if !diff.Unknown {
					r.Attributes = append(r.Attributes, Attribute{Path: diff.Path, Configured: diff.After, Real: diff.Before, Sensitive: diff.Sensitive})
				}
			}
		}
		out = append(out, r)
	}
	return out
}

// Choose leaves the resources and attributes that a user names; all of them if none are named.
// It returns the names that are in no resource as well.
func Choose(all []Resource, addresses, attributes []string) (chosen []Resource, unknown []string) {
	for _, a := range addresses {
		if !slices.ContainsFunc(all, func(r Resource) bool { return r.Address == a }) {
			unknown = append(unknown, a)
		}
	}
	found := map[string]bool{}
	for _, r := range all {
		if len(addresses) > 0 && !slices.Contains(addresses, r.Address) {
			continue
		}
		if len(attributes) > 0 {
			r.Attributes = slices.DeleteFunc(slices.Clone(r.Attributes), func(a Attribute) bool {
				i := slices.IndexFunc(attributes, func(name string) bool { return a.Path == name || below(name, a.Path) })
				if i >= 0 {
					found[attributes[i]] = true
				}
				return i < 0
			})
			if len(r.Attributes) == 0 {
				continue
			}
		}
		chosen = append(chosen, r)
	}
	for _, a := range attributes {
		if !found[a] {
			unknown = append(unknown, a)
		}
	}
	return chosen, unknown
}

// below reports whether a path leads into an attribute.
func below(attribute, path string) bool {
	return len(path) > len(attribute) && path[:len(attribute)] == attribute && (path[len(attribute)] == '.' || path[len(attribute)] == '[' || path[len(attribute)] == '(')
}
