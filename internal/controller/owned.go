package controller

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
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
	is := newOwned(want)
	err := cl.cache.Get(ctx, client.ObjectKeyFromObject(want), is)
	if err := cl.mayName(ctx, p, want, is); err != nil {
		p.o.Blocked = blockedBy(fmt.Errorf("the credentials for the source: %w", err), stack.SourceDenied)
		return nil
	}
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

// formerSources deletes sources that stacks had before their code moved elsewhere: from git
// into an image, or back.
type formerSources struct {
	cache  client.Reader
	live   client.Client
	events Events
	log    *slog.Logger
}

// drop deletes the source of the other kind once the stack has been applied with the code of
// its present one. It deletes what the object controls, as it was read, and nothing else. The
// stack is not held up by it: what fails is tried again by a later pass.
func (f *formerSources) drop(ctx context.Context, p *pass) error {
	want, m := p.st.Owned, p.o.Status
	applied := m.Applied != nil && !m.Destroyed && p.o.PlanInputs.Source != "" && m.Applied.PlanInputs.Source == p.o.PlanInputs.Source
	if want == nil || p.o.Deleting || p.o.Run != nil || p.decision.Ready != stack.Ready || !applied {
		return nil
	}
	var former client.Object = &sourcev1.OCIRepository{}
	kind := sourcev1.OCIRepositoryKind
	if _, image := want.(*sourcev1.OCIRepository); image {
		former, kind = &sourcev1.GitRepository{}, sourcev1.GitRepositoryKind
	}
	err := f.cache.Get(ctx, client.ObjectKeyFromObject(want), former)
	if err == nil && (!metav1.IsControlledBy(former, p.obj) || !former.GetDeletionTimestamp().IsZero()) {
		return nil
	}
	if err == nil {
		uid, version := former.GetUID(), former.GetResourceVersion()
		err = f.live.Delete(ctx, former, client.Preconditions{UID: &uid, ResourceVersion: &version})
	}
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err), meta.IsNoMatchError(err):
	case err != nil:
		f.log.Warn("former source of a stack not deleted", "stack", client.ObjectKeyFromObject(p.obj).String(), "source", kind+" "+want.GetName(), "err", err)
	default:
		f.events.Event(p.obj, normal, "FormerSourceDeleted", fmt.Sprintf("The %s %s/%s was deleted: the stack was applied with the code of the %s of that name", kind, want.GetNamespace(), want.GetName(), kindOf(want)))
	}
	return nil
}

func copyOf(o client.Object) client.Object { return o.DeepCopyObject().(client.Object) }

func kindOf(o client.Object) string { return o.GetObjectKind().GroupVersionKind().Kind }

// rightTrusted is how long the right to read the Secret of a source is not asked for again
// while neither the object nor what its source fetched changes.
const rightTrusted = 10 * time.Minute

// readRight says for what the ServiceAccount of a stack had the right to read the Secret of
// its source.
type readRight struct {
	generation int64  // of the object, which names the account, the Secret and the host
	artifact   string // digest of what the source had fetched
	source     string // UID of the source
}

// mayName refuses a source that would send a Secret to a host which the stack chooses, and
// that the ServiceAccount of the stack may not read: sources are read with the rights of
// their controller. The Secret is read before the source says anything new and before the
// stack uses what it fetched, so a right that was withdrawn brings no code into a run.
func (cl *claimer) mayName(ctx context.Context, p *pass, want, is client.Object) error {
	named, _ := credentialsOf(want)
	if named == nil || cl.jobs.config.ReadAs == "" {
		return nil
	}
	_, fetched := credentialsOf(is)
	e, now := p.entry, readRight{generation: p.obj.GetGeneration(), source: string(is.GetUID())}
	if fetched != nil {
		now.artifact = fetched.Digest
	}
	if age := p.o.Now.Sub(e.rightSeen); e.right == now && age >= 0 && age < rightTrusted && saysAgain(is, want) {
		return nil
	}
	e.right, e.rightSeen = readRight{}, time.Time{}
	_, _, err := cl.jobs.reader(p).Read(ctx, stack.Ref{Kind: "Secret", Namespace: want.GetNamespace(), Name: named.Name})
	if err != nil && fault.Of(err) != fault.Missing { // the source waits for one that is missing
		return err
	}
	e.right, e.rightSeen = now, p.o.Now
	return nil
}

// credentialsOf is the Secret that a source names, and what the source has fetched.
func credentialsOf(o client.Object) (*fluxmeta.LocalObjectReference, *fluxmeta.Artifact) {
	switch o := o.(type) {
	case *sourcev1.GitRepository:
		return o.Spec.SecretRef, o.Status.Artifact
	case *sourcev1.OCIRepository:
		return o.Spec.SecretRef, o.Status.Artifact
	default:
		return nil, nil
	}
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
