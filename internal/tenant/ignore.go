package tenant

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Ignored are the fields of one object that ignoreFields leaves to other managers.
//
// An element of a list is found by the keys that the schema gives the list, and
// never by its place: others may add elements, and a template may move them. An
// index is a place in the template's list, and its element is then found by its
// keys as well. Only in a list without keys is an index a place in both lists, as
// long as these have the same length.
type Ignored struct {
	fields []ignoredField
	lists  func(path []string) List
}

// ignoredField is one entry of ignoreFields.
type ignoredField struct {
	entry string
	path  Path
}

// ParseIgnored reads ignoreFields. Lists knows the lists of the kind.
func ParseIgnored(entries []string, lists func(path []string) List) (Ignored, error) {
	all := Ignored{lists: lists}
	for i, e := range entries {
		p, err := ParsePath(e)
		if err != nil {
			return Ignored{}, fmt.Errorf("ignoreFields[%d]: %w", i, err)
		}
		all.fields = append(all.fields, ignoredField{e, p})
	}
	return all, nil
}

// Check finds entries that do not fit an object, by the fields that the object has.
func (g Ignored) Check(object map[string]any) error {
	for i, f := range g.fields {
		if err := g.check(object, nil, f.path); err != nil {
			return fmt.Errorf("ignoreFields[%d]: %s: %w", i, f.entry, err)
		}
	}
	return nil
}

func (g Ignored) check(value any, at []string, p Path) error {
	if len(p) == 0 {
		return nil
	}
	switch v := value.(type) {
	case map[string]any:
		switch s := p[0].(type) {
		case int:
			return fmt.Errorf("%s is no list, so that it has no element %d", written(at), s)
		case string:
			return g.check(v[s], append(slices.Clone(at), s), p[1:])
		}
		for _, name := range keysOf(v) {
			if err := g.check(v[name], append(slices.Clone(at), name), p[1:]); err != nil {
				return err
			}
		}
	case []any:
		return g.checkList(v, at, p)
	}
	return nil
}

func (g Ignored) checkList(list []any, at []string, p Path) error {
	if name, ok := p[0].(string); ok {
		return fmt.Errorf("%[1]s is a list; write %[1]s[*].%[2]s for the field of all of its elements", written(at), name)
	}
	l := g.lists(at)
	_, all := p[0].(Any)
	if all && l.Known && len(l.Keys) == 0 {
		return withoutKeys(at)
	}
	if len(p) == 2 && slices.ContainsFunc(l.Keys, func(k ListKey) bool { return k.Name == p[1] }) {
		return fmt.Errorf("%s identifies the elements of %s, so that it cannot be left to other managers; ignore the whole list instead: $.%[2]s", p[1], written(at))
	}
	for i := range list {
		if all || p[0] == i {
			if err := g.check(list[i], append(slices.Clone(at), "[]"), p[1:]); err != nil {
				return err
			}
		}
	}
	return nil
}

func withoutKeys(at []string) error {
	return fmt.Errorf("the elements of %[1]s have no keys, so that Terrier cannot tell which of them is which; ignore the whole list instead: $.%[1]s", written(at))
}

// written is a path as users write it.
func written(at []string) string {
	return strings.ReplaceAll(strings.Join(at, "."), ".[]", "[*]")
}

// ErrListUnknown says that the schema of a list could not be read.
var ErrListUnknown = errors.New("its schema cannot be read")

// Keep copies the ignored fields from live into desired, and removes those that
// live does not have. Elements that live does not have stay as they are desired.
func (g Ignored) Keep(desired, live map[string]any) error {
	for i, f := range g.fields {
		if err := g.keep(desired, live, nil, f.path); err != nil {
			return fmt.Errorf("ignoreFields[%d]: %s: %w", i, f.entry, err)
		}
	}
	return nil
}

func (g Ignored) keep(desired, live any, at []string, p Path) error {
	switch d := desired.(type) {
	case map[string]any:
		l, _ := live.(map[string]any)
		for _, name := range p.names(d, l) {
			if err := g.keepField(d, l, name, append(slices.Clone(at), name), p[1:]); err != nil {
				return err
			}
		}
	case []any:
		l, _ := live.([]any)
		return g.keepElements(d, l, at, p)
	}
	return nil
}

// names are the fields that the first step of p selects, in order.
func (p Path) names(desired, live map[string]any) []string {
	switch s := p[0].(type) {
	case string:
		return []string{s}
	case Any:
		all := maps.Clone(desired)
		if all == nil {
			all = map[string]any{}
		}
		maps.Copy(all, live)
		return keysOf(all)
	}
	return nil
}

