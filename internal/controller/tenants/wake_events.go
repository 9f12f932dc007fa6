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

// onlyDeleted passes deletions of objects that match.
func onlyDeleted(match func(client.Object) bool) predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		DeleteFunc:  func(e event.DeleteEvent) bool { return match(e.Object) },
	}
}
