package rendering

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"unicode/utf8"
)

// The functions that Tenant Operator adds to those of sprig.

func onText(fn func(string) string) func(any) (any, error) {
	return func(v any) (any, error) {
		s, ok := v.(string)
		if !ok {
			return nil, fmt.Errorf("a %T is no text; the function toString converts it", v)
		}
		return fn(s), nil
	}
}

// ToHost is the function toHost: the host of a URL, or the part before the first
// colon of any other text.
func ToHost(s string) string {
	if u, err := url.Parse(s); err == nil && u.Host != "" {
		return u.Hostname()
	}
	before, _, _ := strings.Cut(s, ":")
	return before
}

// trunc63 shortens a text to the length of a label. Its result never ends within a
// character, nor with a separator.
func trunc63(s string) string {
	const most = 63
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strings.TrimRight(s[:cut], "-_.")
}

// withoutHalves drops the rest of a character that was cut in two.
func withoutHalves(out any, err error) (any, error) {
	if s, ok := out.(string); ok && !utf8.ValidString(s) {
		return strings.ToValidUTF8(s, ""), err
	}
	return out, err
}

// fromJSON reads JSON. Whole numbers stay whole, however long.
func fromJSON(v any) (any, error) {
	s, ok := v.(string)
	if !ok {
		return nil, fmt.Errorf("a %T is no text", v)
	}
	d := json.NewDecoder(bytes.NewReader([]byte(s)))
	d.UseNumber()
	var out any
	if err := d.Decode(&out); err != nil {
		return nil, fmt.Errorf("the text is no JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the text is no JSON: more text follows its end")
	}
	return withNumbers(out)
}

// withNumbers replaces texts of numbers by numbers.
func withNumbers(v any) (any, error) {
	var err error
	switch v := v.(type) {
	case json.Number:
		return number(string(v))
	case []any:
		for i := range v {
			if v[i], err = withNumbers(v[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for k := range v {
			if v[k], err = withNumbers(v[k]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}
