package tenants

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/tenant"
	"github.com/terrier-iac/terrier/internal/tenantapi"
)

// tie ties a Tenant to its registry, or unties it. The whole list of owners is written, so that
// it is read from the server, and written only over what was read.
func (c *tenantWriter) tie(ctx context.Context, l *registryPass, of *tenantsv1.Tenant, change tenant.Tie) error {
	for range 5 {
		t := &metav1.PartialObjectMetadata{}
		t.SetGroupVersionKind(tenantsv1.GroupVersion.WithKind(tenantsv1.TenantKind))
		if err := c.Live.Get(ctx, client.ObjectKeyFromObject(of), t); err != nil || t.UID != of.UID || !t.DeletionTimestamp.IsZero() {
			return client.IgnoreNotFound(err)
		}
		before := t.DeepCopy()
		if change == tenant.Tied {
			tenantapi.Tie(t, l.obj)
		} else {
			tenantapi.Untie(t, l.obj.Name)
		}
		if equality.Semantic.DeepEqual(before, t) {
			return nil // the cache is late
		}
		if err := c.patch(ctx, t, before); !apierrors.IsConflict(err) {
			return client.IgnoreNotFound(err)
		}
	}
	return errors.New("the Tenant changes too often for its ownerReference to be written")
}
