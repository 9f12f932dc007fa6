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
			return nil, fmt.Errorf("a %T is no text; toString makes one of it", v)
		}
		return fn(s), nil
	}
}

// ToHost is the function of that name: the host of an address, or what is before the first colon of a text
// that is none.
func ToHost(s string) string {
	if u, err := url.Parse(s); err == nil && u.Host != "" {
		return u.Hostname()
	}
	before, _, _ := strings.Cut(s, ":")
	return before
}

// trunc63 cuts to what a label can hold. What it cuts ends as names may: not
// within a character, and not with a separator.
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

// withoutHalves takes away what is left of a character that was cut in two.
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
		return nil, errors.New("the text is no JSON: there is more after its end")
	}
	return settled(out)
}

// settled has numbers in place of their texts.
func settled(v any) (any, error) {
	var err error
	switch v := v.(type) {
	case json.Number:
		return number(string(v))
	case []any:
		for i := range v {
			if v[i], err = settled(v[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for k := range v {
			if v[k], err = settled(v[k]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}
