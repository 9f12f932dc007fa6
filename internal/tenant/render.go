package tenant

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/terrier-iac/terrier/internal/tenant/expression"
	"github.com/terrier-iac/terrier/internal/tenant/rendering"
)

// RenderOptions describe the cluster that objects are rendered for. All fields are
// optional.
type RenderOptions struct {
	// Namespace of the Tenant, and of objects whose resource names no other.
	Namespace string

	// TenantUID is the row's uid; Terraform objects carry it as a label, in the
	// form that Label gives.
	TenantUID string

	// Types are the schemas of the kinds. Without them a text becomes a number or
	// a truth value only where its template says so.
	Types Types

	// IsNamespaced tells namespaced kinds from cluster-scoped ones. A kind that it
	// does not know is namespaced, unless it is a built-in one.
	IsNamespaced func(apiVersion, kind string) (namespaced, known bool)
}

// Render returns the objects of a tenant with these values, in Order. A resource
// that could not be rendered is missing, and has errors. One that includeWhen
// leaves out is missing, too; its dependants depend on its dependencies instead.
func Render(t Template, v Values, o RenderOptions) ([]Object, []ResourceError) {
	if errs := orderErrors(t.Resources); len(errs) > 0 {
		return nil, errs
	}
	run := rendering.NewRun(v)
	var objects []Object
	var errs []ResourceError
	left := map[string][]string{} // the dependencies of resources that are left out
	same := map[Ref]string{}
	for i, r := range sorted(t.Resources) {
		included, err := r.includes(v)
		switch {
		case err != nil:
			errs = append(errs, ResourceError{r.ID, "includeWhen", err.Error()})
			continue
		case !included:
			left[r.ID] = r.DependIDs
			continue
		}
		w := &writing{r: r, o: o, run: run}
		rendered := w.object()
		w.conditions()
		w.ignored(rendered)
		if errs = append(errs, w.errs...); len(w.errs) > 0 {
			continue
		}
		id := RefOf(rendered).Place()
		if other, ok := same[id]; ok {
			errs = append(errs, ResourceError{r.ID, "nameTemplate", fmt.Sprintf("it renders to %s, as %s does", id, other)})
			continue
		}
		same[id] = r.ID
		objects = append(objects, Object{Resource: r, Rendered: rendered, Order: i, Defaults: w.defaults})
	}
	for i := range objects {
		objects[i].DependIDs = without(objects[i].DependIDs, left)
	}
	return objects, errs
}

func (r Resource) includes(v Values) (bool, error) {
	if r.IncludeWhen == "" {
		return true, nil
	}
	return expression.OverRow().Eval(r.IncludeWhen, map[string]string(v))
}

// without returns ids with those that are left out replaced by their dependencies;
// there is no cycle among them.
func without(ids []string, left map[string][]string) []string {
	var out []string
	for _, id := range ids {
		through := []string{id}
		if behind, ok := left[id]; ok {
			through = without(behind, left)
		}
		for _, id := range through {
			if !slices.Contains(out, id) {
				out = append(out, id)
			}
		}
	}
	return out
}

// keysOf are the keys of a map, in order.
func keysOf[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func text(v any) string {
	s, _ := v.(string)
	return s
}

// ValuesOf returns the variables that the templates of a row see. An extra
// variable may have the name of another, and then replaces it.
func ValuesOf(r Row, registry, template string) Values {
	v := Values{
		"uid": r.UID, "hostOrUrl": r.HostOrURL, "host": rendering.ToHost(r.HostOrURL), "activate": r.Activate,
		"registryId": registry, "templateRef": template,
	}
	maps.Copy(v, r.Extra)
	return v
}

// VariablesOf are the names of the variables that a registry with this mapping
// gives to templates, in order.
func VariablesOf(m Mapping) []string {
	r := Row{Extra: map[string]string{}}
	for name := range m.Extra {
		r.Extra[name] = ""
	}
	return keysOf(ValuesOf(r, "", ""))
}

// writing is the rendering of one resource.
type writing struct {
	r    Resource
	o    RenderOptions
	run  *rendering.Run
	errs []ResourceError

	apiVersion, kind string
	defaults         [][]string
}

func (w *writing) fail(field string, err error) {
	w.errs = append(w.errs, ResourceError{w.r.ID, field, err.Error()})
}

// object returns the whole object; it is usable only if there are no errors.
func (w *writing) object() map[string]any {
	if err := w.r.kindError(); err != nil {
		w.fail("spec", err)
		return nil
	}
	w.apiVersion, w.kind = text(w.r.Object["apiVersion"]), text(w.r.Object["kind"])
	out := make(map[string]any, len(w.r.Object)+1)
	for _, name := range keysOf(w.r.Object) { // errors come in order
		switch v := w.r.Object[name]; name {
		case "apiVersion", "kind":
			out[name] = v
		case "metadata":
		default:
			out[name] = w.value(v, place{field: name, up: nil})
		}
	}
	out["metadata"] = w.metadata()
	if isTerraform(w.apiVersion, w.kind) {
		w.terraform(out)
	}
	return out
}

// conditions checks readyWhen in advance: a tenant would wait for an invalid one
// until the timeout.
func (w *writing) conditions() {
	if w.r.ReadyWhen == "" {
		return
	}
	if err := expression.OverObject().Check(w.r.ReadyWhen); err != nil {
		w.fail("readyWhen", err)
	}
}

// ignored checks ignoreFields in advance: Terrier would write no object with entries
// that do not fit.
func (w *writing) ignored(object map[string]any) {
	if len(w.r.IgnoreFields) == 0 || len(w.errs) > 0 {
		return
	}
	ignored, err := ParseIgnored(w.r.IgnoreFields, func(path []string) List {
		if w.o.Types == nil {
			return List{}
		}
		return w.o.Types.List(w.apiVersion, w.kind, path)
	})
	if err == nil {
		err = ignored.Check(object)
	}
	if err != nil {
		w.fail("", err)
	}
}

// one renders a text of the resource itself; the result is a text.
func (w *writing) one(template, field string) (string, bool) {
	v, err := w.text(template)
	if err != nil {
		w.fail(field, err)
		return "", false
	}
	return rendering.ToText(v), true
}

func (w *writing) text(template string) (any, error) {
	if !rendering.IsTemplate(template) {
		return template, nil
	}
	t, err := rendering.Parse(template)
	if err != nil {
		return nil, err
	}
	return t.Render(w.run)
}

// value renders the value of one field of the object.
func (w *writing) value(v any, at place) any {
	switch v := v.(type) {
	case string:
		out, err := w.leaf(v, at)
		if err != nil {
			w.fail(at.String(), err)
		}
		return out
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = w.value(v[i], place{index: i, inList: true, up: &at})
		}
		return list
	case map[string]any:
		m := make(map[string]any, len(v))
		for _, name := range keysOf(v) {
			m[name] = w.value(v[name], place{field: name, up: &at})
		}
		return m
	default:
		return v
	}
}

// leaf renders a text, and converts it to the type of its place.
func (w *writing) leaf(s string, at place) (any, error) {
	v, err := w.text(s)
	if err != nil || !rendering.IsTemplate(s) {
		return v, err
	}
	return as(v, w.typeOf(at))
}

func (w *writing) typeOf(at place) Type {
	path := at.path()
	var t Type
	if w.o.Types != nil {
		t = w.o.Types.At(w.apiVersion, w.kind, path)
	}
	return cmp.Or(t, knownType(w.kind, path))
}
