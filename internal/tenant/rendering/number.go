package rendering

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"github.com/terrier-iac/terrier/internal/meter"
)

// arithmetic are the functions in which sprig takes any text for the number 0. Here
// a text that is no number is an error.
var arithmetic = []string{
	"add1", "add", "sub", "div", "mod", "mul", "add1f", "addf", "subf", "divf", "mulf",
	"biggest", "max", "min", "maxf", "minf", "ceil", "floor", "round", "until", "untilStep", "seq", "toDecimal",
}

// numbers converts the texts among args to numbers.
func numbers(args []any) ([]any, error) {
	out := make([]any, len(args))
	for i, a := range args {
		out[i] = a
		s, ok := a.(string)
		if !ok {
			continue
		}
		n, err := number(s)
		if err != nil {
			return nil, err
		}
		out[i] = n
	}
	return out, nil
}

// number reads an int64 or, if that cannot hold it, a float64.
func number(s string) (any, error) {
	t := strings.TrimSpace(s)
	if n, err := strconv.ParseInt(t, 10, 64); err == nil {
		return n, nil
	}
	if strings.ContainsAny(t, "xXpP_") { // forms that only Go has
		return nil, notA("number", s)
	}
	f, err := strconv.ParseFloat(t, 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, notA("number", s)
	}
	return f, nil
}

func notA(what, s string) error {
	if s == "" {
		return fmt.Errorf("an empty text is no %s; default gives another value for it", what)
	}
	const most = 64
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return fmt.Errorf("%q is no %s", s, what)
}

// integer returns a number of any width that is whole by its type.
func integer(v any) (int64, bool) {
	switch v := v.(type) {
	case int:
		return int64(v), true
	case int64:
		return v, true
	}
	switch r := reflect.ValueOf(v); {
	case !r.IsValid():
		return 0, false
	case r.CanInt():
		return r.Int(), true
	case r.CanUint() && r.Uint() <= math.MaxInt64:
		return int64(r.Uint()), true
	}
	return 0, false
}

// whole converts a value to a whole number; a fraction as Go does, by dropping the
// digits behind the point. A text must be a whole number.
func whole(v any) (int64, error) {
	if n, ok := integer(v); ok {
		return n, nil
	}
	switch v := v.(type) {
	case bool:
		if v {
			return 1, nil
		}
		return 0, nil
	case float64:
		if math.Abs(v) >= 1<<63 {
			return 0, fmt.Errorf("%s is too great", decimal(v))
		}
		return int64(v), nil
	case string:
		n, err := number(v)
		if err != nil {
			return 0, notA("whole number", v)
		}
		if f, ok := n.(float64); ok {
			if f != math.Trunc(f) || math.Abs(f) >= 1<<53 {
				return 0, notA("whole number", v)
			}
			return int64(f), nil
		}
		return n.(int64), nil
	case nil:
		return 0, meter.ErrAbsent
	}
	return 0, fmt.Errorf("a %T is no whole number", v)
}

func fraction(v any) (float64, error) {
	if n, ok := integer(v); ok {
		return float64(n), nil
	}
	switch v := v.(type) {
	case float64:
		return v, nil
	case bool:
		n, err := whole(v)
		return float64(n), err
	case string:
		n, err := number(v)
		if f, ok := n.(float64); ok || err != nil {
			return f, err
		}
		return float64(n.(int64)), nil
	case nil:
		return 0, meter.ErrAbsent
	}
	return 0, fmt.Errorf("a %T is no number", v)
}

// truth converts the values that tables hold for true and false.
func truth(v any) (bool, error) {
	switch v := v.(type) {
	case bool:
		return v, nil
	case string:
		switch strings.ToLower(strings.TrimSpace(v)) {
		case "true", "yes", "on", "1":
			return true, nil
		case "false", "no", "off", "0":
			return false, nil
		}
		return false, notA("truth value: true, yes, on, 1, false, no, off or 0", v)
	case nil:
		return false, meter.ErrAbsent
	}
	f, err := fraction(v)
	return f != 0, err
}

// decimal writes a number without an exponent.
func decimal(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// ToInteger, ToNumber and ToBoolean convert a rendered value to the type of its
// field.
func ToInteger(v any) (int64, error) {
	if f, ok := v.(float64); ok && f != math.Trunc(f) {
		return 0, fmt.Errorf("%s is no whole number", decimal(f))
	}
	if _, ok := v.(bool); ok {
		return 0, errors.New("a truth value is no whole number")
	}
	return whole(v)
}

// ToNumber returns an int64 or a float64.
func ToNumber(v any) (any, error) {
	switch v := v.(type) {
	case string:
		return number(v)
	case int64, float64:
		return v, nil
	}
	return nil, fmt.Errorf("%v is no number", v)
}

// ToBoolean returns a truth value.
func ToBoolean(v any) (bool, error) { return truth(v) }

// ToText returns a value as a text.
func ToText(v any) string {
	if f, ok := v.(float64); ok {
		return decimal(f)
	}
	return fmt.Sprint(v)
}
