package tenant

import (
	"fmt"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/tenant/rendering"
)

// place is a field or an element in an object.
type place struct {
	field  string
	index  int
	inList bool // an element of a list: index counts
	up     *place
}

// path is the place as schemas name it.
func (p place) path() []string {
	var path []string
	for at := &p; at != nil; at = at.up {
		if at.inList {
			path = append(path, "[]")
		} else {
			path = append(path, at.field)
		}
	}
	slices.Reverse(path)
	return path
}

// String is the place as messages name it, from the field spec of the resource on.
func (p place) String() string {
	var parts []string
	for at := &p; at != nil; at = at.up {
		if at.inList {
			parts = append(parts, fmt.Sprintf("[%d]", at.index))
		} else {
			parts = append(parts, at.field, ".")
		}
	}
	slices.Reverse(parts)
	return "spec" + strings.Join(parts, "")
}

// as converts a rendered value to the type of its place.
func as(v any, t Type) (any, error) {
	switch t {
	case Unknown:
		return v, nil
	case Text:
		return rendering.ToText(v), nil
	case Integer:
		return rendering.ToInteger(v)
	case Number:
		return rendering.ToNumber(v)
	case Boolean:
		return rendering.ToBoolean(v)
	case IntOrString:
		if n, err := rendering.ToInteger(v); err == nil {
			return n, nil
		}
		return rendering.ToText(v), nil
	default:
		return nil, fmt.Errorf("there is no type %d", t)
	}
}

// textMaps are maps of texts wherever they are.
var textMaps = []string{"labels", "annotations", "matchLabels", "nodeSelector"}

// knownType is the type of well-known places, for kinds without a schema.
func knownType(kind string, path []string) Type {
	n := len(path)
	isData := path[0] == "data" || path[0] == "stringData" || path[0] == "binaryData"
	switch {
	case path[0] == "metadata",
		n > 1 && slices.Contains(textMaps, path[n-2]),
		isData && (kind == "ConfigMap" || kind == "Secret"),
		n > 4 && path[n-1] == "value" && path[n-3] == "env" && (path[n-5] == "containers" || path[n-5] == "initContainers"):
		return Text
	}
	return Unknown
}
