package rego

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// A policy may declare its parameters in the METADATA of its package:
//
//	# METADATA
//	# custom:
//	#   parameters:
//	#     regions: {type: array}
//	#     effect: {enum: [deny, hold, warn]}
//
// Then a parameter that it does not have is an error, and so is a value of another type. A
// misspelt parameter would otherwise leave the policy with its default, and a misspelt
// effect would leave it silent.

// parameter is what a policy declares of one of its parameters.
type parameter struct {
	typ   string // as JSON Schema has it; empty for any
	enum  []any
	items *parameter // of a list
}

// types are the types of parameters, in words.
var types = map[string]string{
	"array": "a list", "object": "an object", "string": "a text", "boolean": "true or false", "number": "a number", "integer": "a whole number",
}

// declared reads the parameters that the packages of the rules declare. It is nil if they
// declare none.
func declared(s *Set) (map[string]parameter, error) {
	if s.source.Format != Terrier {
		return nil, nil // input.parameters is only theirs
	}
	var out map[string]parameter
	for _, name := range slices.Sorted(maps.Keys(s.modules)) {
		for _, a := range s.modules[name].Annotations {
			given, has := a.Custom["parameters"]
			if a.Scope != "package" || !has {
				continue
			}
			all, ok := given.(map[string]any)
			if !ok {
				return nil, fmt.Errorf("%s: custom.parameters of the METADATA is no object: it has a member for each parameter, as regions: {type: array}", place(name, a.Location))
			}
			if out == nil {
				out = map[string]parameter{}
			}
			for _, parameterName := range slices.Sorted(maps.Keys(all)) {
				p, err := parameterOf(all[parameterName])
				if err != nil {
					return nil, fmt.Errorf("%s: custom.parameters.%s of the METADATA: %w", place(name, a.Location), parameterName, err)
				}
				out[parameterName] = p
			}
		}
	}
	return out, nil
}

func place(file string, l *ast.Location) string {
	if l == nil {
		return file
	}
	return fmt.Sprintf("%s:%d", file, l.Row)
}

func parameterOf(v any) (parameter, error) {
	fields, ok := v.(map[string]any)
	if !ok && v != nil {
		return parameter{}, errors.New("is no object, as {type: array}")
	}
	var p parameter
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		switch value := fields[name]; name {
		case "type":
			p.typ, _ = value.(string)
			if types[p.typ] == "" {
				return p, fmt.Errorf("the type is %v, which is none of %s", value, strings.Join(slices.Sorted(maps.Keys(types)), ", "))
			}
		case "enum":
			if p.enum, ok = value.([]any); !ok || len(p.enum) == 0 {
				return p, errors.New("the enum is no list of values")
			}
		case "items":
			items, err := parameterOf(value)
			if err != nil {
				return p, fmt.Errorf("items: %w", err)
			}
			p.items = &items
		case "title", "description":
		default:
			return p, fmt.Errorf("has the field %s, which is none of type, enum, items, title and description", name)
		}
	}
	return p, nil
}

// Parameters names the parameters that a policy declares, in order; nil if it declares
// none, and so takes any.
func Parameters(s *Set) []string { return slices.Sorted(maps.Keys(s.parameters)) }

// CheckParameters says which of the parameters that a policy is given it does not take.
func CheckParameters(s *Set, given any) error {
	if s.parameters == nil || given == nil {
		return nil
	}
	all, ok := given.(map[string]any)
	if !ok {
		return fmt.Errorf("parameters: is %s, and must be an object", typeOf(given))
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		p, known := s.parameters[name]
		if !known {
			return fmt.Errorf("parameters.%s: the policy has no such parameter; it has %s", name, enumerate(Parameters(s)))
		}
		if err := p.check("parameters."+name, all[name]); err != nil {
			return err
		}
	}
	return nil
}

// check says what is wrong with the value at a path, as hold[1].
func (p parameter) check(at string, v any) error {
	if p.typ != "" && !isOf(p.typ, v) {
		return fmt.Errorf("%s: is %s, and must be %s", at, typeOf(v), types[p.typ])
	}
	if list, ok := v.([]any); ok && p.items != nil {
		for i, item := range list {
			if err := p.items.check(fmt.Sprintf("%s[%d]", at, i), item); err != nil {
				return err
			}
		}
	}
	if p.enum == nil || slices.ContainsFunc(p.enum, func(one any) bool { return fmt.Sprint(one) == fmt.Sprint(v) }) {
		return nil
	}
	var may []string
	for _, one := range p.enum {
		may = append(may, fmt.Sprint(one))
	}
	return fmt.Errorf("%s: is %.40q, and must be one of %s", at, fmt.Sprint(v), enumerate(may))
}

func isOf(typ string, v any) bool {
	switch v := v.(type) {
	case []any:
		return typ == "array"
	case map[string]any:
		return typ == "object"
	case string:
		return typ == "string"
	case bool:
		return typ == "boolean"
	case json.Number:
		return typ == "number" || typ == "integer" && !strings.ContainsAny(v.String(), ".eE")
	case float64:
		return typ == "number" || typ == "integer" && v == float64(int64(v))
	case int64:
		return typ == "number" || typ == "integer"
	default:
		return false
	}
}

// typeOf is the type of a JSON value, in words.
func typeOf(v any) string {
	for _, typ := range []string{"array", "object", "string", "boolean", "number"} {
		if isOf(typ, v) {
			return types[typ]
		}
	}
	return "null"
}

// enumerate is a list as a text: a, b and c.
func enumerate(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}