func (g Ignored) keepField(desired, live map[string]any, name string, at []string, rest Path) error {
	is, there := live[name]
	if len(rest) == 0 {
		if there {
			desired[name] = copied(is)
		} else {
			delete(desired, name)
		}
		return nil
	}
	if _, parent := is.(map[string]any); parent && desired[name] == nil {
		made := map[string]any{} // the parent of a field that only live has
		if err := g.keep(made, is, at, rest); err != nil {
			return err
		}
		if len(made) > 0 {
			desired[name] = made
		}
		return nil
	}
	return g.keep(desired[name], is, at, rest)
}

func (g Ignored) keepElements(desired, live []any, at []string, p Path) error {
	list := g.lists(at)
	both := pairing{at: at, list: list, desired: list.places(desired), live: list.places(live)}
	for i := range desired {
		_, all := p[0].(Any)
		if len(live) == 0 || !all && p[0] != i {
			continue
		}
		is, found, err := both.counterpart(desired, live, i, all)
		switch {
		case err != nil:
			return err
		case !found:
		case len(p) == 1:
			desired[i] = copied(is)
		default:
			if err := g.keep(desired[i], is, append(slices.Clone(at), "[]"), p[1:]); err != nil {
				return err
			}
		}
	}
	return nil
}

// pairing finds the elements of two lists that stand for each other.
type pairing struct {
	at            []string
	list          List
	desired, live map[string][]int // places by key
}

// counterpart is the element of live that element i of desired stands for; all says
// that the entry means all elements, and no place.
func (p pairing) counterpart(desired, live []any, i int, all bool) (any, bool, error) {
	switch {
	case len(p.list.Keys) > 0:
		key, ok := p.list.key(desired[i])
		if ok && (len(p.desired[key]) > 1 || len(p.live[key]) > 1) {
			return nil, false, fmt.Errorf("%[1]s has several elements with %[2]s, so that Terrier cannot tell which of them is which; ignore the whole list instead: $.%[1]s", written(p.at), key)
		}
		if !ok || p.live[key] == nil {
			return nil, false, nil // it is new, or the API server refuses it
		}
		return live[p.live[key][0]], true, nil
	case !p.list.Known:
		return nil, false, fmt.Errorf("%s: %w", written(p.at), ErrListUnknown)
	case all:
		return nil, false, withoutKeys(p.at)
	case len(desired) != len(live):
		return nil, false, fmt.Errorf("the elements of %[1]s have no keys, and the object has %[2]d of them while the template has %[3]d, so that element %[4]d may be another one; ignore the whole list instead: $.%[1]s",
			written(p.at), len(live), len(desired), i)
	}
	return live[i], true, nil
}

// places are the places of elements by their keys; those without one are left out.
func (l List) places(list []any) map[string][]int {
	at := map[string][]int{}
	for i, e := range list {
		if k, ok := l.key(e); ok {
			at[k] = append(at[k], i)
		}
	}
	return at
}

// key identifies an element; ok is false for one that lacks a part of its key. A
// part that is left out has its default, such as the protocol of a port.
func (l List) key(element any) (key string, ok bool) {
	m, _ := element.(map[string]any)
	var parts []string
	for _, k := range l.Keys {
		v, set := m[k.Name]
		if !set || v == nil {
			v = k.Default
		}
		switch v.(type) {
		case nil, map[string]any, []any:
			return "", false
		}
		parts = append(parts, fmt.Sprintf("%s %v", k.Name, v))
	}
	return strings.Join(parts, ", "), len(parts) > 0
}

// Drop removes the ignored fields from an object, so that the object says nothing
// about them. It leaves elements of lists in place: without one, the others would
// move.
func (g Ignored) Drop(object map[string]any) {
	for _, f := range g.fields {
		f.path.drop(object)
	}
}

func (p Path) drop(object any) {
	switch o := object.(type) {
	case map[string]any:
		for _, name := range p.names(o, nil) {
			if len(p) == 1 {
				delete(o, name)
			} else {
				p[1:].drop(o[name])
			}
		}
	case []any:
		for i := range o {
			if _, all := p[0].(Any); len(p) > 1 && (all || p[0] == i) {
				p[1:].drop(o[i])
			}
		}
	}
}

// copied is a deep copy of a value that JSON can hold.
func copied(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, e := range v {
			m[k] = copied(e)
		}
		return m
	case []any:
		list := make([]any, len(v))
		for i, e := range v {
			list[i] = copied(e)
		}
		return list
	}
	return v
}
