package children

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/terrier-iac/terrier/internal/tenant"
)

// Names on objects, as Tenant Operator gives them; those of terrier.dev are Terrier's.
const (
	manager = "tenant-operator"

	tenantGroup = "operator.kubernetes-tenants.org"
	tenantKind  = "Tenant"

	labelTenant    = "kubernetes-tenants.org/tenant"
	labelNamespace = "kubernetes-tenants.org/tenant-namespace"
	labelOrphaned  = "kubernetes-tenants.org/orphaned"
	labelTenantID  = "terrier.dev/tenant-id"

	annotationOrphanedAt     = "kubernetes-tenants.org/orphaned-at"
	annotationOrphanedReason = "kubernetes-tenants.org/orphaned-reason"
	annotationDeletionPolicy = "kubernetes-tenants.org/deletion-policy"
	annotationCreatedOnce    = "kubernetes-tenants.org/created-once"

	// The name of the Tenant where it is too long for labelTenant, which then has
	// a hash of it.
	annotationTenant = "terrier.dev/tenant"
)

// liveOf reads the metadata of an object; its state is left out.
func liveOf(u *unstructured.Unstructured, owner Owner) Live {
	annotations := u.GetAnnotations()
	l := Live{
		Exists: true, Deleting: u.GetDeletionTimestamp() != nil,
		Orphaned:    u.GetLabels()[labelOrphaned] == "true",
		CreatedOnce: annotations[annotationCreatedOnce] == "true", DeletionPolicy: annotations[annotationDeletionPolicy],
		Finalizers: u.GetFinalizers(), UID: string(u.GetUID()), ResourceVersion: u.GetResourceVersion(), Generation: u.GetGeneration(),
		Object: u.Object,
	}
	l.Tenant = holder(u)
	l.Owned = holds(owner, l.Tenant) && !otherTenant(u, owner)
	l.Tied = slices.ContainsFunc(u.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return string(r.UID) == owner.UID })
	return l
}

// holder is the Tenant that an object belongs to, by its labels or else by its
// owners; zero if it belongs to none. If only the label of a long name is left, the
// label is the name.
func holder(o metav1.Object) types.NamespacedName {
	if labels := o.GetLabels(); labels[labelTenant] != "" {
		namespace := labels[labelNamespace]
		if namespace == "" {
			namespace = o.GetNamespace()
		}
		name := labels[labelTenant]
		if whole := o.GetAnnotations()[annotationTenant]; whole != "" && tenant.Label(whole) == name {
			name = whole
		}
		return types.NamespacedName{Namespace: namespace, Name: name}
	}
	for _, r := range o.GetOwnerReferences() {
		if isTenant(r) {
			return types.NamespacedName{Namespace: o.GetNamespace(), Name: r.Name}
		}
	}
	return types.NamespacedName{}
}

// holds reports whether a holder is this owner, by its name or by its label.
func holds(o Owner, holder types.NamespacedName) bool {
	return holder == o.key() || holder == labelled(o.key())
}

// labelled is a Tenant as labels name it.
func labelled(t types.NamespacedName) types.NamespacedName {
	return types.NamespacedName{Namespace: t.Namespace, Name: tenant.Label(t.Name)}
}

func isTenant(r metav1.OwnerReference) bool {
	group, _, _ := strings.Cut(r.APIVersion, "/")
	return r.Kind == tenantKind && group == tenantGroup
}

// otherTenant reports whether an object belongs to a former Tenant of this name,
// which was deleted and created again since.
func otherTenant(o metav1.Object, owner Owner) bool {
	refs := slices.DeleteFunc(slices.Clone(o.GetOwnerReferences()), func(r metav1.OwnerReference) bool { return !isTenant(r) })
	return len(refs) > 0 && !slices.ContainsFunc(refs, func(r metav1.OwnerReference) bool { return string(r.UID) == owner.UID })
}

