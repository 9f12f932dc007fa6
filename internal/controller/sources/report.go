package sources

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/source"
)

// report is the only writer of status and events. It writes nothing when there
// is nothing new.
func (r *reconciler) report(ctx context.Context, p *pass, o observation, failure error) error {
	if token, ok := meta.ReconcileAnnotationValue(p.obj.GetAnnotations()); ok {
		*p.fields.handled = token
	}
	was := condition(p, meta.ReadyCondition)
	if *p.fields.artifact != nil && !o.stored && !p.fresh {
		*p.fields.artifact = nil // it cannot be fetched
		remove(p, sourcev1.ArtifactInStorageCondition)
	}
	if a := *p.fields.artifact; a != nil {
		a.URL = r.BaseURL() + source.ArtifactPath(r.Key, a.Path)
	}
	if failure != nil {
		r.failed(p, o, failure)
	} else {
		r.succeeded(p)
	}
	if !equality.Semantic.DeepEqual(p.before, p.obj) {
		patch := client.MergeFromWithOptions(p.before, client.MergeFromWithOptimisticLock{})
		if err := r.client.Status().Patch(ctx, p.obj, patch, client.FieldOwner(manager)); err != nil {
			return fmt.Errorf("writing the status: %w", err)
		}
	}
	r.tell(p, was)
	if failure != nil {
		return nil
	}
	if err := r.Store.Collect(p.key, (*p.fields.artifact).Path, keep, r.Now().Add(-keepFor)); err != nil {
		r.Log.Warn("old artifacts not collected", "source", p.key, "err", err)
	}
	return nil
}

func (r *reconciler) succeeded(p *pass) {
	*p.fields.generation = p.obj.GetGeneration()
	message := fmt.Sprintf("stored artifact for revision '%s'", (*p.fields.artifact).Revision)
	set(p, meta.ReadyCondition, metav1.ConditionTrue, meta.SucceededReason, message)
	set(p, sourcev1.ArtifactInStorageCondition, metav1.ConditionTrue, meta.SucceededReason, message)
	remove(p, meta.ReconcilingCondition, meta.StalledCondition, sourcev1.FetchFailedCondition, sourcev1.StorageOperationFailedCondition)
	p.verified()
}

func (r *reconciler) failed(p *pass, o observation, err error) {
	reason, message := fault.Reason(err, r.kind.reason), source.Message(err)
	what, other := sourcev1.FetchFailedCondition, sourcev1.StorageOperationFailedCondition
	if reason == source.ReasonStorage {
		what, other = other, what
	}
	set(p, meta.ReadyCondition, metav1.ConditionFalse, reason, message)
	set(p, what, metav1.ConditionTrue, reason, message)
	remove(p, other)
	p.refused(o, err)
	if stalled(err) {
		// Observed, and nothing more will come of this generation by itself.
		*p.fields.generation = p.obj.GetGeneration()
		set(p, meta.StalledCondition, metav1.ConditionTrue, reason, message)
		remove(p, meta.ReconcilingCondition)
		return
	}
	set(p, meta.ReconcilingCondition, metav1.ConditionTrue, meta.ProgressingWithRetryReason, message)
	remove(p, meta.StalledCondition)
}

// tell writes an event when there is something to tell: a new artifact, a
// failure that is not the one before, or its end.
func (r *reconciler) tell(p *pass, was metav1.Condition) {
	is := condition(p, meta.ReadyCondition)
	switch {
	case p.unrepaired != nil:
		r.Events.Event(p.obj, corev1.EventTypeWarning, fault.Reason(p.unrepaired, r.kind.reason), fmt.Sprintf(
			"The artifact stays as an earlier release made it, and stacks whose root module has a pointer of Git LFS stay stalled: %s. "+
				"Terrier tries it again when the source changes or has a new revision, and when its annotation %s does", source.Message(p.unrepaired), meta.ReconcileRequestAnnotation))
	case p.fresh:
		r.Events.Event(p.obj, corev1.EventTypeNormal, "NewArtifact", is.Message)
	case is.Status == metav1.ConditionFalse && (was.Status != is.Status || was.Reason != is.Reason || was.Message != is.Message):
		r.Events.Event(p.obj, corev1.EventTypeWarning, is.Reason, is.Message)
		r.Log.Info("source not ready", "source", p.key, "reason", is.Reason, "message", is.Message)
	case is.Status == metav1.ConditionTrue && was.Status == metav1.ConditionFalse:
		r.Events.Event(p.obj, corev1.EventTypeNormal, meta.SucceededReason, is.Message)
	}
}

// condition returns a copy, the zero Condition if there is none.
func condition(p *pass, kind string) metav1.Condition {
	if c := apimeta.FindStatusCondition(*p.fields.conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{}
}

func set(p *pass, kind string, status metav1.ConditionStatus, reason, message string) {
	apimeta.SetStatusCondition(p.fields.conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: p.obj.GetGeneration(),
	})
}

func remove(p *pass, kinds ...string) {
	for _, k := range kinds {
		apimeta.RemoveStatusCondition(p.fields.conditions, k)
	}
}

// list names things in an order that does not change by itself.
func list(names []string) string {
	slices.SortFunc(names, cmp.Compare[string])
	return strings.Join(names, ", ")
}

func errMissingKeys(name string) error {
	return fmt.Errorf("the Secret %q needs accesskey and secretkey", name)
}
