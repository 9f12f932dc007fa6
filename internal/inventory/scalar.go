package inventory

import (
	"encoding/json"
	"math/big"
	"regexp"
	"strconv"
	"strings"
)

// The plain scalars of YAML 1.1 with the patterns of PyYAML's resolver. They differ from
// YAML 1.2: yes, no, on and off are truth values, 0755 is octal, 1e3 is a text.
var (
	boolPattern   = regexp.MustCompile(`^(?:yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF)$`)
	nullPattern   = regexp.MustCompile(`^(?:~|null|Null|NULL|)$`)
	intPattern    = regexp.MustCompile(`^(?:[-+]?0b[0-1_]+|[-+]?0[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+)$`)
	base60Pattern = regexp.MustCompile(`^(?:[-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*)$`)
	floatPattern  = regexp.MustCompile(`^(?:[-+]?(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?)$`)
	oddPattern    = regexp.MustCompile(`^(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$`)
)

// unfit is a value that Ansible takes for something that the author hardly meant, or that
// JSON does not have. It is an error where it is used, and none where it is not.
type unfit struct{ why string }

// plain resolves a plain scalar.
func plain(text string) any {
	switch {
	case nullPattern.MatchString(text):
		return nil
	case boolPattern.MatchString(text):
		return isTrue(text)
	case intPattern.MatchString(text):
		return whole(text)
	case base60Pattern.MatchString(text):
		return unfit{strconv.Quote(text) + " is a number with the base 60 for Ansible: put it in quotes"}
	case floatPattern.MatchString(text):
		return fraction(text)
	case oddPattern.MatchString(text):
		return unfit{text + " is no number of JSON"}
	}
	return text // times included: their text is what a module gets
}

func isTrue(text string) bool {
	switch strings.ToLower(text) {
	case "yes", "true", "on":
		return true
	}
	return false
}

// whole is an integer with all its digits.
func whole(text string) any {
	digits := strings.ReplaceAll(text, "_", "")
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign = "-"
	}
	digits = strings.TrimLeft(digits, "+-")
	base := 10
	switch {
	case strings.HasPrefix(digits, "0b"):
		digits, base = digits[2:], 2
	case strings.HasPrefix(digits, "0x"):
		digits, base = digits[2:], 16
	case len(digits) > 1 && digits[0] == '0':
		digits, base = digits[1:], 8
	}
	n, ok := new(big.Int).SetString(sign+digits, base)
	if !ok {
		return unfit{strconv.Quote(text) + " is no whole number: put it in quotes"}
	}
	return json.Number(n.String())
}

// fraction is a number with a point in the grammar of JSON.
func fraction(text string) any {
	t := strings.TrimPrefix(strings.ReplaceAll(text, "_", ""), "+")
	sign := ""
	if strings.HasPrefix(t, "-") {
		sign, t = "-", t[1:]
	}
	mantissa, exponent := t, ""
	if i := strings.IndexAny(t, "eE"); i >= 0 {
		mantissa, exponent = t[:i], t[i:]
	}
	before, after, _ := strings.Cut(mantissa, ".")
	before = strings.TrimLeft(before, "0")
	if before == "" {
		before = "0"
	}
	if after == "" {
		after = "0"
	}
	out := sign + before + "." + after + exponent
	if !json.Valid([]byte(out)) {
		return unfit{strconv.Quote(text) + " is no number of JSON: put it in quotes"}
	}
	return json.Number(out)
}
