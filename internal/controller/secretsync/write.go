package secretsync

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/externalsecret"
)

// write does with the Secret what was decided. It changes only the Secret that was
// observed: an error of the API server says that another program was faster.
func (r *reconciler) write(ctx context.Context, p *pass, d externalsecret.Decision) error {
	name := p.spec.Target.Name
	switch d.Action {
	case externalsecret.Keep:
		return nil
	case externalsecret.Remove:
		if err := r.Live.Delete(ctx, p.secret, client.Preconditions{UID: &p.secret.UID, ResourceVersion: &p.secret.ResourceVersion}); client.IgnoreNotFound(err) != nil {
			return wrap("deleting", name, err)
		}
		p.secret, p.live = nil, externalsecret.Live{}
		return nil
	case externalsecret.Write:
	}
	next := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: p.obj.GetNamespace(), Name: name}, Type: corev1.SecretType(d.Type)}
	if p.secret != nil {
		next = p.secret.DeepCopy()
	}
	next.Data = d.Data
	next.Labels = with(next.Labels, d.Labels)
	next.Annotations = with(next.Annotations, d.Annotations)
	next.Annotations = with(next.Annotations, map[string]string{externalsecret.MarkName(p.obj.GetName()): d.Mark.String()})
	next.OwnerReferences = owners(next.OwnerReferences, p.obj, d.Own)
	return r.put(ctx, p, next)
}

// put creates or replaces the Secret.
func (r *reconciler) put(ctx context.Context, p *pass, next *corev1.Secret) error {
	var err error
	if p.secret == nil {
		err = r.Live.Create(ctx, next, client.FieldOwner(manager))
	} else {
		err = r.Live.Update(ctx, next, client.FieldOwner(manager)) // at the version that was read
	}
	if err != nil {
		return wrap("writing", next.Name, err)
	}
	p.saw(next)
	return nil
}

// wrap says what failed. Errors by which the reconciler tells that it has to read again
// stay what they are.
func wrap(doing, name string, err error) error {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return err
	}
	return lacks(fmt.Errorf("%s the Secret %s: %w", doing, name, err), err)
}

func with(has, more map[string]string) map[string]string {
	if len(more) == 0 {
		return has
	}
	if has == nil {
		has = map[string]string{}
	}
	maps.Copy(has, more)
	return has
}

// owners are the references of a Secret: with that of the object, or without it.
func owners(all []metav1.OwnerReference, of client.Object, own bool) []metav1.OwnerReference {
	var out []metav1.OwnerReference
	for _, ref := range all {
		if ref.UID != of.GetUID() {
			out = append(out, ref)
		}
	}
	if !own {
		return out
	}
	gvk := GVK(kindOf)
	return append(out, metav1.OwnerReference{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Name: of.GetName(), UID: of.GetUID(), Controller: new(true)})
}

// release removes the finalizers that External Secrets Operator gave an object: no other
// program is there to do so. Terrier needs none of its own.
func release(ctx context.Context, live client.Client, o client.Object) error {
	after := o.DeepCopyObject().(client.Object)
	after.SetFinalizers(slices.DeleteFunc(after.GetFinalizers(), func(name string) bool {
		domain, _, _ := strings.Cut(name, "/")
		return domain == externalsecret.Group || strings.HasSuffix(domain, "."+externalsecret.Group)
	}))
	if len(after.GetFinalizers()) == len(o.GetFinalizers()) {
		return nil
	}
	if err := live.Patch(ctx, after, client.MergeFromWithOptions(o, client.MergeFromWithOptimisticLock{}), client.FieldOwner(manager)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing the finalizers of %s: %w", o.GetName(), err)
	}
	return nil
}