// taken is a conflict if another owner holds the whole object.
func taken(key Key, u *unstructured.Unstructured, w Write) error {
	if t := holder(u); t.Name != "" && !holds(w.Owner, t) {
		return &ConflictError{Key: key, Holder: "Tenant " + t.String()}
	}
	if r := metav1.GetControllerOf(u); r != nil && !isTenant(*r) && !w.Force {
		return &ConflictError{Key: key, Holder: r.Kind + " " + r.Name}
	}
	return nil
}

// decorated is the object of w as it is written over live (nil if there is none),
// with the labels, annotations and references that name its owner.
func (c *Cluster) decorated(key Key, w Write, live *unstructured.Unstructured) *unstructured.Unstructured {
	u := (&unstructured.Unstructured{Object: w.Object}).DeepCopy()
	delete(u.Object, "status")
	if live != nil && !hasDefaults(live, w.Defaults) {
		// Taking over a stack whose plans wait for an approval must not apply it.
		for _, field := range w.Defaults {
			unstructured.RemoveNestedField(u.Object, field...)
		}
	}
	labels, annotations := u.GetLabels(), u.GetAnnotations()
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[annotationDeletionPolicy] = string(w.Deletion)
	if w.Creation == tenant.Once {
		annotations[annotationCreatedOnce] = "true"
	}
	owns := c.owns(key, w, live)
	if refs := references(w, live, owns); refs != nil {
		u.SetOwnerReferences(refs)
	}
	if !owns {
		labels[labelTenant], labels[labelNamespace] = tenant.Label(w.Owner.Name), w.Owner.Namespace
		if labels[labelTenant] != w.Owner.Name {
			annotations[annotationTenant] = w.Owner.Name
		}
	}
	// An object that another operator created for this tenant is not written only
	// to add this label.
	if _, has := labels[labelTenantID]; !has && w.Owner.TenantID != "" && len(validation.IsValidLabelValue(w.Owner.TenantID)) == 0 {
		if live == nil || live.GetLabels()[labelTenantID] != "" {
			labels[labelTenantID] = w.Owner.TenantID
		}
	}
	if len(labels) == 0 {
		labels = nil // the server does not keep an empty one
	}
	u.SetLabels(labels)
	u.SetAnnotations(annotations)
	return u
}

// references are the owners that are written: with apply only the Tenant, since
// the server keeps those of others. The other strategies write the whole list, and
// so have to name the owners of others and leave out the Tenant where it is not to
// own; nil leaves the list as it is.
func references(w Write, live *unstructured.Unstructured, owns bool) []metav1.OwnerReference {
	var refs []metav1.OwnerReference
	if live != nil && w.Patch != tenant.Apply && w.Patch != "" && len(live.GetOwnerReferences()) > 0 {
		refs = slices.DeleteFunc(live.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return isOf(r, w.Owner) })
	}
	if owns {
		yes := true
		refs = append(refs, metav1.OwnerReference{
			APIVersion: w.Owner.APIVersion, Kind: w.Owner.Kind, Name: w.Owner.Name, UID: types.UID(w.Owner.UID),
			Controller: &yes, BlockOwnerDeletion: &yes,
		})
	}
	return refs
}

// isOf reports whether a reference is to a Tenant, or to an earlier one of its name.
func isOf(r metav1.OwnerReference, o Owner) bool {
	return string(r.UID) == o.UID || isTenant(r) && r.Name == o.Name
}

// hasDefaults reports whether Terrier created an object with its defaults: the
// object has Terrier's label, or, if that was removed, Terrier manages one of the
// fields.
func hasDefaults(live *unstructured.Unstructured, defaults [][]string) bool {
	if live.GetLabels()[labelTenantID] != "" {
		return true
	}
	for _, entry := range live.GetManagedFields() {
		if entry.Manager != manager || entry.Subresource != "" {
			continue
		}
		for _, field := range defaults {
			if set := fieldSet(entry); set != nil && set.Has(fieldPath(field)) {
				return true
			}
		}
	}
	return false
}

