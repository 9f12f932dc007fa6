package controller

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/blob/blobtest"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/alustan"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
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

// Of a stack that goes the last run outlives its other records, for as long as what it retains.
func TestTheLastRunOutlivesItsStack(t *testing.T) {
	files := blobtest.Files(t, 1<<20)
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	c := takeApart(&Stacks{Blobs: files, Dialects: dialect.NewRegistry(infra.Dialect{}, alustan.Dialect{}), Now: func() time.Time { return now }})
	for i, run := range []string{"script-1", "destroy-2", record.QuietRun} {
		r := runner.Report{ID: run, Kind: stack.DestroyRun, Phase: runner.Done, Outcome: stack.Succeeded, Started: now.Add(time.Duration(i%2) * time.Minute), Note: json.RawMessage(`{"a":1}`)}
		if err := record.At[runner.Report](record.Run("uid", run, record.ReportFile)).Write(t.Context(), files, r); err != nil {
			t.Fatal(err)
		}
		if err := c.records.Put(t.Context(), record.Run("uid", run, runner.FileLog), []byte("log of "+run)); err != nil {
			t.Fatal(err)
		}
	}
	of := client.ObjectKey{Namespace: "apps", Name: strings.Repeat("n", 253)} // longer than a part of a key
	keep := func() {
		t.Helper()
		if err := c.removals.keepLastRun(t.Context(), &entry{id: "uid", objectRef: objectRef{alustan.Dialect{}, of}}, kube.Origin{NamespaceUID: "apps-1"}); err != nil {
			t.Fatal(err)
		}
	}
	keep()
	if err := c.records.Drop(t.Context(), "uid"); err != nil {
		t.Fatal(err)
	}
	keep() // as a program does that ended before the object was released
	at := func(file string) string {
		return record.Gone("terraform.alustan.io", of.Namespace, of.Name, "uid", file)
	}
	last, err := record.At[goneRun](at(record.ReportFile)).Read(t.Context(), files)
	if err != nil || last.NamespaceUID != "apps-1" || last.ID != "destroy-2" || !last.Gone.Equal(now) || last.Note != nil {
		t.Errorf("the last run is %+v, %v, want destroy-2 of a stack that is gone since now, without a note", last, err)
	}
	if log, err := c.records.Get(t.Context(), at(runner.FileLog)); string(log) != "log of destroy-2" {
		t.Errorf("its log is %q, %v", log, err)
	}
	for _, tt := range []struct {
		later time.Duration
		want  int
	}{{kube.RetainedFor, 2}, {kube.RetainedFor + time.Second, 0}} {
		now = last.Gone.Add(tt.later)
		if err := c.removals.sweepGoneRuns(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left, err := files.List(t.Context(), record.AllGone()); len(left) != tt.want || err != nil {
			t.Errorf("after %v there is %v, %v, want %d files", tt.later, left, err, tt.want)
		}
	}
}

// A record that does not open, as one whose key is lost, does not keep an object from being
// released.
func TestALastRunThatDoesNotOpen(t *testing.T) {
	files := blobtest.Files(t, 1<<20)
	c := takeApart(&Stacks{Blobs: damaged{files}, Dialects: dialect.NewRegistry(infra.Dialect{}), Now: time.Now})
	if err := c.records.Put(t.Context(), record.Run("uid", "destroy-1", record.ReportFile), []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if err := c.removals.keepLastRun(t.Context(), &entry{id: "uid", objectRef: objectRef{infra.Dialect{}, client.ObjectKey{Namespace: "apps", Name: "net"}}}, kube.Origin{}); err != nil {
		t.Errorf("keepLastRun() = %v, want the stack to go without it", err)
	}
}

// damaged is a store whose values do not open.
type damaged struct{ records.Blobs }

func (damaged) Get(context.Context, string) (io.ReadCloser, error) {
	return nil, fault.New(fault.Broken, blob.KeyUnknown, errors.New("it was encrypted with another key"))
}
