package admission

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/controller/tenants"
	dialect "github.com/terrier-iac/terrier/internal/dialect/tenants"
	"github.com/terrier-iac/terrier/internal/tenant"
)

// registryWithin is how long the registry of a template is waited for: less than
// the API server waits for the answer, which does without it then.
const registryWithin = time.Second

// unfit says what does not fit between a template and its registry, as that is
// now. A registry that cannot be read is nothing to tell of.
func unfit(ctx context.Context, registries client.Reader, t *tenantsv1.TenantTemplate) []string {
	if registries == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, registryWithin)
	defer cancel()
	var registry tenantsv1.TenantRegistry
	err := registries.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: t.Spec.RegistryID}, &registry)
	switch {
	case apierrors.IsNotFound(err):
		return []string{fmt.Sprintf("spec.registryId: there is no TenantRegistry %s in namespace %s yet, so no tenant is made; apply it, or give the template another registryId, which takes a new template",
			t.Spec.RegistryID, t.Namespace)}
	case err != nil:
		return nil
	}
	var notes []string
	known := map[string]bool{}
	for _, p := range tenants.CheckTemplate(t, nil) {
		known[p.Error()] = true
	}
	for _, p := range tenants.CheckTemplate(t, tenant.VariablesOf(dialect.Mapping(&registry))) {
		if !known[p.Error()] {
			// The way out comes first: a warning that is too long is cut at its end.
			notes = append(notes, fmt.Sprintf("%s: correct it, or map the variable in extraValueMappings of TenantRegistry %s: %s", p.Path, registry.Name, cause(p)))
		}
	}
	return notes
}
