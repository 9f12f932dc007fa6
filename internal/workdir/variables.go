package workdir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/terrier-iac/terrier/internal/fault"
)

// Variables are the values of variables, each as JSON.
type Variables map[string]json.RawMessage

// TFVars returns the file of variables. In it every string is a literal to the
// engine: templates and escapes are not looked for in JSON variables files.
func TFVars(vars Variables) (File, error) {
	var b bytes.Buffer
	b.WriteString("{")
	for i, name := range slices.Sorted(maps.Keys(vars)) {
		if name == "" {
			return File{}, invalid(errors.New("a variable has no name"))
		}
		value := vars[name]
		if !json.Valid(value) {
			return File{}, invalid(fmt.Errorf("the value of variable %q is not JSON", name))
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n  ")
		b.Write(text(name))
		b.WriteString(": ")
		b.Write(bytes.TrimSpace(value))
	}
	b.WriteString("\n}\n")
	// 0600: unlike upstream's, this file is private.
	return File{Path: VariablesPath, Mode: 0o600, Content: b.Bytes()}, nil
}

// Inputs are the values that a stack is given, from the weakest to the
// strongest: Values, then Vars, then From, and in each the later one.
type Inputs struct {
	Values json.RawMessage // one variable of the name values; see Values
	Vars   []Var
	From   []From

	Settable []string // reserved environment variables that a stack may set
}

// Var is one variable with its value.
type Var struct {
	Name  string
	Value json.RawMessage
}

// From is the content of a Secret or a ConfigMap after its keys were chosen
// and renamed.
type From struct {
	Name   string // for messages: Secret cloud-credentials
	Secret bool
	Data   map[string][]byte
}

// Resolved is what Inputs come to for one module.
type Resolved struct {
	Vars        Variables
	Environment map[string]string
	Secrets     []string // every value that came from a Secret, for a redactor
	Dropped     []string // keys with binary values that the module has no variable for
}

// Resolve distributes inputs over variables and environment. All values of a
// Secret or ConfigMap are text; one that is JSON is passed as such to a
// variable whose declared type is a collection or structure, since the engine
// itself only turns text into numbers and booleans.
func (in Inputs) Resolve(declared map[string]Variable) (Resolved, error) {
	out := Resolved{Vars: Variables{}, Environment: map[string]string{}}
	if len(in.Values) > 0 {
		out.Vars["values"] = in.Values
	}
	for _, v := range in.Vars {
		out.Vars[v.Name] = v.Value
	}
	for _, f := range in.From {
		if err := out.from(f, declared, in.Settable); err != nil {
			return Resolved{}, err
		}
	}
	return out, nil
}

func (r *Resolved) from(f From, declared map[string]Variable, settable []string) error {
	keys := slices.Sorted(maps.Keys(f.Data))
	var environment []string
	if f.Secret {
		keys, environment = splitEnvironment(declared, keys)
		for _, name := range environment {
			if err := CheckEnvironment(name, settable...); err != nil {
				return fmt.Errorf("reading %s: %w", f.Name, err)
			}
		}
	}
	for _, key := range environment {
		value := string(f.Data[key])
		if bytes.IndexByte(f.Data[key], 0) >= 0 {
			return invalid(fmt.Errorf("reading %s: the value of %s holds a NUL byte and cannot be an environment variable", f.Name, key))
		}
		r.Environment[key] = value
		r.Secrets = append(r.Secrets, value)
	}
	for _, key := range keys {
		value := f.Data[key]
		if f.Secret {
			r.Secrets = append(r.Secrets, string(value))
		}
		v, isDeclared := declared[key]
		switch {
		case utf8.Valid(value):
			r.Vars[key] = typed(value, v)
		case isDeclared:
			return invalid(fmt.Errorf("reading %s: the value of %s is not text, and a variable can only hold text", f.Name, key))
		default:
			r.Dropped = append(r.Dropped, key)
		}
	}
	return nil
}

func typed(value []byte, v Variable) json.RawMessage {
	trimmed := bytes.TrimSpace(value)
	structured := len(trimmed) > 0 && (trimmed[0] == '[' || trimmed[0] == '{')
	if v.Complex && structured && json.Valid(trimmed) {
		return trimmed
	}
	return text(string(value))
}

// text returns s as JSON, without escaping what only HTML needs escaped.
func text(s string) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return json.RawMessage(`""`) // a string always encodes
	}
	return bytes.TrimSpace(b.Bytes())
}

func invalid(err error) error { return fault.New(fault.Invalid, "VarsGenerationFailed", err) }
