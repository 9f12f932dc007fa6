package tenants

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// inBackground makes a deletion in the foreground one in the background. In the foreground,
// Kubernetes deletes at once whatever an ownerReference ties to the object, in no order, as
// soon as it sees the finalizer that this takes off. The policy of config/admission/deletion
// refuses such deletions of Tenants, also to the garbage collector of Kubernetes, so that those
// of registries cost nothing.
func (o Options) inBackground(ctx context.Context, obj client.Object) error {
	if obj.GetDeletionTimestamp().IsZero() || !controllerutil.ContainsFinalizer(obj, metav1.FinalizerDeleteDependents) {
		return nil
	}
	if err := o.removeFinalizer(ctx, obj, metav1.FinalizerDeleteDependents); err != nil {
		return err
	}
	if _, registry := obj.(*tenantsv1.TenantRegistry); registry {
		o.Events.Event(obj, corev1.EventTypeNormal, "ForegroundDeletion", "The deletion is in the foreground. Terrier continues it in the background, and deletes the tenants and their objects in order. "+
			"Without the policy deletion.tenants.terrier.dev of the API server, Kubernetes may have deleted some of them before: see kubectl get validatingadmissionpolicies")
		return nil
	}
	o.Events.Event(obj, corev1.EventTypeWarning, "ForegroundDeletion", "The deletion is in the foreground, by which Kubernetes deletes the objects itself, at once and in no order. "+
		"Terrier continues it in the background: what Kubernetes has not deleted yet is deleted in order, or retained. Delete tenants with kubectl delete --cascade=background")
	return nil
}

// removeFinalizer releases an object that is being deleted.
func (o Options) removeFinalizer(ctx context.Context, obj client.Object, finalizer string) error {
	before := obj.DeepCopyObject().(client.Object)
	controllerutil.RemoveFinalizer(obj, finalizer)
	return o.patch(ctx, obj, before)
}
