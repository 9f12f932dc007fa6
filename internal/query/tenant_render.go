package query

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	k8syaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube/children"
	"github.com/terrier-iac/terrier/internal/tenant"
	"github.com/terrier-iac/terrier/internal/tenantapi"
)

// Rendering is what a template makes of a row, by the code that makes it of the
// rows of a registry.
type Rendering struct {
	Template  string           `json:"template"`
	Namespace string           `json:"namespace"`
	UID       string           `json:"uid,omitempty"` // empty: the template was checked, and nothing rendered
	Objects   []RenderedObject `json:"objects,omitempty"`
	Errors    []RenderError    `json:"errors,omitempty"`
	Resources int              `json:"resources"`
	Schemas   string           `json:"schemas"` // whose: the cluster's, or the built-in ones
}

// RenderedObject is one object, in the order of making.
type RenderedObject struct {
	ID     string         `json:"id"`
	Object map[string]any `json:"object"`
}

// RenderError is one thing wrong with a template.
type RenderError struct {
	ID      string `json:"id,omitempty"`    // of the resource; empty for the template as a whole
	Field   string `json:"field,omitempty"` // nameTemplate, spec.data.url, …
	Message string `json:"message"`
}

func (e RenderError) Error() string {
	return tenant.ResourceError{ID: e.ID, Field: e.Field, Message: e.Message}.Error()
}

// Fault is what is wrong with the template, nil if nothing is.
func (r Rendering) Fault() error {
	if len(r.Errors) == 0 {
		return nil
	}
	return fault.New(fault.Invalid, ReasonBadTemplate, fmt.Errorf("the template %s has %s", r.Template, Count(len(r.Errors), "fault")))
}

// RowText is a row that a user gives: variables by name. Of the built-in ones
// uid has to be there; a row that says nothing of activate is active.
type RowText map[string]string

// row refuses what no row of a registry could be; nil for no row.
func (t RowText) row() (*tenant.Row, error) {
	if len(t) == 0 {
		return nil, nil
	}
	r := tenant.Row{UID: t["uid"], HostOrURL: t["hostOrUrl"], Activate: cmp.Or(t["activate"], "1"), Active: true, Extra: map[string]string{}}
	if r.UID == "" {
		return nil, fault.New(fault.Invalid, "RowInvalid", errors.New("a row has a uid: uid=…"))
	}
	for name, value := range t {
		switch name {
		case "uid", "hostOrUrl", "activate":
		default:
			r.Extra[name] = value
		}
	}
	return &r, nil
}

// RenderChoice chooses templates of a manifest.
type RenderChoice struct {
	Template  string // all if empty
	Registry  string // all if empty
	Namespace string // of templates that name none
}

// RenderManifest renders templates of a manifest without a cluster: types of
// fields are known of built-in kinds only. Without a row the templates are only
// checked.
func RenderManifest(content []byte, choose RenderChoice, row RowText) ([]Rendering, error) {
	templates, registries, err := readTemplates(content)
	if err != nil {
		return nil, err
	}
	values, err := row.row()
	if err != nil {
		return nil, err
	}
	var out []Rendering
	for _, o := range templates {
		if choose.Template != "" && o.Name != choose.Template || choose.Registry != "" && o.Spec.RegistryID != choose.Registry {
			continue
		}
		o.Namespace = cmp.Or(o.Namespace, choose.Namespace, "default")
		r, err := render(o, registries[o.Spec.RegistryID], values, builtin{}, builtin{}.isNamespaced)
		if err != nil {
			return nil, err
		}
		r.Schemas = "built in"
		out = append(out, r)
	}
	if out == nil {
		return nil, fault.New(fault.Invalid, ReasonManifest, errors.New("the manifest holds no such TenantTemplate"))
	}
	return out, nil
}

// readTemplates reads the templates and registries of a manifest; all else in it
// is passed over.
func readTemplates(content []byte) ([]*tenantsv1.TenantTemplate, map[string]*tenantsv1.TenantRegistry, error) {
	var templates []*tenantsv1.TenantTemplate
	registries := map[string]*tenantsv1.TenantRegistry{}
	for n, r := 1, k8syaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content))); ; n++ {
		raw, err := r.Read()
		if errors.Is(err, io.EOF) {
			return templates, registries, nil
		}
		invalid := func(err error) error {
			return fault.New(fault.Invalid, ReasonManifest, fmt.Errorf("reading document %d of the manifest: %w", n, err))
		}
		if err != nil {
			return nil, nil, invalid(err)
		}
		var head struct{ APIVersion, Kind string }
		if err := yaml.Unmarshal(raw, &head); err != nil {
			return nil, nil, invalid(err)
		}
		if !strings.HasPrefix(head.APIVersion, tenantsv1.GroupVersion.Group+"/") {
			continue
		}
		switch head.Kind {
		case tenantsv1.TemplateKind:
			var o tenantsv1.TenantTemplate
			if err := yaml.UnmarshalStrict(raw, &o); err != nil {
				return nil, nil, invalid(err)
			}
			templates = append(templates, &o)
		case tenantsv1.RegistryKind:
			var o tenantsv1.TenantRegistry
			if err := yaml.UnmarshalStrict(raw, &o); err != nil {
				return nil, nil, invalid(err)
			}
			registries[o.Name] = &o
		}
	}
}

