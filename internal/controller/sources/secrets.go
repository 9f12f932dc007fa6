package sources

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// indexSecrets finds the sources that name a Secret: a source whose password was
// refused is reconciled when the password changes, and not only after its interval.
const indexSecrets = "terrier.sourceSecrets"

// secrets names the Secrets that obj is fetched with.
func (k kind) secrets(obj client.Object) []string {
	var names []string
	for _, ref := range k.wrap(obj).secrets() {
		if ref != nil {
			names = append(names, ref.Name)
		}
	}
	return names
}

// referring maps a Secret to the sources that name it.
func (r *reconciler) referring(ctx context.Context, secret client.Object) []reconcile.Request {
	list := r.kind.list()
	if err := r.client.List(ctx, list, client.InNamespace(secret.GetNamespace()), client.MatchingFields{indexSecrets: secret.GetName()}); err != nil {
		r.Log.Error("sources not woken", "by", client.ObjectKeyFromObject(secret).String(), "err", err) // they look again by themselves
		return nil
	}
	var all []reconcile.Request
	_ = meta.EachListItem(list, func(o runtime.Object) error {
		all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o.(client.Object))})
		return nil
	})
	return all
}
