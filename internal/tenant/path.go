package tenant

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Path is one entry of ignoreFields: names of fields (string), numbers of
// elements (int), and Any.
type Path []any

// Any is a step that means all fields, or all elements.
type Any struct{}

// pathStep matches the first step of the rest of an entry.
var pathStep = regexp.MustCompile(`^(?:\.?([A-Za-z0-9_-]+|\*)|\[(\d+|\*)\]|\['([^']+)'\]|\["([^"]+)"\])`)

// ParsePath reads an entry of ignoreFields: a JSONPath of names, ['quoted names'],
// [0] and [*]; the leading $ may be left out.
func ParsePath(entry string) (Path, error) {
	var p Path
	for rest := strings.TrimPrefix(entry, "$"); rest != ""; {
		m := pathStep.FindStringSubmatch(rest)
		if m == nil {
			return nil, fmt.Errorf("%q is no path from %q on: write it like $.spec.replicas, $.spec.template.spec.containers[*].image or $.metadata.annotations['example.com/a']", entry, rest)
		}
		rest = rest[len(m[0]):]
		switch {
		case m[1] == "*" || m[2] == "*":
			p = append(p, Any{})
		case m[2] != "":
			n, err := strconv.Atoi(m[2])
			if err != nil {
				return nil, fmt.Errorf("%q: %w", entry, err)
			}
			p = append(p, n)
		default:
			p = append(p, m[1]+m[3]+m[4])
		}
	}
	switch {
	case p.identity():
		return nil, fmt.Errorf("%q covers what identifies the object, so that it cannot be left to other managers: name a field of spec, or one label or annotation like $.metadata.annotations['example.com/a']", entry)
	case len(p) > 0:
		return p, nil
	case strings.TrimSpace(entry) == "":
		return nil, errors.New("it is empty")
	default:
		return nil, fmt.Errorf("%q names no field", entry)
	}
}

// identityFields are the fields of metadata that say which object it is, and whose.
var identityFields = []any{Any{}, "name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "ownerReferences"}

// identity reports whether p covers fields that identify the object.
func (p Path) identity() bool {
	if len(p) == 0 {
		return false
	}
	switch p[0] {
	case Any{}, "apiVersion", "kind":
		return true
	case "metadata":
		return len(p) == 1 || slices.Contains(identityFields, p[1])
	}
	return false
}
