package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
)

const (
	perRegion = 500 // tenants in each namespace
	regional  = "regional"
)

func region(i int) string { return fmt.Sprint("region-", i) }

// lettings measures what it takes to look at lists of more and more tenants.
func (h *house) lettings(ctx context.Context) error {
	if err := h.mayRegion(ctx); err != nil {
		return err
	}
	few, err := h.signedIn(ctx, fewName(0))
	if err != nil {
		return err
	}
	there := 0
	for _, n := range []int{*tenants, *tenants * moreTenants} {
		if err := h.letTo(ctx, there, n); err != nil {
			return err
		}
		there = n
		for _, p := range []struct {
			name, path string
			who        *visitor
			goal       time.Duration
		}{
			{fmt.Sprintf("%d tenants in %d namespaces", n, (n+perRegion-1)/perRegion), "/tenants", h.owner, listGoal},
			{"… two words searched for", "/tenants?q=region-0+tenant-7", h.owner, searchGoal},
			{"… the latest changes first", "/tenants?sort=since", h.owner, listGoal},
			{"… the last page", fmt.Sprintf("/tenants?offset=%d", max(0, n-100)), h.owner, listGoal},
			{"… seeing those of one namespace", "/tenants", few, listGoal},
		} {
			if err := h.t.page(ctx, p.name, p.who, p.path, p.goal); err != nil {
				return err
			}
		}
	}
	return nil
}

// mayRegion makes the first namespace of tenants, and lets one of those who may
// see few see them.
func (h *house) mayRegion(ctx context.Context) error {
	if err := h.namespace(ctx, region(0)); err != nil {
		return err
	}
	may := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: regional}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{tenantsv1.GroupVersion.Group}, Resources: []string{"tenants"}, Verbs: []string{"get", "list"},
	}}}
	if err := h.client.Create(ctx, may); err != nil {
		return err
	}
	return h.client.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: region(0), Name: regional}, Subjects: []rbacv1.Subject{account(fewName(0))},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: regional},
	})
}

// letTo makes tenants until there are n, and waits until the controller has written
// their status. They have no objects: a list costs only their own size.
func (h *house) letTo(ctx context.Context, there, n int) error {
	g, making := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	for i := there; i < n; i++ {
		in := region(i / perRegion)
		if i%perRegion == 0 && i > 0 {
			if err := h.namespace(ctx, in); err != nil {
				return err
			}
		}
		g.Go(func() error {
			t := &tenantsv1.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: fmt.Sprint("tenant-", i), Finalizers: []string{tenantsv1.TenantFinalizer}}}
			t.Spec.UID, t.Spec.TemplateRef = fmt.Sprint("row-", i), "by-hand"
			return h.client.Create(making, client.Object(t))
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("making tenants: %w", err)
	}
	return h.quiet(ctx)
}
