package tenant

import (
	"errors"
	"maps"
	"slices"
)

// RenderOptions are what rendering has to know about the place of the objects.
// All of it is optional.
type RenderOptions struct {
	// Namespace of the Tenant: that of objects whose resource names no other.
	Namespace string

	// TenantUID is the row's uid; Terraform objects carry it as a label.
	TenantUID string

	// Types are the schemas of the kinds. Without them a text becomes a number or
	// a truth value only where its template says so.
	Types Types

	// IsNamespaced tells objects of a namespace from those of the cluster. A kind
	// that it does not know is of a namespace, unless it is a built-in one.
	IsNamespaced func(apiVersion, kind string) (namespaced, known bool)
}

// Render makes the objects that a tenant with these values has, in Order. A
// resource that could not be rendered is missing there and has its errors. One
// that includeWhen leaves out is missing, too, and nothing depends on it any
// more.
func Render(t Template, v Values, o RenderOptions) ([]Object, []ResourceError) {
	return nil, []ResourceError{{Message: errUnbuilt.Error()}}
}

var errUnbuilt = errors.New("rendering is not built yet")

// ValuesOf returns the variables that the templates of a row see. An extra
// variable may have the name of another, and then replaces it.
func ValuesOf(r Row, registry, template string) Values {
	v := Values{"uid": r.UID, "hostOrUrl": r.HostOrURL, "activate": r.Activate, "registryId": registry, "templateRef": template}
	for name, text := range r.Extra {
		v[name] = text
	}
	return v
}

func (v Values) names() []string { return slices.Sorted(maps.Keys(v)) }
