package plan

import (
	"bytes"
	"encoding/json"
	"iter"
	"maps"
	"slices"
)

// secrets collects the texts under sensitive marks.
type secrets map[string]bool

func (s *secrets) list() []string { return slices.Sorted(maps.Keys(*s)) }

func (s *secrets) delta(c wireDelta) {
	for _, side := range []struct{ value, marks json.RawMessage }{
		{c.Before, c.BeforeSensitive}, {c.After, c.AfterSensitive},
	} {
		if bytes.Contains(side.marks, []byte("true")) {
			s.value(decode(side.value), decode(side.marks))
		}
	}
}

func (s *secrets) value(v, marks any) {
	if marks == true {
		s.all(v)
		return
	}
	for step, item := range parts(v) {
		s.value(item, child(marks, step))
	}
}

func (s *secrets) all(v any) {
	if text, ok := v.(string); ok {
		if *s == nil {
			*s = secrets{}
		}
		(*s)[text] = true
	}
	for _, item := range parts(v) {
		s.all(item)
	}
}

// parts are the members of an object by their keys, or the elements of a list by
// their indexes. Any other value has none.
func parts(v any) iter.Seq2[any, any] {
	return func(yield func(step, item any) bool) {
		switch v := v.(type) {
		case map[string]any:
			for key, item := range v {
				if !yield(key, item) {
					return
				}
			}
		case []any:
			for i, item := range v {
				if !yield(i, item) {
					return
				}
			}
		}
	}
}

// rewrite replaces each of the parts of v in place.
func rewrite(v any, by func(step, item any) any) any {
	for step, item := range parts(v) {
		switch v := v.(type) {
		case map[string]any:
			v[step.(string)] = by(step, item)
		case []any:
			v[step.(int)] = by(step, item)
		}
	}
	return v
}

// child returns what a tree of marks says about one key or index. Marks that
// cover everything cover each part.
func child(marks any, step any) any {
	if all, ok := marks.(bool); ok {
		return all
	}
	return childValue(marks, step)
}

// anyMarked reports whether something in a tree of marks is marked.
func anyMarked(marks any) bool {
	for _, item := range parts(marks) {
		if anyMarked(item) {
			return true
		}
	}
	return marks == true
}

// masked returns v with everything hidden that one of the trees of marks
// covers, or that is or contains a value known to be sensitive.
func (d *Document) masked(v any, marks ...any) any {
	if v == nil {
		return nil // that there is no value is no secret: engines say so, too
	}
	if slices.Contains(marks, any(true)) {
		return Mask
	}
	switch v := v.(type) {
	case string:
		return d.hide.String(v)
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, item := range v {
			out[redactedKey(d.hide, key)] = d.masked(item, children(marks, key)...)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = d.masked(item, children(marks, i)...)
		}
		return out
	default:
		return v
	}
}

func children(marks []any, step any) []any {
	out := make([]any, 0, len(marks))
	for _, m := range marks {
		if c := child(m, step); c != nil && c != false {
			out = append(out, c)
		}
	}
	return out
}