// Render renders a template of the cluster with a row that the user gives, or
// with that of the tenant with a uid. Types of fields are the cluster's.
func (t *Tenants) Render(ctx context.Context, key Key, row RowText, uid string) (Rendering, error) {
	o, err := t.TemplateObject(ctx, key)
	if err != nil {
		return Rendering{}, err
	}
	registry, err := t.RegistryObject(ctx, Key{Namespace: key.Namespace, Name: o.Spec.RegistryID})
	if err != nil && fault.Of(err) != fault.Missing && fault.Of(err) != fault.Denied {
		return Rendering{}, err // without it, the names of variables are not checked
	}
	if err != nil {
		registry = nil
	}
	values, err := row.row()
	if uid != "" {
		values, err = t.rowOf(ctx, key, uid)
	}
	if err != nil {
		return Rendering{}, err
	}
	types, err := t.types(ctx)
	if err != nil {
		return Rendering{}, err
	}
	r, err := render(o, registry, values, types, types.IsNamespaced)
	r.Schemas = "of the cluster"
	return r, err
}

// rowOf reads the row of the tenant with a uid, with the rights of the user.
func (t *Tenants) rowOf(ctx context.Context, template Key, uid string) (*tenant.Row, error) {
	list, err := t.List(ctx, TenantFilter{Namespace: template.Namespace, Template: template.Name})
	if err != nil {
		return nil, err
	}
	for _, v := range list.Items {
		if v.UID != uid {
			continue
		}
		o, err := t.tenantObject(ctx, v.Key())
		if err != nil {
			return nil, err
		}
		r, _, err := t.readRow(ctx, o)
		return &r, err
	}
	return nil, fault.New(fault.Missing, ReasonNoSuchThing, fmt.Errorf("the template %s has no tenant with the uid %q", template, uid))
}

// types are the schemas of the cluster.
func (t *Tenants) types(context.Context) (*children.Types, error) {
	c, err := children.New(children.Config{REST: t.config, Now: t.Now})
	if err != nil {
		return nil, fmt.Errorf("asking the cluster for its kinds: %w", err)
	}
	return c.Types(), nil
}

// render is the rendering of the controller, with its errors in words of ours.
func render(o *tenantsv1.TenantTemplate, registry *tenantsv1.TenantRegistry, row *tenant.Row, types tenant.Types, isNamespaced func(apiVersion, kind string) (namespaced, known bool)) (Rendering, error) {
	out := Rendering{Template: o.Name, Namespace: o.Namespace}
	template, err := tenantapi.Template(o)
	if err != nil {
		return out, err
	}
	out.Resources = len(template.Resources)
	out.add(tenant.Check(template, TemplateVariables(registry)))
	if row == nil {
		return out, nil
	}
	out.UID = row.UID
	objects, errs := tenant.Render(template, tenant.ValuesOf(*row, o.Spec.RegistryID, o.Name), tenant.RenderOptions{
		Namespace: o.Namespace, TenantUID: row.UID, Types: types, IsNamespaced: isNamespaced,
	})
	out.add(errs)
	for _, object := range objects {
		out.Objects = append(out.Objects, RenderedObject{object.ID, object.Rendered})
	}
	return out, nil
}

// add takes over faults that are not there yet.
func (r *Rendering) add(errs []tenant.ResourceError) {
	have := map[RenderError]bool{}
	for _, e := range r.Errors {
		have[e] = true
	}
	for _, e := range errs {
		if v := (RenderError{e.ID, e.Field, e.Message}); !have[v] {
			r.Errors, have[v] = append(r.Errors, v), true
		}
	}
}

// variables are the names that a registry gives to templates; nil if it is not known.
func TemplateVariables(o *tenantsv1.TenantRegistry) []string {
	if o == nil {
		return nil
	}
	return tenant.VariablesOf(tenantapi.Mapping(o))
}

// Manifest is the objects of a rendering as YAML, in the order of making, each
// after its id.
func (r Rendering) Manifest() ([]byte, error) {
	var b bytes.Buffer
	for _, o := range r.Objects {
		raw, err := yaml.Marshal(o.Object)
		if err != nil {
			return nil, fmt.Errorf("writing %s: %w", o.ID, err)
		}
		fmt.Fprintf(&b, "---\n# %s\n%s", strings.Join(strings.Fields(o.ID), " "), raw)
	}
	return b.Bytes(), nil
}
