// Package tenantapi maps the kinds of operator.kubernetes-tenants.org to the types of
// package tenant and back. It decides nothing, and refuses a resource whose spec is
// no object with an error that names its field.
//
// Start reading at Resources.
package tenantapi

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/json"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/tenant"
)

// defaultTimeout is the default of the API, for objects without one.
const defaultTimeout = 300 * time.Second

// Template reads a TenantTemplate.
func Template(t *tenantsv1.TenantTemplate) (tenant.Template, error) {
	resources, err := Resources(&t.Spec.Resources)
	return tenant.Template{Name: t.Name, Generation: t.Generation, Resources: resources}, err
}

// Pinned is the template generation of one Tenant.
func Pinned(t *tenantsv1.Tenant, generation int64) (tenant.Template, error) {
	resources, err := Resources(&t.Spec.Resources)
	return tenant.Template{Name: t.Spec.TemplateRef, Generation: generation, Resources: resources}, err
}

// Resources returns those of all groups, in the order of the groups and then as
// they are written. Its error is Invalid.
func Resources(r *tenantsv1.Resources) ([]tenant.Resource, error) {
	var all []tenant.Resource
	for _, g := range r.Groups() {
		for i := range g.Resources {
			one, err := resource(g.Name, &g.Resources[i])
			if err != nil {
				return nil, fault.New(fault.Invalid, "ValidationFailed", fmt.Errorf("%s[%d] (%s): %w", g.Name, i, g.Resources[i].ID, err))
			}
			all = append(all, one)
		}
	}
	return all, nil
}

func resource(group string, r *tenantsv1.TResource) (tenant.Resource, error) {
	var object map[string]any
	if err := json.Unmarshal(r.Spec.Raw, &object); err != nil { // whole numbers are int64
		return tenant.Resource{}, fmt.Errorf("spec is not an object: %w", err)
	}
	timeout := time.Duration(r.TimeoutSeconds) * time.Second
	if timeout == 0 {
		timeout = defaultTimeout
	}
	return tenant.Resource{
		ID: r.ID, Group: group, Object: object,
		NameTemplate: r.NameTemplate, TargetNamespace: r.TargetNamespace,
		LabelsTemplate: r.LabelsTemplate, AnnotationsTemplate: r.AnnotationsTemplate,
		DependIDs:    r.DependIDs,
		Creation:     or(tenant.CreationPolicy(r.CreationPolicy), tenant.WhenNeeded),
		Deletion:     or(tenant.DeletionPolicy(r.DeletionPolicy), tenant.Delete),
		Conflict:     or(tenant.ConflictPolicy(r.ConflictPolicy), tenant.Stuck),
		Patch:        or(tenant.PatchStrategy(r.PatchStrategy), tenant.Apply),
		IgnoreFields: r.IgnoreFields,
		NoWait:       r.WaitForReady != nil && !*r.WaitForReady,
		Timeout:      timeout,

		ProceedOnFailedDepends: r.SkipOnDependencyFailure != nil && !*r.SkipOnDependencyFailure,
		ReadyWhen:              r.ReadyWhen,
		IncludeWhen:            r.IncludeWhen,
	}, nil
}

func or[T ~string](v, fallback T) T {
	if v == "" {
		return fallback
	}
	return v
}
