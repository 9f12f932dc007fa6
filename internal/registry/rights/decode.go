package rights

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// strict decodes a part of the file. A field that the type does not have is an error, and
// each error has the line in the file.
func strict(part []byte, into any, at place) error {
	decoder := json.NewDecoder(bytes.NewReader(part))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	if err == nil {
		return nil
	}
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		field := kind.Field[strings.LastIndex(kind.Field, ".")+1:]
		return fmt.Errorf("line %d: %s is %s, and has to be %s", at.line(field), orEntry(field), given(kind.Value), wanted(kind.Type.Kind()))
	}
	text := strings.TrimPrefix(err.Error(), "json: ")
	var field string
	if quoted, ok := strings.CutPrefix(text, "unknown field "); ok {
		if field, err = strconv.Unquote(quoted); err != nil {
			field = ""
		}
	}
	return fmt.Errorf("line %d: %s", at.line(field), text)
}

func orEntry(field string) string {
	if field == "" {
		return "the entry"
	}
	return field
}

// given names a value as a user has written it.
func given(value string) string {
	switch value, _, _ := strings.Cut(value, " "); value {
	case "string":
		return "a text"
	case "array":
		return "a list"
	case "object":
		return "a mapping"
	case "bool":
		return "true or false"
	default:
		return "a " + value
	}
}

func wanted(kind reflect.Kind) string {
	switch kind {
	case reflect.Slice:
		return `a list, as ["a"]`
	case reflect.String:
		return "a text"
	default:
		return "a mapping"
	}
}

// place is a part of the file as it was written. It is nil if it is not known.
type place struct{ node *yaml.Node }

// lines finds the lines of a file.
func lines(text []byte) place {
	var d yaml.Node
	if yaml.Unmarshal(text, &d) != nil || len(d.Content) == 0 {
		return place{}
	}
	return place{d.Content[0]}
}

// entry is an entry of a list.
func (p place) entry(list string, number int) place {
	if at := p.value(list); at != nil && number < len(at.Content) {
		return place{at.Content[number]}
	}
	return p
}

func (p place) value(key string) *yaml.Node {
	if p.node == nil {
		return nil
	}
	for i := 0; i+1 < len(p.node.Content); i += 2 {
		if p.node.Content[i].Value == key {
			return p.node.Content[i+1]
		}
	}
	return nil
}

// line is that of a field in this part of the file, else that of the part.
func (p place) line(field string) int {
	if p.node == nil {
		return 1
	}
	if at := find(p.node, field); field != "" && at != nil {
		return at.Line
	}
	return p.node.Line
}

// find finds the key with a name.
func find(in *yaml.Node, name string) *yaml.Node {
	for i, n := range in.Content {
		if in.Kind == yaml.MappingNode && i%2 == 0 && n.Value == name {
			return n
		}
		if at := find(n, name); at != nil {
			return at
		}
	}
	return nil
}
