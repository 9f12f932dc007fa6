package inventory

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Type is what the value of a variable has to be.
type Type string

// The types. A value is never converted: "4" in quotes is a string, and no number.
const (
	Any     Type = "any"
	String  Type = "string"
	Number  Type = "number"
	Boolean Type = "bool"
	List    Type = "list"
	Map     Type = "map"
)

// Types are all of them, in the order of the documentation.
func Types() []Type { return []Type{String, Number, Boolean, List, Map, Any} }

// Variable is one entry of an allow-list.
type Variable struct {
	Name     string // of the variable of Ansible
	As       string // its name for the module; Name if empty
	Type     Type   // Any if empty
	Required bool
	Group    string // whose value it is; "all" if empty
}

// as is the name for the module.
func (v Variable) as() string { return cmp.Or(v.As, v.Name) }

// Variables are the values of an allow-list, by their names for the module. A group has
// the value that a host sees which is in this group and no other. The precedence is that of
// Ansible, from the lowest to the highest:
//
//	vars of "all" in hosts.yml
//	vars of other groups in hosts.yml: parents first, then by ansible_group_priority, then by name
//	group_vars/all
//	group_vars/NAME in the same order of groups
//
// So group_vars/all wins over what hosts.yml says of any group. A value replaces another
// as a whole; maps are not merged. Notes name variables that are left out. The errors are
// Problems, all of them.
func (v *Inventory) Variables(allowed []Variable) (map[string]any, []Note, []error) {
	out := map[string]any{}
	var notes []Note
	var errs []error
	for _, a := range allowed {
		group := cmp.Or(a.Group, All)
		g := v.groups[group]
		if g == nil {
			if a.Required {
				errs = append(errs, problem(HostsFile, 0, "there is no group %s, whose variable %s is required", quoted(group), quoted(a.Name)))
			}
			continue
		}
		value, ok := v.ofGroup(g).get(a.Name)
		switch {
		case !ok && a.Required:
			errs = append(errs, problem(HostsFile, 0, "the required variable %s is not set for the group %s%s", quoted(a.Name), quoted(group), v.elsewhere(a.Name)))
		case !ok:
		case value.Vaulted && a.Required:
			errs = append(errs, problem(value.File, value.Line, "the required variable %s is encrypted with Ansible Vault, which Terrier does not decrypt: give the stack this value in a Secret, with varsFrom", quoted(a.Name)))
		case value.Vaulted:
			notes = append(notes, Note{value.File, value.Line, fmt.Sprintf("the variable %s is encrypted with Ansible Vault, and is left out", quoted(a.Name))})
		case value.unfit != "":
			errs = append(errs, problem(value.File, value.Line, "the variable %s: %s", quoted(a.Name), value.unfit))
		case value.Jinja:
			errs = append(errs, problem(value.File, value.Line, "the variable %s has Jinja in it, and Terrier evaluates none: write the value, or mark the text with !unsafe to pass it on as it is", quoted(a.Name)))
		default:
			if why := a.Type.refuses(value.Data); why != "" {
				errs = append(errs, problem(value.File, value.Line, "the variable %s %s", quoted(a.Name), why))
				continue
			}
			out[a.as()] = value.Data
		}
	}
	return out, notes, errs
}

// elsewhere says which groups have a variable that another lacks, as the end of a sentence.
func (v *Inventory) elsewhere(name string) string {
	var in []string
	for _, g := range slices.Sorted(maps.Keys(v.groups)) {
		_, a := v.groups[g].vars[name]
		_, b := v.groups[g].files[name]
		if a || b {
			in = append(in, quoted(g))
		}
	}
	const most = 5
	switch {
	case len(in) == 0:
		return ""
	case len(in) > most:
		in = append(in[:most], "…")
	}
	return "; it is set for " + strings.Join(in, ", ") + ": name the group in the entry of the variable"
}

// refuses says why a value is not of a type; empty if it is. A null is of every type.
func (t Type) refuses(data any) string {
	is := typeOf(data)
	if data == nil || t == "" || t == Any || t == is {
		return ""
	}
	way := ""
	if s, ok := data.(string); ok && (t == Number || t == Boolean) {
		if typeOf(plain(s)) == t {
			way = ": remove the quotes"
		}
	}
	return fmt.Sprintf("is a %s, and the allow-list asks for a %s%s", is, t, way)
}

func typeOf(data any) Type {
	switch data.(type) {
	case string:
		return String
	case json.Number:
		return Number
	case bool:
		return Boolean
	case []any:
		return List
	case map[string]any:
		return Map
	}
	return Any
}

// ofGroup are the variables that a host sees which is in one group and no other.
func (v *Inventory) ofGroup(g *group) layers {
	in := map[string]bool{g.name: true}
	v.ancestors(g.name, in)
	return v.layered(in)
}

// ofHost are the variables that a host sees.
func (v *Inventory) ofHost(h *host) layers {
	return append(v.layered(h.groups), h.vars, h.files)
}

// layers are scopes, of which later ones win. They are not merged: thousands of hosts may
// see a hundred thousand variables each, and few of these are asked for.
type layers []scope

func (l layers) get(name string) (Value, bool) {
	for _, s := range slices.Backward(l) {
		if v, ok := s[name]; ok {
			return v, true
		}
	}
	return Value{}, false
}

// text is a variable as text; empty if it is none, or has to be evaluated.
func (l layers) text(name string) string {
	v, _ := l.get(name)
	return v.text()
}

// merged are all variables.
func (l layers) merged() scope {
	out := scope{}
	for _, s := range l {
		maps.Copy(out, s)
	}
	return out
}

func (v *Inventory) layered(in map[string]bool) layers {
	all := v.groups[All]
	groups := v.ordered(in)
	out := layers{all.vars}
	for _, g := range groups {
		if len(g.vars) > 0 {
			out = append(out, g.vars)
		}
	}
	out = append(out, all.files)
	for _, g := range groups {
		if len(g.files) > 0 {
			out = append(out, g.files)
		}
	}
	return out
}

// ordered are groups but "all" in the order in which later ones win.
func (v *Inventory) ordered(in map[string]bool) []*group {
	var out []*group
	for name := range in {
		if name != All {
			out = append(out, v.groups[name])
		}
	}
	slices.SortFunc(out, func(a, b *group) int {
		return cmp.Or(cmp.Compare(a.depth, b.depth), cmp.Compare(a.priority, b.priority), strings.Compare(a.name, b.name))
	})
	return out
}

// Vars are the variables of a host as far as they can be told without evaluating anything:
// encrypted ones and the mark of Merge are left out, and texts with Jinja are as they are written.
func (v *Inventory) Vars(name string) map[string]any {
	h := v.hosts[name]
	if h == nil {
		return nil
	}
	out := map[string]any{}
	for name, value := range v.ofHost(h).merged() {
		if !value.Vaulted && value.unfit == "" && name != Managed {
			out[name] = value.Data
		}
	}
	return out
}
