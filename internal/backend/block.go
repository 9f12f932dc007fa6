package backend

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// Block is a backend block of the engine: its type, and its arguments as JSON has them.
type Block struct {
	Type          string         `json:"type"`
	Configuration map[string]any `json:"configuration,omitempty"`
}

// Placeholder is the file that the supervisor fills with a block.
func Placeholder() workdir.File {
	return workdir.File{Path: workdir.BackendOverridePath, Mode: 0o600, Content: []byte("# The supervisor of a run writes the backend of the stack here.\n")}
}

// File is the file of a run that configures the backend.
func (b Block) File() (workdir.File, error) {
	inside, err := b.HCL()
	f := Placeholder()
	f.Content = []byte("terraform {\n" + inside + "}\n")
	return f, err
}

// HCL is the block as configuration. Every text in it is literal.
func (b Block) HCL() (string, error) {
	if !identifier(b.Type) {
		return "", fault.New(fault.Invalid, "BackendInvalid", fmt.Errorf("%.80q is no type of a backend", b.Type))
	}
	var out strings.Builder
	fmt.Fprintf(&out, "  backend %s {\n", quote(b.Type))
	for _, name := range slices.Sorted(maps.Keys(b.Configuration)) {
		if !identifier(name) {
			return "", fault.New(fault.Invalid, "BackendInvalid", fmt.Errorf("%.80q is no name of an argument of the backend %s", name, b.Type))
		}
		text, err := literal(b.Configuration[name], 0)
		if err != nil {
			return "", fault.New(fault.Invalid, "BackendInvalid", fmt.Errorf("the argument %s of the backend %s: %w", name, b.Type, err))
		}
		fmt.Fprintf(&out, "    %s = %s\n", name, text)
	}
	out.WriteString("  }\n")
	return out.String(), nil
}

// Text is an argument that is a text; empty if it is none.
func (b Block) Text(name string) string {
	s, _ := b.Configuration[name].(string)
	return s
}

// deepest bounds how deep a value is nested.
const deepest = 8

func literal(v any, depth int) (string, error) {
	if depth > deepest {
		return "", fmt.Errorf("it is nested more than %d levels deep", deepest)
	}
	switch v := v.(type) {
	case string:
		return quote(v), nil
	case bool:
		return strconv.FormatBool(v), nil
	case float64:
		data, err := json.Marshal(v)
		return string(data), err
	case []any:
		parts := make([]string, len(v))
		for i, one := range v {
			var err error
			if parts[i], err = literal(one, depth+1); err != nil {
				return "", err
			}
		}
		return "[" + strings.Join(parts, ", ") + "]", nil
	case map[string]any:
		var parts []string
		for _, key := range slices.Sorted(maps.Keys(v)) {
			text, err := literal(v[key], depth+1)
			if err != nil {
				return "", err
			}
			parts = append(parts, "("+quote(key)+") = "+text)
		}
		return "{ " + strings.Join(parts, ", ") + " }", nil
	default:
		return "", fmt.Errorf("it is %T, which is none of text, number, boolean, list and object", v)
	}
}

// quote makes a literal of a text: neither a template nor the end of it.
func quote(s string) string {
	var out strings.Builder
	out.WriteByte('"')
	for _, r := range strings.ToValidUTF8(s, "\ufffd") {
		switch {
		case r == '"' || r == '\\':
			out.WriteByte('\\')
			out.WriteRune(r)
		case r == '$' || r == '%':
			// ${ and %{ begin templates, and $${ is a text. The escape is none of them.
			fmt.Fprintf(&out, `\u%04x`, r)
		case r < ' ' || r == 0x7f || r == '\u2028' || r == '\u2029' || r == '\ufeff':
			fmt.Fprintf(&out, `\u%04x`, r)
		default:
			out.WriteRune(r)
		}
	}
	out.WriteByte('"')
	return out.String()
}

func identifier(s string) bool {
	return s != "" && len(s) <= 64 && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_' && r != '-'
	}) && s[0] >= 'a' && s[0] <= 'z'
}
