package prerequisite

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/terrier-iac/terrier/internal/plural"
)

// Value is what a value has to be: a text, a number, true or false. Two values are equal if
// they are written alike: 100 and "100" are.
type Value struct{ text string }

// NewValue is the value that is written so.
func NewValue(text string) *Value { return &Value{text} }

// UnmarshalJSON implements json.Unmarshaler.
func (v *Value) UnmarshalJSON(raw []byte) error {
	var is any
	in := json.NewDecoder(strings.NewReader(string(raw)))
	in.UseNumber()
	if err := in.Decode(&is); err != nil {
		return err
	}
	text, ok := Text(is)
	if !ok {
		return errors.New("equals is a list, an object or nothing, and must be a text, a number, true or false")
	}
	v.text = text
	return nil
}

// String returns the value as it is written.
func (v Value) String() string { return v.text }

// Text is a value of JSON or YAML as it is written; not ok of a list, an object or nothing.
func Text(is any) (text string, ok bool) {
	switch v := is.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), true
	case json.Number:
		if _, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			return string(v), true
		}
		f, err := v.Float64()
		return strconv.FormatFloat(f, 'f', -1, 64), err == nil
	default:
		return "", false
	}
}

// Reason is the stable name of what is known of a prerequisite: the reason of its condition.
type Reason string

// The reasons.
const (
	Met       Reason = "Met"
	NotFound  Reason = "NotFound"  // it, or the value in it, does not exist
	NotReady  Reason = "NotReady"  // its condition is not True
	Different Reason = "Different" // its value is another one
	NoAnswer  Reason = "NoAnswer"  // nothing answers there, or not as it has to
	Denied    Reason = "Denied"    // the stack or the controller may not look
	Invalid   Reason = "Invalid"   // it cannot be read or compared
	Checking  Reason = "Checking"  // it is being asked, and was not before

	// TooMany is of one that is not asked yet: the stacks of its namespace ask too many systems.
	TooMany Reason = "TooManyQuestions"
)

// Result is what is known of one prerequisite.
type Result struct {
	Name    string
	Reason  Reason
	Message string // a clause without a full stop; the same for the same situation
	Stale   bool   // it was so a while ago, and is being asked again
}

// OK reports whether the prerequisite is met.
func (r Result) OK() bool { return r.Reason == Met }

// Found is what was found at a path: values, and nothing if there is none.
type Found struct {
	What   string // whose value it is, for messages: the file inventory/vlans.yaml
	Path   string
	Values []any
	Secret bool // the values must not be shown
}

// Judge compares what was found with what has to be there. A path that leads to several
// values is met by any of them.
func Judge(name string, f Found, equals *Value, absent bool) Result {
	at := fmt.Sprintf("%s at %s", f.What, f.Path)
	switch {
	case absent && len(f.Values) == 0:
		return Result{Name: name, Reason: Met, Message: at + " has nothing"}
	case absent:
		return Result{Name: name, Reason: Different, Message: at + " has a value, and must have none"}
	case len(f.Values) == 0:
		return Result{Name: name, Reason: NotFound, Message: at + " has no value"}
	case equals == nil:
		return Result{Name: name, Reason: Met, Message: at + " has a value"}
	}
	var others []string
	for _, v := range f.Values {
		text, ok := Text(v)
		if !ok {
			text = "a list or an object"
		}
		if ok && text == equals.text {
			return Result{Name: name, Reason: Met, Message: fmt.Sprintf("%s is %s", at, quoted(equals.text))}
		}
		others = append(others, quoted(text))
	}
	if f.Secret {
		return Result{Name: name, Reason: Different, Message: fmt.Sprintf("%s is not %s", at, quoted(equals.text))}
	}
	return Result{Name: name, Reason: Different, Message: fmt.Sprintf("%s is %s, and must be %s", at, strings.Join(others[:min(len(others), shownValues)], ", "), quoted(equals.text))}
}

// shownValues is how many values of several a message has.
const shownValues = 3

// quoted is a value for a message, cut.
func quoted(text string) string { return fmt.Sprintf("%.60q", text) }

// Unmet says what a stack waits for; empty if all is there. What was there when it was asked
// last counts until it has been asked again: a stack that waits for its turn keeps its place,
// and a run begins on no such answer.
func Unmet(all []Result) string {
	var missing, asked []string
	for _, r := range all {
		switch {
		case r.Reason == Checking:
			asked = append(asked, r.Name)
		case !r.OK():
			missing = append(missing, r.Name+": "+r.Message)
		}
	}
	switch {
	case len(missing) > 0:
		next := "Terrier checks again by itself"
		if Refused(all) {
			next = "Change what the message names, or remove the prerequisite from the annotation terrier.dev/prerequisites"
		}
		return fmt.Sprintf("Waiting for %s: %s. %s", plural.Count(len(missing), "prerequisite"), strings.Join(missing, "; "), next)
	case len(asked) > 0:
		return "Checking the prerequisites " + strings.Join(asked, ", ")
	default:
		return ""
	}
}

// Refused reports whether a user has to change something before any prerequisite that is not
// met can be: what they may not look at, or cannot read.
func Refused(all []Result) bool {
	refused := false
	for _, r := range all {
		switch r.Reason {
		case Met:
		case Denied, Invalid:
			refused = true
		default:
			return false
		}
	}
	return refused
}
