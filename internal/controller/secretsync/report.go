package secretsync

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/externalsecret"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Conditions of an ExternalSecret. Stale is our own: the Secret has what was read before.
const (
	conditionReady = "Ready"
	conditionStale = "Stale"
)

// messageMost bounds a message of a condition, in bytes.
const messageMost = 1 << 10

// status is that of an ExternalSecret, as far as it is ours.
type status struct {
	refreshed  time.Time
	synced     string
	conditions []metav1.Condition
}

func (s status) failed() bool {
	c := apimeta.FindStatusCondition(s.conditions, conditionReady)
	return c != nil && c.Status != metav1.ConditionTrue
}

// statusOf reads the status. One that cannot be read is empty: the object is read again.
func statusOf(o *unstructured.Unstructured) status {
	var into struct {
		Status struct {
			RefreshTime *metav1.Time       `json:"refreshTime"`
			Synced      string             `json:"syncedResourceVersion"`
			Conditions  []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &into) != nil {
		return status{}
	}
	s := status{synced: into.Status.Synced, conditions: into.Status.Conditions}
	if into.Status.RefreshTime != nil {
		s.refreshed = into.Status.RefreshTime.Time
	}
	return s
}

// version names what of an object decides what is read: its spec, and its labels and
// annotations, so that any annotation asks for another reading (force-sync).
func version(o client.Object) string {
	text, err := json.Marshal([]map[string]string{o.GetLabels(), o.GetAnnotations()})
	if err != nil { // there are texts only
		return ""
	}
	return fmt.Sprintf("%d-%s", o.GetGeneration(), strings.TrimPrefix(stack.Sum(text), "sha256:")[:24])
}

// report is the only writer of the status and of events. It writes nothing if nothing is
// new.
func (r *reconciler) report(ctx context.Context, p *pass, failure error) error {
	next := p.was
	next.conditions = append([]metav1.Condition(nil), p.was.conditions...)
	set := func(kind string, is bool, reason, message string) {
		state := metav1.ConditionFalse
		if is {
			state = metav1.ConditionTrue
		}
		apimeta.SetStatusCondition(&next.conditions, metav1.Condition{Type: kind, Status: state, Reason: reason, Message: fault.Shorten(message, messageMost), ObservedGeneration: p.obj.GetGeneration()})
	}
	switch {
	case failure != nil:
		reason := fault.Reason(failure, "SecretSyncedError")
		message, stale := externalsecret.Kept(failure, p.live, p.spec.Target.Name, p.was.refreshed), externalsecret.IsStale(failure, p.live)
		if reason == reasonRestart {
			message, stale = failure.Error(), false
		}
		set(conditionReady, false, reason, message)
		if stale {
			set(conditionStale, true, reason, "the Secret has what was read before: the condition Ready says why it was not read again")
		} else {
			set(conditionStale, false, reason, "no Secret has what was read before")
		}
	case p.read || p.kept:
		if p.read {
			next.refreshed, next.synced = r.Now(), version(p.obj)
		}
		set(conditionReady, true, p.reason, p.message)
		set(conditionStale, false, p.reason, "the Secret has what was read last")
	}
	if err := r.patch(ctx, p, next); err != nil {
		return err
	}
	r.tell(p, next)
	return nil
}

func (r *reconciler) patch(ctx context.Context, p *pass, next status) error {
	after := p.obj.DeepCopy()
	set := map[string]any{"syncedResourceVersion": next.synced}
	if !next.refreshed.IsZero() {
		set["refreshTime"] = next.refreshed.UTC().Format(time.RFC3339)
	}
	if p.spec.Target.Name != "" && p.spec.Target.CreationPolicy != externalsecret.None {
		set["binding"] = map[string]any{"name": p.spec.Target.Name}
	}
	var conditions []any
	for _, c := range next.conditions {
		u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&c)
		if err != nil {
			return err
		}
		conditions = append(conditions, u)
	}
	set["conditions"] = conditions
	old, _, _ := unstructured.NestedMap(p.obj.Object, "status") // nil if there is none, or it is none
	merged := maps.Clone(old)
	if merged == nil {
		merged = map[string]any{}
	}
	maps.Copy(merged, set)
	after.Object["status"] = merged
	if equality.Semantic.DeepEqual(old, merged) {
		return nil
	}
	if err := r.Live.Status().Patch(ctx, after, client.MergeFromWithOptions(p.obj, client.MergeFromWithOptimisticLock{}), client.FieldOwner(manager)); err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	return nil
}

// tell writes an event when there is something to tell: another Secret, a failure that is
// not the one before, or its end.
func (r *reconciler) tell(p *pass, next status) {
	was, is := apimeta.FindStatusCondition(p.was.conditions, conditionReady), apimeta.FindStatusCondition(next.conditions, conditionReady)
	if is == nil {
		return
	}
	failed := is.Status != metav1.ConditionTrue
	same := was != nil && was.Status == is.Status
	switch {
	case failed && !(same && was.Reason == is.Reason && was.Message == is.Message):
		r.Events.Event(p.obj, corev1.EventTypeWarning, is.Reason, is.Message)
		r.Log.Info("external secret not ready", "object", client.ObjectKeyFromObject(p.obj).String(), "reason", is.Reason, "message", is.Message)
	case !failed && (p.wrote == externalsecret.Write || p.wrote == externalsecret.Remove || !same):
		r.Events.Event(p.obj, corev1.EventTypeNormal, is.Reason, is.Message)
	}
}
