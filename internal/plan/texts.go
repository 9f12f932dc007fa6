package plan

import (
	"bytes"
	"encoding/json"
)

// Texts lists every text and number in a JSON value: a plan shows those of a
// list or an object one by one, so each is to be known if the value is secret.
// What is no JSON holds none.
func Texts(value []byte) []string {
	d := json.NewDecoder(bytes.NewReader(value))
	d.UseNumber() // a number is known by its digits
	var v any
	if d.Decode(&v) != nil {
		return nil
	}
	return texts(nil, v)
}

func texts(found []string, v any) []string {
	switch v := v.(type) {
	case string:
		found = append(found, v)
	case json.Number:
		found = append(found, v.String())
	}
	for _, item := range parts(v) {
		found = texts(found, item)
	}
	return found
}
