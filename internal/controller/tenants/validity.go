package tenants

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/tenant"
	"github.com/terrier-iac/terrier/internal/tenantapi"
)

// Problem is one problem of an object.
type Problem struct {
	Path string // of the field: spec.manifests[2].dependIds
	tenant.ResourceError
}

// CheckTemplate finds all problems of a template. With vars, the variables of its
// registry, it also checks the names of variables. Both the condition Valid and
// admission use it.
func CheckTemplate(obj *tenantsv1.TenantTemplate, vars []string) []Problem {
	var all []Problem
	template, err := tenantapi.Template(obj)
	if err != nil {
		return []Problem{{"spec", tenant.ResourceError{Message: err.Error()}}}
	}
	paths := pathsOf(&obj.Spec.Resources)
	for _, e := range tenant.Check(template, vars) {
		all = append(all, Problem{paths.of(e), e})
	}
	if name := obj.Spec.ServiceAccountName; name != "" {
		if err := kube.CheckAccountName(name); err != nil {
			all = append(all, Problem{"spec.serviceAccountName", tenant.ResourceError{Message: "spec." + err.Error()}})
		}
	}
	if _, err := tenantapi.Rollout(obj); err != nil {
		all = append(all, Problem{"spec.rollout", tenant.ResourceError{Message: err.Error()}})
	}
	return all
}

// paths are the fields of the resources of each id.
type paths map[string][]string

func pathsOf(r *tenantsv1.Resources) paths {
	p := paths{}
	for _, g := range r.Groups() {
		for i, one := range g.Resources {
			p[one.ID] = append(p[one.ID], fmt.Sprintf("spec.%s[%d]", g.Name, i))
		}
	}
	return p
}

// of is the field of a problem. Of several resources with one id it is the last,
// since the first may keep the id.
func (p paths) of(e tenant.ResourceError) string {
	places := p[e.ID]
	if len(places) == 0 {
		return "spec"
	}
	path := places[len(places)-1]
	if e.Field != "" {
		path += "." + e.Field
	}
	return path
}

// CheckRegistry finds the problems of a registry that a read would find before it
// connects: it neither queries the database nor reads a Secret.
func CheckRegistry(obj *tenantsv1.TenantRegistry) []Problem {
	var all []Problem
	if obj.Spec.Source.Type == tenantapi.SourceInventory {
		if _, _, err := tenantapi.Inventory(obj); err != nil {
			path, _, _ := strings.Cut(err.Error(), ": ")
			return []Problem{{path, tenant.ResourceError{Message: err.Error()}}}
		}
		return nil
	}
	m := tenantapi.Mapping(obj)
	columns := map[string]string{"valueMappings.uid": m.UID, "valueMappings.activate": m.Activate}
	for name, column := range m.Extra {
		columns["extraValueMappings."+name] = column
	}
	for _, field := range slices.Sorted(maps.Keys(columns)) {
		if strings.TrimSpace(columns[field]) == "" {
			all = append(all, Problem{"spec." + field, tenant.ResourceError{Message: "the name of the column is missing"}})
		}
	}
	config, _, err := configOf(obj)
	if err != nil {
		return append(all, Problem{"spec.source", tenant.ResourceError{Message: err.Error()}})
	}
	if err := config.Check(m.Columns()); err != nil {
		all = append(all, Problem{"spec.source." + obj.Spec.Source.Type, tenant.ResourceError{Message: err.Error()}})
	}
	return all
}
