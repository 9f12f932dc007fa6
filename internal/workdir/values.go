package workdir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Values renders the templates in a JSON value: Go templates between ${{ and
// }}, with the outputs of other stacks as their data, by name. Only strings are
// templates, and each is rendered alone after the JSON around it was parsed, so that
// no output can change the structure of the value. A string that is only a reference
// to a list or map becomes that list or map. Numbers keep all their digits.
func Values(raw json.RawMessage, outputs map[string]map[string]json.RawMessage) (json.RawMessage, error) {
	value, err := exact(raw)
	if err != nil {
		return nil, invalid(fmt.Errorf("reading values: %w", err))
	}
	data, err := templateData(outputs)
	if err != nil {
		return nil, err
	}
	b := budget{actions: maxExecuted, text: maxHandled}
	value, err = b.renderValue(value, data, "values")
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return nil, fmt.Errorf("encoding values: %w", err)
	}
	return bytes.TrimSpace(out.Bytes()), nil
}

func (b *budget) renderValue(v any, data any, path string) (any, error) {
	var err error
	switch v := v.(type) {
	case string:
		if whole, ok := collection(v, data); ok {
			return whole, nil
		}
		return b.render(v, data, path)
	case []any:
		for i := range v {
			if v[i], err = b.renderValue(v[i], data, path+"["+strconv.Itoa(i)+"]"); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for key := range v {
			if v[key], err = b.renderValue(v[key], data, path+"."+key); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

// lone is a template that is nothing but a reference to one output.
var lone = lazy(`^\$\{\{\s*((?:\.[A-Za-z_][A-Za-z0-9_]*)+)\s*\}\}$`)

// collection returns the list or map that a template refers to, if it is
// nothing but such a reference: as text it would be of no use to a module.
func collection(s string, data any) (any, bool) {
	m := lone().FindStringSubmatch(s)
	if m == nil {
		return nil, false
	}
	for _, name := range strings.Split(m[1][1:], ".") {
		fields, ok := data.(map[string]any)
		if !ok {
			return nil, false
		}
		if data, ok = fields[name]; !ok {
			return nil, false
		}
	}
	switch data.(type) {
	case []any, map[string]any:
		return data, true
	default:
		return nil, false
	}
}

// templateData decodes outputs for templates. Whole numbers are integers so
// that templates can compare them; those too large for one stay as written.
func templateData(outputs map[string]map[string]json.RawMessage) (map[string]any, error) {
	data := map[string]any{}
	for as, values := range outputs {
		m := map[string]any{}
		for name, raw := range values {
			v, err := exact(raw)
			if err != nil {
				return nil, invalid(fmt.Errorf("reading output %s of %s: %w", name, as, err))
			}
			m[name] = numbers(v)
		}
		data[as] = m
	}
	return data, nil
}

// Decode reads one JSON value for templates, numbers as templateData has them.
func Decode(raw []byte) (any, error) {
	v, err := exact(raw)
	return numbers(v), err
}

func numbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return i
		}
		if f, err := v.Float64(); err == nil && strconv.FormatFloat(f, 'f', -1, 64) == v.String() {
			return f
		}
		return v.String()
	case []any:
		for i := range v {
			v[i] = numbers(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = numbers(v[key])
		}
	}
	return v
}

// exact reads exactly one JSON value without rounding numbers.
func exact(raw []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more than one JSON value")
	}
	return v, nil
}
