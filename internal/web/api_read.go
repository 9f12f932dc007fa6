package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/terrier-iac/terrier/internal/fault"
)

// knownQuery refuses unknown parameters: a misspelt filter must not
// match everything.
func knownQuery(raw string, known []parameter) error {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return errQuery("the query of the address is invalid")
	}
	for name, values := range query {
		i := slices.IndexFunc(known, func(p parameter) bool { return p.name == name })
		switch {
		case i < 0:
			return errQuery("there is no parameter %.80q here", name)
		case len(values) > 1 && !known[i].several:
			return errQuery("the parameter %s occurs %d times", name, len(values))
		}
	}
	return nil
}

func errQuery(format string, args ...any) error {
	return fault.New(fault.Invalid, "QueryInvalid", fmt.Errorf(format, args...))
}

// count reads a number, 0 if the parameter is missing.
func (c call) count(name string) (int, error) {
	text := c.Query(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, errQuery("the parameter %s takes a number, not %.80q", name, text)
	}
	return n, nil
}

// yes reads a boolean, false if the parameter is missing.
func (c call) yes(name string) (bool, error) {
	switch text := c.Query(name); text {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, errQuery("the parameter %s takes true or false, not %.80q", name, text)
	}
}

// readBody reads exactly one JSON value into v. Unknown fields are an error, since
// a misspelt field must not be ignored. A missing body is an empty
// object.
func readBody(r io.Reader, v any) error {
	raw, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fault.New(fault.Invalid, "BodyInvalid", bodyError(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fault.New(fault.Invalid, "BodyInvalid", errors.New("the body has content after its end"))
	}
	return nil
}

// bodyError describes the error of a body in terms of its JSON.
func bodyError(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		what := "the body"
		if wrong.Field != "" {
			what = fmt.Sprintf("the field %.80q", wrong.Field)
		}
		return fmt.Errorf("%s does not take a JSON %s", what, wrong.Value)
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok { // has no type of its own
		return fmt.Errorf("there is no field %.80s", name)
	}
	return errors.New("the body is not JSON")
}
