package plan

import "encoding/json"

// unwrapped returns the attributes of an instance without the wrappers that a state
// has around values of a dynamic type: {"type": T, "value": V} stands for V.
func unwrapped(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if inner, ok := dynamicValue(v); ok {
			return inner // its type is known, so nothing in it is wrapped
		}
		out := make(map[string]any, len(v))
		for key, item := range v {
			out[key] = unwrapped(item)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = unwrapped(item)
		}
		return out
	default:
		return v
	}
}

// dynamicValue is what m wraps. An object of the module with the same two
// attributes is told apart by its type, which must be one of the engine's and the
// value's.
func dynamicValue(m map[string]any) (any, bool) {
	kind, typed := m["type"]
	value, valued := m["value"]
	if len(m) != 2 || !typed || !valued || !isOfType(value, kind) {
		return nil, false
	}
	return value, true
}

// isOfType reports whether a value may be of a type as a state writes it.
func isOfType(value, kind any) bool {
	switch kind := kind.(type) {
	case string:
		switch value.(type) {
		case nil:
			return kind == "string" || kind == "number" || kind == "bool" || kind == "dynamic"
		case string:
			return kind == "string"
		case json.Number:
			return kind == "number"
		case bool:
			return kind == "bool"
		}
	case []any:
		if len(kind) != 2 && len(kind) != 3 { // an object with optional attributes names them in a third part
			return false
		}
		switch value.(type) {
		case nil:
			return true
		case []any:
			return kind[0] == "list" || kind[0] == "set" || kind[0] == "tuple"
		case map[string]any:
			return kind[0] == "map" || kind[0] == "object"
		}
	}
	return false
}
