package secretsync

import (
	"context"
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
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/terrier-iac/terrier/internal/externalsecret"
	"github.com/terrier-iac/terrier/internal/fault"
)

// storeReconciler says in the status of a store whether it can be used. What uses the store
// does not depend on it.
type storeReconciler struct {
	Options
	stores *stores
	kind   string
	cache  client.Reader
	guard  *guard
}

// storeInterval is how often a store is checked that does not say.
const storeInterval = 5 * time.Minute

func (r *storeReconciler) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named(strings.ToLower(r.kind)).
		For(object(r.kind), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(r)
}

// Reconcile signs in to the server of a store, and reports.
func (r *storeReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	o := object(r.kind)
	if err := r.cache.Get(ctx, req.NamespacedName, o); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if off, err := r.guard.off(ctx); off || err != nil {
		return ctrl.Result{RequeueAfter: recheck}, err
	}
	if !o.GetDeletionTimestamp().IsZero() {
		return ctrl.Result{}, release(ctx, r.Live, o)
	}
	spec, err := decode[externalsecret.StoreSpec](o)
	if spec.Controller != "" && spec.Controller != externalsecret.Controller {
		return ctrl.Result{}, nil // another program's
	}
	work, cancel := context.WithTimeout(ctx, passMost)
	defer cancel()
	message := "the server accepts the identity of the store"
	if err == nil {
		message, err = r.check(work, o, spec, message)
	}
	if ctx.Err() != nil {
		return ctrl.Result{}, ctx.Err()
	}
	again := storeInterval
	if spec.RefreshInterval > 0 {
		again = time.Duration(spec.RefreshInterval) * time.Second
	}
	if fault.Of(err) == fault.Later {
		again = min(again, time.Minute)
	}
	return ctrl.Result{RequeueAfter: again}, client.IgnoreNotFound(r.report(ctx, o, message, err))
}

// check signs in. A ClusterSecretStore whose identity is in the namespace of each object has
// none that could be checked.
func (r *storeReconciler) check(ctx context.Context, o client.Object, spec externalsecret.StoreSpec, good string) (string, error) {
	if err := spec.Check(o.GetNamespace(), r.Out.PlainHTTP()); err != nil {
		return "", err
	}
	if r.kind == externalsecret.ClusterSecretStore {
		return "its spec can be served; each object that uses it says whether the server accepts the identity", nil
	}
	u, err := r.stores.find(ctx, externalsecret.StoreRef{Kind: r.kind, Name: o.GetName()}, o.GetNamespace())
	if err != nil {
		return "", err
	}
	h, err := u.server.Health(ctx)
	err = u.reach(err)
	if err == nil {
		if wrong := h.Problem(); wrong != nil {
			err = fault.New(fault.Later, externalsecret.ReasonStore, fmt.Errorf("the Vault %s: %w", u.server, wrong))
		}
	}
	if err == nil {
		_, err = r.stores.session(ctx, u)
	}
	return good, err
}

func (r *storeReconciler) report(ctx context.Context, o *unstructured.Unstructured, message string, failure error) error {
	ready := metav1.Condition{Type: conditionReady, Status: metav1.ConditionTrue, Reason: "Valid", Message: message, ObservedGeneration: o.GetGeneration()}
	if failure != nil {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, fault.Reason(failure, externalsecret.ReasonStore), fault.Shorten(failure.Error(), messageMost)
	}
	conditions := statusOf(o).conditions
	was := apimeta.FindStatusCondition(conditions, conditionReady)
	told := was != nil && was.Status == ready.Status && was.Reason == ready.Reason && was.Message == ready.Message
	apimeta.SetStatusCondition(&conditions, ready)
	var all []any
	for _, c := range conditions {
		u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&c)
		if err != nil {
			return err
		}
		all = append(all, u)
	}
	after := o.DeepCopy()
	old, _, _ := unstructured.NestedMap(o.Object, "status") // nil if there is none, or it is none
	merged := map[string]any{}
	maps.Copy(merged, old)
	merged["conditions"], merged["capabilities"] = all, "ReadOnly"
	if equality.Semantic.DeepEqual(old, merged) {
		return nil
	}
	after.Object["status"] = merged
	if err := r.Live.Status().Patch(ctx, after, client.MergeFrom(o), client.FieldOwner(manager)); err != nil {
		return fmt.Errorf("writing the status of the %s %s: %w", r.kind, o.GetName(), err)
	}
	if failure != nil && !told {
		r.Events.Event(o, corev1.EventTypeWarning, ready.Reason, ready.Message)
	}
	return nil
}
