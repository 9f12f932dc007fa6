package plan

import (
	"bytes"
	"encoding/json"
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
	switch v := v.(type) {
	case map[string]any:
		for key, item := range v {
			s.value(item, child(marks, key))
		}
	case []any:
		for i, item := range v {
			s.value(item, child(marks, i))
		}
	}
}

func (s *secrets) all(v any) {
	switch v := v.(type) {
	case string:
		if *s == nil {
			*s = secrets{}
		}
		(*s)[v] = true
	case map[string]any:
		for _, item := range v {
			s.all(item)
		}
	case []any:
		for _, item := range v {
			s.all(item)
		}
	}
}

// child returns what a tree of marks says about one key or index. Marks that
// cover everything cover each part.
func child(marks any, step any) any {
	switch m := marks.(type) {
	case bool:
		return m
	case map[string]any:
		if key, ok := step.(string); ok {
			return m[key]
		}
	case []any:
		if i, ok := step.(int); ok && i < len(m) {
			return m[i]
		}
	}
	return nil
}

// anyMarked reports whether something in a tree of marks is marked.
func anyMarked(marks any) bool {
	switch m := marks.(type) {
	case bool:
		return m
	case map[string]any:
		for _, item := range m {
			if anyMarked(item) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(m, anyMarked)
	}
	return false
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
