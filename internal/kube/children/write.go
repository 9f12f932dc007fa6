package children

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/tenant"
)

// Write makes an object as w says, if it is not. It leaves an object alone that is
// being deleted: its successor is another object.
func (c *Cluster) Write(ctx context.Context, w Write) (Live, error) {
	key := tenant.RefOf(w.Object)
	ignored, err := c.ignored(w)
	if err != nil {
		return Live{}, err
	}
	objects, err := c.at(c.writer, key)
	if err != nil {
		return Live{}, err
	}
	if w.Absent && w.Seen == nil {
		if made, err := c.create(ctx, objects, key, w); !mayExist(err) {
			return made, err
		}
	}
	before, err := c.seen(ctx, key, w)
	if err != nil {
		return Live{}, err
	}
	if !before.Exists {
		w.Absent = false
		return c.create(ctx, objects, key, w)
	}
	live := &unstructured.Unstructured{Object: before.Object}
	if before.Deleting {
		return before, nil
	}
	if err := taken(key, live, w); err != nil {
		return Live{}, err
	}
	if w.Creation == tenant.Once && before.CreatedOnce && !before.Orphaned && holds(w.Owner, before.Tenant) {
		return before, nil
	}
	return c.update(ctx, objects, key, w, before, ignored)
}

// update makes an object that exists as w says, if it is not.
func (c *Cluster) update(ctx context.Context, objects dynamic.ResourceInterface, key Key, w Write, before Live, ignored tenant.Ignored) (Live, error) {
	live := &unstructured.Unstructured{Object: before.Object}
	desired := c.decorated(key, w, live)
	if err := ignored.Keep(desired.Object, live.Object); err != nil {
		kind := fault.Invalid
		if errors.Is(err, tenant.ErrListUnknown) {
			kind = fault.Missing
		}
		return Live{}, fault.New(kind, "ValidationFailed", err)
	}
	asked := desired.DeepCopy()
	ignored.Drop(asked.Object)
	if !before.Orphaned && unchanged(w.Patch, asked, desired, live) {
		return before, nil
	}
	u, err := live, error(nil)
	if w.Creation != tenant.Once || !before.CreatedOnce {
		if u, err = c.write(ctx, objects, key, w, desired, live); err != nil {
			return Live{}, err
		}
	}
	if before.Orphaned { // last, so that it is tried again if the write is refused
		if u, err = c.adopt(ctx, key, w, u); err != nil {
			return Live{}, err
		}
	}
	after := c.found(ctx, key, u, w.Owner)
	switch {
	case before.Orphaned:
		after.Change = Adopted
	case after.ResourceVersion != before.ResourceVersion:
		after.Change = Updated
	}
	return after, nil
}

// ignored are the fields of w that are left to other managers.
func (c *Cluster) ignored(w Write) (tenant.Ignored, error) {
	key := tenant.RefOf(w.Object)
	lists := func(path []string) tenant.List { return c.types.List(key.APIVersion(), key.Kind, path) }
	ignored, err := tenant.ParseIgnored(w.IgnoreFields, lists)
	if err == nil {
		err = ignored.Check(w.Object)
	}
	if err != nil {
		return tenant.Ignored{}, fault.New(fault.Invalid, "ValidationFailed", err)
	}
	return ignored, nil
}

// seen is the object as it is; it is read unless the caller just did.
func (c *Cluster) seen(ctx context.Context, key Key, w Write) (Live, error) {
	if w.Seen != nil && (!w.Seen.Exists || w.Seen.Object != nil) {
		return *w.Seen, nil
	}
	return c.Read(ctx, key, w.Owner)
}

// noVersion is a resourceVersion that no object has, since etcd never gives it to
// one. An apply with it creates an object, and is a conflict with an existing one,
// whatever its fields and even if it is forced.
const noVersion = "1"

// mayExist reports whether the error of a create may be due to an existing object.
// An API server that takes no resourceVersion with a new object finds it invalid.
func mayExist(err error) bool {
	_, conflict := errors.AsType[*ConflictError](err)
	return conflict || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// create creates an object. With apply it is a server-side apply, so that its
// fields are managed as in later writes.
func (c *Cluster) create(ctx context.Context, objects dynamic.ResourceInterface, key Key, w Write) (Live, error) {
	desired := c.decorated(key, w, nil)
	var u *unstructured.Unstructured
	var err error
	if w.Patch == tenant.Merge || w.Patch == tenant.Replace {
		u, err = objects.Create(ctx, desired, metav1.CreateOptions{FieldManager: manager})
	} else {
		if w.Absent {
			desired.SetResourceVersion(noVersion)
		}
		u, err = apply(ctx, objects, key, desired, w.Force)
	}
	if err != nil {
		return Live{}, err
	}
	live := c.found(ctx, key, u, w.Owner)
	live.Change = Created
	return live, nil
}

// adopt removes the markers of an orphan, and names its Tenant: an object with
// creationPolicy Once is not written otherwise.
func (c *Cluster) adopt(ctx context.Context, key Key, w Write, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	labels := map[string]any{labelOrphaned: nil}
	annotations := map[string]any{annotationOrphanedAt: nil, annotationOrphanedReason: nil, annotationDeletionPolicy: string(w.Deletion)}
	owns := c.owns(key, w, live)
	if !owns {
		labels[labelTenant], labels[labelNamespace] = tenant.Label(w.Owner.Name), w.Owner.Namespace
		if labels[labelTenant] != w.Owner.Name {
			annotations[annotationTenant] = w.Owner.Name
		}
	}
	w.Patch = tenant.Merge // what this is
	return c.patch(ctx, key, map[string]any{"metadata": map[string]any{
		"resourceVersion": live.GetResourceVersion(), "ownerReferences": references(w, live, owns), "labels": labels,
		"annotations": annotations,
	}})
}

// write brings an existing object to the desired one, by the strategy of w.
func (c *Cluster) write(ctx context.Context, objects dynamic.ResourceInterface, key Key, w Write, desired, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	switch w.Patch {
	case tenant.Merge:
		if err := c.held(key, w, desired, live); err != nil {
			return nil, err
		}
		data, err := json.Marshal(desired.Object)
		if err != nil {
			return nil, err
		}
		return objects.Patch(ctx, key.Name, types.MergePatchType, data, metav1.PatchOptions{FieldManager: manager})
	case tenant.Replace:
		keepServerFields(desired, live, w.Force)
		if err := c.held(key, w, desired, live); err != nil {
			return nil, err
		}
		return objects.Update(ctx, desired, metav1.UpdateOptions{FieldManager: manager})
	case tenant.Apply, "":
		return apply(ctx, objects, key, desired, w.Force)
	}
	return nil, fault.New(fault.Invalid, "PatchStrategyUnknown", fmt.Errorf("patchStrategy %q is none of apply, merge and replace", w.Patch))
}

// apply is a server-side apply. One that changes nothing does not change the
// resource version either.
func apply(ctx context.Context, objects dynamic.ResourceInterface, key Key, desired *unstructured.Unstructured, force bool) (*unstructured.Unstructured, error) {
	data, err := runtime.Encode(unstructured.UnstructuredJSONScheme, desired)
	if err != nil {
		return nil, err
	}
	u, err := objects.Patch(ctx, key.Name, types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: manager, Force: &force})
	if apierrors.IsConflict(err) {
		if conflict := managed(key, err); conflict != nil {
			return nil, conflict
		}
	}
	return u, err
}
