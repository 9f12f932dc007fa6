package input

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// What need not exist may be absent. That it cannot be read is something else: a
// plan without it would destroy what it asked for.
func TestOptionalHidesNoFailure(t *testing.T) {
	k := testkit.Kube(t)
	secrets := schema.GroupResource{Resource: "secrets"}
	for name, failure := range map[string]error{
		"it may not be read":   apierrors.NewForbidden(secrets, "inputs", nil),
		"the server is busy":   apierrors.NewTooManyRequests("later", 1),
		"the server is broken": apierrors.NewInternalError(context.DeadlineExceeded),
		"it does not exist":    apierrors.NewNotFound(secrets, "inputs"),
	} {
		t.Run(name, func(t *testing.T) {
			w, err := client.NewWithWatch(k.Config, client.Options{})
			if err != nil {
				t.Fatal(err)
			}
			failing := interceptor.NewClient(w, interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return failure
			}})
			ref := &stack.KeyRef{Name: "inputs", Key: "a", Optional: true}
			for field, configuration := range map[string]stack.Configuration{
				"varsFrom": {VarsFrom: []stack.VarsFrom{{Kind: "Secret", Name: "inputs", Optional: true}}},
				"vars":     {Vars: []stack.Var{{Name: "a", Secret: ref}}},
			} {
				r := Resolver{Reader: kube.Objects{Client: failing}, Object: Object{Namespace: k.Namespace, Name: "stack"}, Configuration: configuration}
				in, err := r.Resolve(t.Context(), Module{})
				if want := apierrors.IsNotFound(failure); (err == nil) != want {
					t.Errorf("%s: %v, %+v; want it passed over: %v", field, err, in, want)
				}
				if fault.Of(err) == fault.Missing {
					t.Errorf("%s: %v is taken for absence", field, err)
				}
			}
		})
	}
}
