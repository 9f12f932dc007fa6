package admission

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/controller/tenants"
	"github.com/terrier-iac/terrier/internal/tenant"
	"github.com/terrier-iac/terrier/internal/tenantapi"
)

// registryWithin bounds the read of a template's registry: it is less than the
// timeout of the API server, so that the answer comes without it.
const registryWithin = time.Second

// unfit are the problems of a template with its present registry; none if the
// registry cannot be read.
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
		return []string{fmt.Sprintf("spec.registryId: namespace %[2]s has no TenantRegistry %[1]s yet, so that no tenant is created. Apply it, or create a template with another registryId",
			t.Spec.RegistryID, t.Namespace)}
	case err != nil:
		return nil
	}
	var notes []string
	known := map[string]bool{}
	for _, p := range tenants.CheckTemplate(t, nil) {
		known[p.Error()] = true
	}
	for _, p := range tenants.CheckTemplate(t, tenant.VariablesOf(tenantapi.Mapping(&registry))) {
		if !known[p.Error()] {
			// The fix comes first: a long warning is cut at its end.
			notes = append(notes, fmt.Sprintf("%s: correct it, or map the variable in extraValueMappings of TenantRegistry %s: %s", p.Path, registry.Name, cause(p)))
		}
	}
	return notes
}