func fieldPath(names []string) fieldpath.Path {
	var p fieldpath.Path
	for _, n := range names {
		p = append(p, fieldpath.PathElement{FieldName: &n})
	}
	return p
}

// owns reports whether an ownerReference ties an object to its Tenant, as in
// Tenant Operator; otherwise labels name the Tenant. An object that is
// cluster-scoped, in another namespace or to be retained must not be deleted with
// the Tenant, and an object has one controller only.
func (c *Cluster) owns(key Key, w Write, live *unstructured.Unstructured) bool {
	namespaced, known := c.types.IsNamespaced(key.APIVersion(), key.Kind)
	if known && !namespaced || key.Namespace != w.Owner.Namespace || w.Deletion == tenant.Retain || w.Untied {
		return false
	}
	if live == nil {
		return true
	}
	r := metav1.GetControllerOf(live)
	return r == nil || isTenant(*r)
}

// Orphan retains the object with this UID: it removes the Tenant's ownerReference
// and tracking labels, and adds the markers of an orphan. References of others
// stay.
func (c *Cluster) Orphan(ctx context.Context, key Key, uid, reason string, owner Owner, now time.Time) error {
	for range 5 {
		live, err := c.Read(ctx, key, owner)
		if err != nil || !live.Exists || live.UID != uid {
			return err
		}
		u := &unstructured.Unstructured{Object: live.Object}
		refs := slices.DeleteFunc(slices.Clone(u.GetOwnerReferences()), func(r metav1.OwnerReference) bool { return isOf(r, owner) })
		_, err = c.patch(ctx, key, map[string]any{"metadata": map[string]any{
			"resourceVersion": live.ResourceVersion, "ownerReferences": refs,
			"labels":      map[string]any{labelTenant: nil, labelNamespace: nil, labelOrphaned: "true"},
			"annotations": map[string]any{annotationTenant: nil, annotationOrphanedAt: now.UTC().Format(time.RFC3339), annotationOrphanedReason: reason},
		}})
		if !apierrors.IsConflict(err) {
			return ignoreNotFound(err)
		}
	}
	return errors.New(key.String() + " changes too often to be marked as retained")
}

// Untie takes the Tenant's ownerReference off the object with this UID, and names the Tenant
// by labels. Kubernetes deletes what an ownerReference ties to a Tenant as soon as that is
// deleted in the foreground: before Terrier can mark it as retained.
func (c *Cluster) Untie(ctx context.Context, key Key, uid string, deletion tenant.DeletionPolicy, owner Owner) error {
	for range 5 {
		live, err := c.Read(ctx, key, owner)
		if err != nil || !live.Exists || live.UID != uid || !live.Tied {
			return err
		}
		u := &unstructured.Unstructured{Object: live.Object}
		refs := slices.DeleteFunc(slices.Clone(u.GetOwnerReferences()), func(r metav1.OwnerReference) bool { return isOf(r, owner) })
		annotations := map[string]any{annotationDeletionPolicy: string(deletion)}
		if tenant.Label(owner.Name) != owner.Name {
			annotations[annotationTenant] = owner.Name
		}
		_, err = c.patch(ctx, key, map[string]any{"metadata": map[string]any{
			"resourceVersion": live.ResourceVersion, "ownerReferences": refs,
			"labels":      map[string]any{labelTenant: tenant.Label(owner.Name), labelNamespace: owner.Namespace},
			"annotations": annotations,
		}})
		if !apierrors.IsConflict(err) {
			return ignoreNotFound(err)
		}
	}
	return errors.New(key.String() + " changes too often to be detached from its Tenant")
}

// patch is a JSON merge patch as tenant-operator.
func (c *Cluster) patch(ctx context.Context, key Key, change map[string]any) (*unstructured.Unstructured, error) {
	objects, err := c.at(c.writer, key)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(change)
	if err != nil {
		return nil, err
	}
	return objects.Patch(ctx, key.Name, types.MergePatchType, data, metav1.PatchOptions{FieldManager: manager})
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
