package tenants

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
)

// patch writes the difference between two versions of an object. It is a conflict
// if another writer was faster.
func (o Options) patch(ctx context.Context, obj, before client.Object) error {
	return o.Live.Patch(ctx, obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(tenantsv1.FieldManager))
}

func (o Options) patchStatus(ctx context.Context, obj, before client.Object) error {
	return o.Live.Status().Patch(ctx, obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(tenantsv1.FieldManager))
}

// ensureFinalizer puts a finalizer on an object before anything is created for it.
func (o Options) ensureFinalizer(ctx context.Context, obj client.Object, finalizer string) error {
	if controllerutil.ContainsFinalizer(obj, finalizer) {
		return nil
	}
	before := obj.DeepCopyObject().(client.Object)
	controllerutil.AddFinalizer(obj, finalizer)
	return o.patch(ctx, obj, before)
}

// removeFinalizer releases an object that is being deleted.
func (o Options) removeFinalizer(ctx context.Context, obj client.Object, finalizer string) error {
	before := obj.DeepCopyObject().(client.Object)
	controllerutil.RemoveFinalizer(obj, finalizer)
	return o.patch(ctx, obj, before)
}
