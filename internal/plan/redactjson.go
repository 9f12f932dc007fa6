package plan

import (
	"bytes"
	"encoding/json"
)

// RedactJSON returns a JSON text with every known value replaced by Mask and
// still JSON: strings are searched, numbers are replaced whole when they are a
// value. Keys are searched too, for values long enough not to be a word of the
// format by chance. What is not JSON is treated as text.
func (r *Redactor) RedactJSON(b []byte) []byte {
	if r == nil || r.longest == 0 {
		return b
	}
	var v any
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil || dec.More() {
		return r.Redact(b)
	}
	v, changed := r.redactValue(v)
	if !changed {
		return b
	}
	return encode(v)
}

func (r *Redactor) redactValue(v any) (any, bool) {
	switch v := v.(type) {
	case string:
		out := r.String(v)
		return out, out != v
	case json.Number:
		if r.match([]byte(v.String())) == len(v.String()) {
			return Mask, true
		}
		return v, false
	case []any:
		changed := false
		for i := range v {
			item, c := r.redactValue(v[i])
			v[i], changed = item, changed || c
		}
		return v, changed
	case map[string]any:
		return r.redactObject(v)
	default:
		return v, false
	}
}

func (r *Redactor) redactObject(m map[string]any) (any, bool) {
	changed := false
	for key, item := range m {
		item, c := r.redactValue(item)
		changed = changed || c
		m[key] = item
	}
	for key, item := range m {
		if hidden := r.key(key); hidden != key {
			delete(m, key)
			m[hidden] = item
			changed = true
		}
	}
	return m, changed
}

// key hides values in the key of an object, unless it is so short that it may
// be a word of the format.
func (r *Redactor) key(key string) string {
	if len(key) < minLine {
		return key
	}
	return r.String(key)
}

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
