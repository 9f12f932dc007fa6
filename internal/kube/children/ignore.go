package children

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/tenant"
)

// path is one entry of ignoreFields.
type path tenant.Path

func paths(entries []string) ([]path, error) {
	all := make([]path, 0, len(entries))
	for _, e := range entries {
		p, err := tenant.ParsePath(e)
		if err != nil {
			return nil, fault.New(fault.Invalid, "ValidationFailed", fmt.Errorf("ignoreFields: %w", err))
		}
		all = append(all, path(p))
	}
	return all, nil
}

// keep copies a field from live to desired, and removes it if live has none.
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
			if _, all := p[0].(tenant.Any); !all && p[0] != i {
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

// names are the fields that the first step of p selects.
func (p path) names(desired, live map[string]any) []string {
	switch s := p[0].(type) {
	case string:
		return []string{s}
	case tenant.Any:
		all := slices.Collect(maps.Keys(desired))
		return append(all, slices.Collect(maps.Keys(live))...)
	}
	return nil
}

func (p path) keepField(desired, live map[string]any, name string) {
	is, there := live[name]
	if len(p) > 1 {
		if desired[name] == nil && there {
			desired[name] = map[string]any{} // the parent of a field that only live has
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

// drop removes a field from an object, so that the object asks nothing of it. It
// leaves elements of lists in place: without one, the others would move.
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
			if _, all := p[0].(tenant.Any); len(p) > 1 && (all || p[0] == i) {
				p[1:].drop(o[i])
			}
		}
	}
}
