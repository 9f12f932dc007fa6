package controller

import (
	"context"
	"fmt"
	"maps"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/location"
	"github.com/terrier-iac/terrier/internal/stack"
)

// ensureOwned makes the source that an object owns, or makes it say again what it has to
// say. It goes with its owner. A source of that name that is not the object's own is
// left as it is, and holds the stack up.
func (cl *claimer) ensureOwned(ctx context.Context, p *pass) error {
	want := p.st.Owned
	if want == nil || p.o.Deleting || p.o.Blocked != nil || p.unreadable != nil {
		return nil
	}
	if err := cl.mayName(ctx, p, want); err != nil {
		p.o.Blocked = blockedBy(fmt.Errorf("the credentials for the source: %w", err), stack.SourceDenied)
		return nil
	}
	is := newOwned(want)
	err := cl.cache.Get(ctx, client.ObjectKeyFromObject(want), is)
	switch {
	case apierrors.IsNotFound(err):
		err = cl.live.Create(ctx, copyOf(want), client.FieldOwner(kube.FieldManager))
		if apierrors.IsAlreadyExists(err) {
			return nil // the cache does not have it yet, and wakes the stack
		}
	case err != nil:
	case !metav1.IsControlledBy(is, p.obj):
		p.o.Blocked = &stack.Blocked{Kind: fault.Denied, Reason: stack.SourceDenied, Message: fmt.Sprintf(
			"The %s %s/%s exists and belongs to another object, and the stack needs one of that name: delete it, or give the stack another name", kindOf(want), want.GetNamespace(), want.GetName())}
		return nil
	case !saysAgain(is, want):
		before := copyOf(is)
		correct(is, want)
		err = cl.live.Patch(ctx, is, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(kube.FieldManager))
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return nil // its change wakes the stack
		}
	}
	if err != nil {
		p.o.Blocked = blockedBy(fmt.Errorf("writing %s %s/%s: %w", kindOf(want), want.GetNamespace(), want.GetName(), err), stack.SourceFailed)
	}
	return nil
}

// newOwned returns an empty source of the kind of want.
func newOwned(want client.Object) client.Object {
	if _, image := want.(*sourcev1.OCIRepository); image {
		return &sourcev1.OCIRepository{}
	}
	return &sourcev1.GitRepository{}
}

func copyOf(o client.Object) client.Object { return o.DeepCopyObject().(client.Object) }

func kindOf(o client.Object) string { return o.GetObjectKind().GroupVersionKind().Kind }

// mayName refuses a source that would send a Secret to a host which the stack chooses, and
// that the ServiceAccount of the stack may not read: sources are read with the rights of
// their controller.
func (cl *claimer) mayName(ctx context.Context, p *pass, want client.Object) error {
	var named *fluxmeta.LocalObjectReference
	switch want := want.(type) {
	case *sourcev1.GitRepository:
		named = want.Spec.SecretRef
	case *sourcev1.OCIRepository:
		named = want.Spec.SecretRef
	}
	if named == nil || cl.jobs.config.ReadAs == "" {
		return nil
	}
	_, _, err := cl.jobs.reader(p).Read(ctx, stack.Ref{Kind: "Secret", Namespace: want.GetNamespace(), Name: named.Name})
	if fault.Of(err) == fault.Missing { // the source waits for it
		return nil
	}
	return err
}

// saysAgain reports whether a source says what it has to say.
func saysAgain(is, want client.Object) bool {
	corrected := copyOf(is)
	correct(corrected, want)
	return equality.Semantic.DeepEqual(is, corrected)
}

// correct has a source say what it has to say. What others wrote into fields that the
// owner says nothing about stays.
func correct(is, want client.Object) {
	switch want := want.(type) {
	case *sourcev1.GitRepository:
		is := &is.(*sourcev1.GitRepository).Spec
		is.URL, is.Reference, is.SecretRef, is.Interval = want.Spec.URL, want.Spec.Reference, want.Spec.SecretRef, want.Spec.Interval
	case *sourcev1.OCIRepository:
		is := &is.(*sourcev1.OCIRepository).Spec
		is.URL, is.Reference, is.SecretRef, is.Interval = want.Spec.URL, want.Spec.Reference, want.Spec.SecretRef, want.Spec.Interval
		is.LayerSelector, is.Timeout, is.Ignore = want.Spec.LayerSelector, want.Spec.Timeout, want.Spec.Ignore
	}
	is.SetLabels(with(is.GetLabels(), want.GetLabels()))
	annotations := with(is.GetAnnotations(), want.GetAnnotations())
	for _, ours := range []string{location.SearchAnnotation, location.SSHKeyAnnotation, location.DockerConfigAnnotation} {
		if _, wanted := want.GetAnnotations()[ours]; !wanted {
			delete(annotations, ours)
		}
	}
	is.SetAnnotations(annotations)
}

func with(is, want map[string]string) map[string]string {
	out := maps.Clone(is)
	if out == nil && len(want) > 0 {
		out = map[string]string{}
	}
	maps.Copy(out, want)
	return out
}
