package tenants

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
)

// latest reads a Tenant: the version that Terrier wrote last if the cache has no
// newer one, and otherwise the server's. The cache alone is not enough: its copies
// have no resources (Slim), and may lack the last inventory.
func (c *Tenants) latest(ctx context.Context, key types.NamespacedName) (*tenantsv1.Tenant, error) {
	if m := c.memory.get(key); m != nil && c.cache != nil {
		wrote := m.wrote
		var slim tenantsv1.Tenant
		if wrote != nil && c.cache.Get(ctx, key, &slim) == nil && slim.UID == wrote.UID && slim.ResourceVersion == wrote.ResourceVersion {
			return wrote.DeepCopy(), nil
		}
	}
	obj := &tenantsv1.Tenant{}
	return obj, c.Live.Get(ctx, key, obj)
}
