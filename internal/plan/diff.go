package plan

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Diff is what happens to one attribute, however deep.
type Diff struct {
	Path              string `json:"path"`             // tags["a b"], rule[0].port
	Before            any    `json:"before,omitempty"` // nil if there was nothing
	After             any    `json:"after,omitempty"`  // nil if there will be nothing, or if Unknown
	Unknown           bool   `json:"unknown,omitempty"`
	Sensitive         bool   `json:"sensitive,omitempty"` // what differs is masked
	ForcesReplacement bool   `json:"forcesReplacement,omitempty"`
}

// differ compares the two sides of one change.
type differ struct {
	doc    *Document
	forces [][]any  // paths that force a replacement
	unseen []string // of a masked document: paths where what differs may not be seen
	out    []Diff
}

// side is a value before or after with its marks.
type side struct{ value, marks any }

func (s side) at(step any) side { return side{childValue(s.value, step), child(s.marks, step)} }

// inJSON is the step from a string to the JSON in it.
type inJSON struct{}

// walk compares before and after at a path. Null and absent are one: to an
// engine an attribute that is not set is null.
func (d *differ) walk(path []any, before, after side, unknown any) {
	switch {
	case before.marks == true || after.marks == true:
		if unknown == true || !reflect.DeepEqual(before.value, after.value) ||
			(before.marks == true) != (after.marks == true) && before.value != nil && after.value != nil || d.conceals(path) {
			d.emit(path, before, after, unknown)
		}
	case unknown == true:
		d.emit(path, before, after, unknown)
	case isObject(before.value, after.value, unknown):
		d.walkObject(path, before, after, unknown)
	case isList(before.value, after.value, unknown):
		d.walkList(path, before, after, unknown)
	case reflect.DeepEqual(before.value, after.value) && !d.conceals(path):
	case d.walkJSON(path, before, after):
	default:
		d.emit(path, before, after, unknown)
	}
}

func (d *differ) walkObject(path []any, before, after side, unknown any) {
	keys := map[string]bool{}
	for _, v := range []any{before.value, after.value, unknown} {
		if m, ok := v.(map[string]any); ok {
			for key := range m {
				keys[key] = true
			}
		}
	}
	count := len(d.out)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		d.walk(append(slices.Clip(path), key), before.at(key), after.at(key), child(unknown, key))
	}
	if len(d.out) == count && (before.value == nil) != (after.value == nil) && len(path) > 0 {
		d.emit(path, before, after, nil) // an empty object that comes or goes
	}
}

// walkList leaves out what both lists begin and end with, so that an element
// put in front does not change all the others, and compares the rest in order.
func (d *differ) walkList(path []any, before, after side, unknown any) {
	b, _ := before.value.([]any)
	a, _ := after.value.([]any)
	n := len(a)
	if u, ok := unknown.([]any); ok {
		n = max(n, len(u))
	}
	same := func(i, j int) bool {
		return i < len(b) && j < len(a) && !anyMarked(child(unknown, j)) && reflect.DeepEqual(b[i], a[j]) &&
			anyMarked(child(before.marks, i)) == anyMarked(child(after.marks, j)) &&
			!d.conceals(append(slices.Clip(path), i)) && !d.conceals(append(slices.Clip(path), j))
	}
	head := 0
	for head < min(len(b), n) && same(head, head) {
		head++
	}
	tail := 0
	for tail < min(len(b), n)-head && same(len(b)-1-tail, n-1-tail) {
		tail++
	}
	count := len(d.out)
	for i := head; i < max(len(b), n)-tail; i++ {
		x, y, u := side{}, side{}, any(nil)
		if i < len(b)-tail {
			x = before.at(i)
		}
		if i < n-tail {
			y, u = after.at(i), child(unknown, i)
		}
		d.walk(append(slices.Clip(path), i), x, y, u)
	}
	if len(d.out) == count && (before.value == nil) != (after.value == nil) {
		d.emit(path, before, after, nil)
	}
}

// walkJSON compares documents that are kept in strings, like policies.
func (d *differ) walkJSON(path []any, before, after side) bool {
	b, ok := document(before.value)
	a, ok2 := document(after.value)
	if !ok || !ok2 || reflect.DeepEqual(a, b) {
		return false
	}
	d.walk(append(slices.Clip(path), inJSON{}), side{b, nil}, side{a, nil}, nil)
	return true
}

func document(v any) (any, bool) {
	s, ok := v.(string)
	if !ok || !strings.HasPrefix(s, "{") && !strings.HasPrefix(s, "[") {
		return nil, false
	}
	parsed := decode(json.RawMessage(s))
	return parsed, parsed != nil && json.Valid([]byte(s))
}

func (d *differ) emit(path []any, before, after side, unknown any) {
	diff := Diff{Path: pathText(path), Unknown: unknown == true, ForcesReplacement: d.forced(path)}
	hide := func(v any) any {
		if v == nil {
			return nil
		}
		return d.doc.masked(v, before.marks, after.marks)
	}
	diff.Before, diff.After = hide(before.value), hide(after.value)
	diff.Sensitive = before.marks == true || after.marks == true || d.conceals(path)
	d.out = append(d.out, diff)
}

// forced reports whether one of the paths that force a replacement is path,
// leads to it or goes on from it.
func (d *differ) forced(path []any) bool {
	for _, f := range d.forces {
		n := min(len(f), len(path))
		match := true
		for i := range n {
			if stepText(f[i]) != stepText(path[i]) {
				match = false
				break
			}
		}
		if match {
			return true
		}
	}
	return false
}

func isObject(values ...any) bool { return allOf[map[string]any](values) }
func isList(values ...any) bool   { return allOf[[]any](values) }

// allOf reports whether every value that is there is a T, and one is.
func allOf[T any](values []any) bool {
	found := false
	for _, v := range values {
		if v == nil || v == false {
			continue
		}
		if _, ok := v.(T); !ok {
			return false
		}
		found = true
	}
	return found
}

func childValue(v, step any) any {
	switch v := v.(type) {
	case map[string]any:
		if key, ok := step.(string); ok {
			return v[key]
		}
	case []any:
		if i, ok := step.(int); ok && i < len(v) {
			return v[i]
		}
	}
	return nil
}

func pathText(path []any) string {
	var b strings.Builder
	for i, step := range path {
		key, isKey := step.(string)
		switch {
		case isKey && isIdentifier(key):
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(key)
		case isKey:
			b.WriteString("[" + strconv.Quote(key) + "]")
		case step == any(inJSON{}):
			b.WriteString("(json)")
		default:
			b.WriteString("[" + stepText(step) + "]")
		}
	}
	return b.String()
}

// stepText is one text for a step, whether it comes from walking (int) or
// from a decoded path (json.Number, float64).
func stepText(step any) string {
	switch step := step.(type) {
	case string:
		return strconv.Quote(step)
	case int:
		return strconv.Itoa(step)
	case float64:
		return strconv.FormatFloat(step, 'f', -1, 64)
	default:
		return ""
	}
}

func isIdentifier(s string) bool {
	for i, r := range s {
		letter := r == '_' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		if !letter && (i == 0 || r != '-' && (r < '0' || r > '9')) {
			return false
		}
	}
	return s != ""
}
