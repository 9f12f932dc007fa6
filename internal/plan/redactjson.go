package plan

import (
	"bytes"
	"encoding/json"
)

// hider recognises secret values.
type hider interface {
	String(s string) string // s without the values in it
	whole(s string) bool    // s is a value, and long enough to be looked for anywhere
	short(s string) bool    // s is a value, and shorter than that
}

// RedactJSON returns a JSON text with every known value replaced by Mask and
// still JSON: strings are searched, numbers are replaced whole when they are a
// value. Keys are searched too, for values long enough not to be a word of the
// format by chance. What is not JSON is treated as text.
func (r *Redactor) RedactJSON(b []byte) []byte {
	r = r.newest()
	if r == nil || r.longest == 0 && len(r.shorts) == 0 {
		return b
	}
	if out, ok := redactedJSON(r, b); ok {
		return out
	}
	return r.Redact(b)
}

// redactedJSON is not ok if b is no JSON.
func redactedJSON(h hider, b []byte) (out []byte, ok bool) {
	var v any
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil || dec.More() {
		return nil, false
	}
	v, changed := redactedValue(h, v, false)
	if !changed {
		return b, true
	}
	return encode(v), true
}

// redactedValue changes v, and reports whether it did. A short value is hidden only
// inside of what a document holds as a value: elsewhere it may be a word of the
// format.
func redactedValue(h hider, v any, inside bool) (any, bool) {
	switch v := v.(type) {
	case string:
		if inside && h.short(v) {
			return Mask, true
		}
		out := h.String(v)
		return out, out != v
	case json.Number:
		if h.whole(v.String()) {
			return Mask, true
		}
		return v, false
	case []any:
		changed := false
		for i := range v {
			item, c := redactedValue(h, v[i], inside)
			v[i], changed = item, changed || c
		}
		return v, changed
	case map[string]any:
		return redactedObject(h, v, inside)
	default:
		return v, false
	}
}

// holdsValues reports whether what stands under a key of the engine's formats are
// values of the module.
func holdsValues(key string) bool {
	switch key {
	case "before", "after", "value", "values", "constant_value":
		return true
	default:
		return false
	}
}

func redactedObject(h hider, m map[string]any, inside bool) (any, bool) {
	changed := false
	for key, item := range m {
		item, c := redactedValue(h, item, inside || holdsValues(key))
		changed = changed || c
		m[key] = item
	}
	for key, item := range m {
		if hidden := redactedKey(h, key); hidden != key {
			delete(m, key)
			m[hidden] = item
			changed = true
		}
	}
	return m, changed
}

// redactedKey hides values in the key of an object, unless it is so short that it
// may be a word of the format.
func redactedKey(h hider, key string) string {
	if len(key) < minLine {
		return key
	}
	return h.String(key)
}

func (r *Redactor) whole(s string) bool { return r.match([]byte(s)) == len(s) && s != "" }

func (r *Redactor) short(s string) bool { return r != nil && r.shorts[s] }

// encode is the one way JSON leaves this package: keys sorted, no escaping of
// < > & beyond what JSON needs, no newline at the end.
func encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return []byte("null") // values that came from JSON always encode
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
