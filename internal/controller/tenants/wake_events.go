package tenants

import (
	"context"
	"maps"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/controller/sources"
	"github.com/terrier-iac/terrier/internal/tenantapi"
)

// queue is the queue of a reconciler.
type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// soon wakes the owner of an object after a delay, so that many changes cause one
// pass.
func soon(of func(client.Object) []reconcile.Request) handler.EventHandler {
	add := func(o client.Object, q queue) {
		for _, r := range of(o) {
			q.AddAfter(r, wakeDelay)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { add(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { add(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { add(e.Object, q) },
	}
}

// tenantChanged passes changes that registries and templates count or act on.
func tenantChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, now := tenantapi.Existing(e.ObjectOld.(*tenantsv1.Tenant)), tenantapi.Existing(e.ObjectNew.(*tenantsv1.Tenant))
		return was.Ready != now.Ready || was.Failed != now.Failed || was.Deleting != now.Deleting || was.Protected != now.Protected ||
			was.Generation != now.Generation || was.Row != now.Row || !maps.Equal(was.Labels, now.Labels)
	}}
}

// templateChanged passes changes of the spec, of annotations and of finalizers.
func templateChanged() predicate.Predicate {
	return predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return true },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return len(e.ObjectOld.GetFinalizers()) != len(e.ObjectNew.GetFinalizers())
		},
	})
}

// registryChanged passes the changes that templates depend on: existence, variables
// and blocked deletions.
func registryChanged() predicate.Predicate {
	return predicate.Or(predicate.GenerationChangedPredicate{}, predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, now := e.ObjectOld.(*tenantsv1.TenantRegistry).Status.Blocked, e.ObjectNew.(*tenantsv1.TenantRegistry).Status.Blocked
		return (was == nil) != (now == nil) || was != nil && was.Token != now.Token
	}})
}

// inventorySource is the source that a registry reads its tenants from.
func inventorySource(o client.Object) []string {
	s := o.(*tenantsv1.TenantRegistry).Spec.Source
	if s.Type != tenantapi.SourceInventory || s.Inventory == nil {
		return nil
	}
	return []string{s.Inventory.SourceRef.Kind + "/" + s.Inventory.SourceRef.Name}
}

// inventoriesOf has the registries read their tenants that have them from a source.
func (c *Registries) inventoriesOf(kind string) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		var list tenantsv1.TenantRegistryList
		if err := c.cache.List(ctx, &list, client.InNamespace(o.GetNamespace()), client.MatchingFields{indexInventory: kind + "/" + o.GetName()}); err != nil {
			c.Log.Error("registries not woken", "source", kind+" "+client.ObjectKeyFromObject(o).String(), "err", err) // they read at their interval
			return nil
		}
		var out []reconcile.Request
		for i := range list.Items {
			key := client.ObjectKeyFromObject(&list.Items[i])
			c.notify(key)
			out = append(out, reconcile.Request{NamespacedName: key})
		}
		return out
	}
}

// artifactChanged passes sources with another artifact than before.
func artifactChanged() predicate.Predicate {
	digest := func(o client.Object) string {
		if s, ok := o.(sources.Object); ok && s.GetArtifact() != nil {
			return s.GetArtifact().Digest
		}
		return ""
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return digest(e.Object) != "" },
		UpdateFunc: func(e event.UpdateEvent) bool { return digest(e.ObjectOld) != digest(e.ObjectNew) },
	}
}

// onlyDeleted passes deletions of objects that match.
func onlyDeleted(match func(client.Object) bool) predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		DeleteFunc:  func(e event.DeleteEvent) bool { return match(e.Object) },
	}
}
