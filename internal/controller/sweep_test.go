package controller

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/terrier-iac/terrier/internal/blob/blobtest"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/alustan"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/stack"
)

func TestSweepKeepsWhatADestroyNeeds(t *testing.T) {
	files := blobtest.Files(t, 1<<20)
	c := takeApart(&Stacks{Blobs: files, Archives: records.Archives{Dir: t.TempDir()}})
	kept, err := json.Marshal(snapshot{PlanInputs: stack.PlanInputs{Source: "sha256:aa"}})
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string][]byte{
		"trees/aa": []byte("needed"), "trees/bb": []byte("not"), record.Snapshot("uid", "1"): kept,
	} {
		if err := c.records.Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.records.Sweep(t.Context(), c.sourceOf); err != nil {
		t.Fatal(err)
	}
	got, err := files.List(t.Context(), "trees/")
	if err != nil || !slices.Equal(got, []string{"trees/aa"}) {
		t.Errorf("after the sweep there is %v, %v, want trees/aa", got, err)
	}

	// A record that cannot be read might need anything.
	if err := c.records.Put(t.Context(), record.Snapshot("uid", "2"), []byte("{")); err != nil {
		t.Fatal(err)
	}
	if err := c.records.Put(t.Context(), "trees/cc", []byte("unknown")); err != nil {
		t.Fatal(err)
	}
	if err := c.records.Sweep(t.Context(), c.sourceOf); err == nil {
		t.Error("a record that cannot be read is passed over")
	}
	if got, err := files.List(t.Context(), "trees/"); err != nil || len(got) != 2 {
		t.Errorf("after a failed sweep there is %v, %v, want nothing removed", got, err)
	}
}

// Stacks of a kind that is left out are not gone: nothing is swept while it is unknown
// whether there are any, and they count as alive where they can be listed.
func TestAKindThatIsLeftOutIsNotGone(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(infra.Dialect{}.AddToScheme(scheme), alustan.Dialect{}.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	there := alustan.Dialect{}.New()
	there.SetNamespace("apps")
	there.SetName("net")
	there.SetUID("uid")
	gvk := alustan.Dialect{}.Kind()
	resource := schema.GroupResource{Group: gvk.Group, Resource: "terraforms"}
	for name, tt := range map[string]struct {
		answer error
		want   map[string]bool // nil: an error
	}{
		"the cluster does not know it":      {&meta.NoKindMatchError{GroupKind: gvk.GroupKind()}, map[string]bool{}},
		"its definition has just gone":      {apierrors.NewNotFound(resource, ""), map[string]bool{}},
		"it may not be listed":              {apierrors.NewForbidden(resource, "", errors.New("no role")), nil},
		"it may be listed, and has a stack": {nil, map[string]bool{"uid": true}},
	} {
		t.Run(name, func(t *testing.T) {
			live := fake.NewClientBuilder().WithScheme(scheme).WithObjects(there.DeepCopyObject().(client.Object)).WithInterceptorFuncs(interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					if list.GetObjectKind().GroupVersionKind().Group == gvk.Group && tt.answer != nil {
						return tt.answer
					}
					return c.List(ctx, list, opts...)
				},
			}).Build()
			c := takeApart(&Stacks{Live: live, Dialects: dialect.NewRegistry(infra.Dialect{}), LeftOut: dialect.NewRegistry(alustan.Dialect{})})
			got, err := c.removals.alive(t.Context())
			if (err == nil) != (tt.want != nil) || !maps.Equal(got, tt.want) {
				t.Errorf("alive() = %v, %v, want %v", got, err, tt.want)
			}
		})
	}
	// The definition of a kind that is reconciled cannot be missing.
	live := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return &meta.NoKindMatchError{GroupKind: gvk.GroupKind()}
		},
	}).Build()
	c := takeApart(&Stacks{Live: live, Dialects: dialect.NewRegistry(infra.Dialect{}, alustan.Dialect{})})
	if got, err := c.removals.alive(t.Context()); err == nil {
		t.Errorf("without any definition %v are alive", got)
	}
}
