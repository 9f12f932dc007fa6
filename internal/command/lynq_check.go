package command

import (
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/rows"
	"github.com/terrier-iac/terrier/internal/tenant"
	"github.com/terrier-iac/terrier/internal/tenantapi"
)

// check adds to the notes of an import what Terrier would say of its objects, and
// removes fields that Terrier does not know.
func (i *LynqImport) check() {
	registries := map[query.Key]*tenantsv1.TenantRegistry{}
	for n := range i.Objects {
		o := &i.Objects[n]
		switch o.kind() {
		case tenantsv1.RegistryKind:
			if r := (&tenantsv1.TenantRegistry{}); o.typed(r) {
				registries[query.Key{Namespace: r.Namespace, Name: r.Name}] = r
				o.checkRegistry(r)
			}
		case tenantsv1.TemplateKind:
			if t := (&tenantsv1.TenantTemplate{}); o.typed(t) {
				o.checkTemplate(t, registries[query.Key{Namespace: t.Namespace, Name: t.Spec.RegistryID}])
			}
		}
	}
}

func (o *ImportedObject) kind() string {
	return (&unstructured.Unstructured{Object: o.Object}).GetKind()
}

func (o *ImportedObject) note(format string, args ...any) {
	o.Notes = append(o.Notes, fmt.Sprintf(format, args...))
}

// unknownField finds the path in an error of a strict decoder.
var unknownField = regexp.MustCompile(`^unknown field "(.*)"$`)

// typed reads an object as a kind of Terrier, and leaves out unknown fields. It is
// false for an object that the definition of its kind refuses.
func (o *ImportedObject) typed(into any) bool {
	err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, into, true)
	if err == nil {
		return true
	}
	strict, ok := runtime.AsStrictDecodingError(err)
	if !ok {
		o.note("the API server will refuse it: %v", err)
		return false
	}
	for _, e := range strict.Errors() {
		field := e.Error()
		if m := unknownField.FindStringSubmatch(field); m != nil {
			field = m[1]
		}
		o.note("Terrier has no field %s, so it was left out", field)
	}
	known, err := runtime.DefaultUnstructuredConverter.ToUnstructured(into)
	if err != nil {
		o.note("the API server will refuse it: %v", err)
		return false
	}
	o.Object["spec"] = known["spec"]
	return true
}

// checkRegistry says what is wrong with a source, as far as that can be known
// without its database.
func (o *ImportedObject) checkRegistry(r *tenantsv1.TenantRegistry) {
	s := r.Spec.Source.MySQL
	if s == nil {
		o.note("the API server will refuse it: spec.source has no mysql")
		return
	}
	config := rows.Config{
		Kind: rows.Kind(r.Spec.Source.Type), Timeout: rows.DefaultTimeout, MaxRows: rows.DefaultMaxRows,
		Host: s.Host, Port: int(s.Port), User: s.Username, Database: s.Database, Table: s.Table, Query: s.Query,
	}
	if err := config.Check(tenantapi.Mapping(r).Columns()); err != nil {
		o.note("the API server will refuse it: spec.source.mysql: %v", err)
	}
}

// checkTemplate says which of its templates do not render.
func (o *ImportedObject) checkTemplate(t *tenantsv1.TenantTemplate, registry *tenantsv1.TenantRegistry) {
	if registry == nil {
		o.note("this namespace has no %s %s for it: the template has no tenants until there is a TenantRegistry of that name", access.LynqHub, t.Spec.RegistryID)
	}
	template, err := tenantapi.Template(t)
	if err != nil {
		o.note("the API server will refuse it: %v", err)
		return
	}
	for _, e := range tenant.Check(template, query.TemplateVariables(registry)) {
		o.note("the API server will refuse it: %v", e)
	}
}
