package patch

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/terrier-iac/terrier/internal/plan"
)

// step leads into a value: by a name, by the number of an element, or into the document that a
// string holds.
type step struct {
	name   string
	number int // of an element; negative if it is a name
	json   bool
}

var pathPart = regexp.MustCompile(`^(?:\.?([\pL_][\w-]*)|\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]|(\(json\)))`)

// parsePath reads the path of an attribute as a plan document has it.
func parsePath(text string) ([]step, bool) {
	var out []step
	for rest := text; rest != ""; {
		m := pathPart.FindStringSubmatch(rest)
		if m == nil {
			return nil, false
		}
		rest = rest[len(m[0]):]
		switch {
		case m[4] != "":
			out = append(out, step{json: true, number: -1})
		case m[3] != "":
			name, err := strconv.Unquote(m[3])
			if err != nil {
				return nil, false
			}
			out = append(out, step{name: name, number: -1})
		case m[2] != "":
			n, err := strconv.Atoi(m[2])
			if err != nil {
				return nil, false
			}
			out = append(out, step{number: n})
		default:
			out = append(out, step{name: m[1], number: -1})
		}
	}
	return out, len(out) > 0 && out[0].name != ""
}

// pathOf is the inverse of parsePath.
func pathOf(steps []step) string {
	var b strings.Builder
	for i, s := range steps {
		switch {
		case s.json:
			b.WriteString("(json)")
		case s.number >= 0:
			fmt.Fprintf(&b, "[%d]", s.number)
		case identifier.MatchString(s.name):
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(s.name)
		default:
			fmt.Fprintf(&b, "[%q]", s.name)
		}
	}
	return b.String()
}

var identifier = regexp.MustCompile(`^[\pL_][\w-]*$`)

// lastIndex is the place of the last number in a path, negative if there is none.
func lastIndex(steps []step) int {
	for i := len(steps) - 1; i >= 0; i-- {
		if steps[i].number >= 0 {
			return i
		}
	}
	return -1
}

// holdsMask reports whether a value hides something, so that it cannot be written.
func holdsMask(v any) bool {
	switch v := v.(type) {
	case string:
		return strings.Contains(v, plan.Mask)
	case map[string]any:
		for name, item := range v {
			if strings.Contains(name, plan.Mask) || holdsMask(item) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, holdsMask)
	}
	return false
}

// valueOf is a value of a plan document as the language has it.
func valueOf(v any) (cty.Value, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return cty.NilVal, err
	}
	t, err := ctyjson.ImpliedType(raw)
	if err != nil {
		return cty.NilVal, err
	}
	return ctyjson.Unmarshal(raw, t)
}

// written is a value as a literal.
func written(v any) (string, error) {
	value, err := valueOf(v)
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(hclwrite.TokensForValue(value).Bytes())), nil
}

// means reports whether a literal of a configuration means the value that a plan has: the engine
// converts numbers and texts, and leaves out what is null.
func means(literal cty.Value, v any) bool {
	if !literal.IsWhollyKnown() {
		return false
	}
	if literal.IsNull() || v == nil {
		return literal.IsNull() && v == nil
	}
	value, err := valueOf(v)
	if err != nil {
		return false
	}
	return flat(literal) == flat(value)
}

// flat is a text that is the same for values that convert into each other.
func flat(v cty.Value) string {
	switch {
	case v.IsNull():
		return ""
	case v.Type() == cty.String:
		return strconv.Quote(v.AsString())
	case v.Type() == cty.Number:
		return strconv.Quote(v.AsBigFloat().Text('f', -1))
	case v.Type() == cty.Bool:
		return strconv.Quote(strconv.FormatBool(v.True()))
	}
	var parts []string
	object := v.Type().IsObjectType() || v.Type().IsMapType()
	for it := v.ElementIterator(); it.Next(); {
		key, item := it.Element()
		text := flat(item)
		if object {
			if text == "" {
				continue
			}
			text = strconv.Quote(key.AsString()) + ":" + text
		}
		parts = append(parts, text)
	}
	if object {
		slices.Sort(parts)
		return "{" + strings.Join(parts, ",") + "}"
	}
	return "[" + strings.Join(parts, ",") + "]"
}
