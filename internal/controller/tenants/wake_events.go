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
	dialect "github.com/terrier-iac/terrier/internal/dialect/tenants"
)

// queue is what events are put into.
type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// soon wakes what an object belongs to after a while, so that many changes become
// one look.
func soon(of func(client.Object) []reconcile.Request) handler.EventHandler {
	add := func(o client.Object, q queue) {
		for _, r := range of(o) {
			q.AddAfter(r, settle)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { add(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { add(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { add(e.Object, q) },
	}
}

// tenantChanged lets pass what registries and templates count or have to act on.
func tenantChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, now := dialect.Existing(e.ObjectOld.(*tenantsv1.Tenant)), dialect.Existing(e.ObjectNew.(*tenantsv1.Tenant))
		return was.Ready != now.Ready || was.Failed != now.Failed || was.Deleting != now.Deleting || was.Protected != now.Protected ||
			was.Generation != now.Generation || was.Row != now.Row || !maps.Equal(was.Labels, now.Labels)
	}}
}

// templateChanged lets pass everything but what is said in a status; which
// generation is good counts, since tenants are made of it.
func templateChanged() predicate.Predicate {
	return predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return true },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return len(e.ObjectOld.GetFinalizers()) != len(e.ObjectNew.GetFinalizers())
		},
	})
}

// registryChanged lets pass what templates depend on: that it is there, which
// variables it has, and what it says of deletions that they wait for.
func registryChanged() predicate.Predicate {
	return predicate.Or(predicate.GenerationChangedPredicate{}, predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, now := e.ObjectOld.(*tenantsv1.TenantRegistry).Status.Blocked, e.ObjectNew.(*tenantsv1.TenantRegistry).Status.Blocked
		return (was == nil) != (now == nil) || was != nil && was.Token != now.Token
	}})
}

// onlyDeleted lets pass the end of objects that match.
func onlyDeleted(match func(client.Object) bool) predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		DeleteFunc:  func(e event.DeleteEvent) bool { return match(e.Object) },
	}
}
