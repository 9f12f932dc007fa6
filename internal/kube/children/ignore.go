package children

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/terrier-iac/terrier/internal/fault"
)

// path is one entry of ignoreFields: names of fields, numbers of elements, and
// "*" for all of either.
type path []any

type wildcard struct{}

// step matches the beginning of what is left of an entry.
var step = regexp.MustCompile(`^(?:\.?([A-Za-z0-9_-]+|\*)|\[(\d+|\*)\]|\['([^']+)'\]|\["([^"]+)"\])`)

// ParseIgnore says what is wrong with an entry of ignoreFields, if anything is.
// Entries are JSONPaths of names, ['quoted names'], [0] and [*]; the leading $ may
// be left out.
func ParseIgnore(entry string) error {
	_, err := parse(entry)
	return err
}

func parse(entry string) (path, error) {
	var p path
	for rest := strings.TrimPrefix(entry, "$"); rest != ""; {
		m := step.FindStringSubmatch(rest)
		if m == nil {
			return nil, fault.New(fault.Invalid, "ValidationFailed", fmt.Errorf("ignoreFields: %q cannot be read from %q on: write it like $.spec.replicas, $.spec.template.spec.containers[0].image or $.metadata.annotations['example.com/a']", entry, rest))
		}
		rest = rest[len(m[0]):]
		switch {
		case m[1] == "*" || m[2] == "*":
			p = append(p, wildcard{})
		case m[2] != "":
			n, err := strconv.Atoi(m[2])
			if err != nil {
				return nil, fault.New(fault.Invalid, "ValidationFailed", fmt.Errorf("ignoreFields: %q: %w", entry, err))
			}
			p = append(p, n)
		default:
			p = append(p, m[1]+m[3]+m[4])
		}
	}
	if len(p) == 0 {
		return nil, fault.New(fault.Invalid, "ValidationFailed", fmt.Errorf("ignoreFields: %q names no field", entry))
	}
	return p, nil
}

func paths(entries []string) ([]path, error) {
	all := make([]path, 0, len(entries))
	for _, e := range entries {
		p, err := parse(e)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// keep makes a field of desired what it is in live, absent if it is absent there.
func (p path) keep(desired, live any) {
	switch d := desired.(type) {
	case map[string]any:
		l, _ := live.(map[string]any)
		for _, name := range p.names(d, l) {
			p.keepField(d, l, name)
		}
	case []any:
		l, _ := live.([]any)
		for i := range d {
			if _, all := p[0].(wildcard); !all && p[0] != i {
				continue
			}
			switch {
			case i >= len(l):
			case len(p) == 1:
				d[i] = runtime.DeepCopyJSONValue(l[i])
			default:
				p[1:].keep(d[i], l[i])
			}
		}
	}
}

// names are the fields that the first step of p means.
func (p path) names(desired, live map[string]any) []string {
	switch s := p[0].(type) {
	case string:
		return []string{s}
	case wildcard:
		all := slices.Collect(maps.Keys(desired))
		return append(all, slices.Collect(maps.Keys(live))...)
	}
	return nil
}

func (p path) keepField(desired, live map[string]any, name string) {
	is, there := live[name]
	if len(p) > 1 {
		if desired[name] == nil && there {
			desired[name] = map[string]any{} // on the way to a field that only live has
			if p[1:].keep(desired[name], is); len(desired[name].(map[string]any)) == 0 {
				delete(desired, name)
			}
			return
		}
		p[1:].keep(desired[name], is)
		return
	}
	if there {
		desired[name] = runtime.DeepCopyJSONValue(is)
	} else {
		delete(desired, name)
	}
}

// drop takes a field out of an object, so that nothing is asked of it. Elements
// of lists stay, as they were kept: without one, the others would have another
// place.
func (p path) drop(object any) {
	switch o := object.(type) {
	case map[string]any:
		for _, name := range p.names(o, nil) {
			if len(p) == 1 {
				delete(o, name)
			} else {
				p[1:].drop(o[name])
			}
		}
	case []any:
		for i := range o {
			if _, all := p[0].(wildcard); len(p) > 1 && (all || p[0] == i) {
				p[1:].drop(o[i])
			}
		}
	}
}
