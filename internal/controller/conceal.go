package controller

import (
	"bytes"
	"encoding/json"
)

// spellings are the texts by which the value of a key of a Secret is known when
// it is shown: itself and, of a list or an object, every text and number in it,
// since a plan shows those one by one.
func spellings(value []byte) []string {
	all := []string{string(value)}
	trimmed := bytes.TrimSpace(value)
	if len(trimmed) == 0 || trimmed[0] != '[' && trimmed[0] != '{' {
		return all
	}
	d := json.NewDecoder(bytes.NewReader(trimmed))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return all // it only looks like JSON
	}
	return within(all, v)
}

// within adds every text and number in a JSON value to found.
func within(found []string, v any) []string {
	switch v := v.(type) {
	case string:
		found = append(found, v)
	case json.Number:
		found = append(found, v.String())
	case []any:
		for _, item := range v {
			found = within(found, item)
		}
	case map[string]any:
		for _, item := range v {
			found = within(found, item)
		}
	}
	return found
}
