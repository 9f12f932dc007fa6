package app

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/web/metacontroller"
)

// hooked reads objects for the hooks of metacontroller. It asks the API server and no
// cache: a composite writes the status that it is answered with over the one that is
// there, and the API server refuses one that is older.
func hooked(from client.Reader, kinds dialect.Registry) metacontroller.Objects {
	return func(ctx context.Context, key metacontroller.Key) (metacontroller.Observed, error) {
		all := kinds.All()
		asked := schema.FromAPIVersionAndKind(key.APIVersion, key.Kind).GroupKind()
		n := slices.IndexFunc(all, func(d dialect.Dialect) bool { return d.Kind().GroupKind() == asked })
		if n < 0 {
			return metacontroller.Observed{}, fault.New(fault.Invalid, "", fmt.Errorf("%s is no kind of stack", asked))
		}
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(all[n].Kind())
		if err := from.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: key.Name}, u); err != nil {
			return metacontroller.Observed{}, access.Fault(err, "the object")
		}
		return observed(all[n], u)
	}
}

// observed is what an object says of its stack.
func observed(d dialect.Dialect, u *unstructured.Unstructured) (metacontroller.Observed, error) {
	obj := d.New()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, obj); err != nil {
		return metacontroller.Observed{}, fmt.Errorf("reading the object: %w", err)
	}
	o := metacontroller.Observed{
		UID: string(u.GetUID()), Generation: u.GetGeneration(), Deleting: u.GetDeletionTimestamp() != nil, Held: slices.Contains(u.GetFinalizers(), d.Finalizer()),
	}
	generation, found, err := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
	o.Seen = err == nil && found && generation == u.GetGeneration()
	v := d.View(obj)
	ready := meta.FindStatusCondition(v.Conditions, "Ready")
	o.Running = v.Run != nil || ready == nil || ready.Status == metav1.ConditionUnknown || meta.IsStatusConditionTrue(v.Conditions, "Reconciling")
	if status, has := u.Object["status"]; has {
		if o.Status, err = json.Marshal(status); err != nil {
			return o, fmt.Errorf("reading the status: %w", err)
		}
	}
	return o, nil
}
