package testkit

import (
	"context"
	"embed"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

//go:embed testdata/tenant-operator-1.1.8/*.yaml
var operator118 embed.FS

// Operator118 leaves in the test's namespace what a running Tenant Operator 1.1.8
// leaves: its own kinds, with their status, and the objects of two tenants, acme
// and bolt, applied by its field manager. It returns the objects as they are
// stored, and removes after the test what is outside of the namespace.
func (c *Cluster) Operator118(tb testing.TB) (tenants, objects []*unstructured.Unstructured) {
	tb.Helper()
	files, err := fs.Glob(operator118, "testdata/tenant-operator-1.1.8/*.yaml")
	if err != nil || len(files) != 3 {
		tb.Fatalf("there are %d fixtures of the operator, want 3: %v", len(files), err)
	}
	known := []string{"$NAMESPACE", c.Namespace}
	var stored [3][]*unstructured.Unstructured
	for i, file := range files {
		manifest, err := operator118.ReadFile(file)
		if err != nil {
			tb.Fatalf("reading a fixture of the operator: %v", err)
		}
		decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(strings.NewReplacer(known...).Replace(string(manifest))), 4096)
		for {
			o := &unstructured.Unstructured{}
			if err := decoder.Decode(&o.Object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				tb.Fatalf("reading %s: %v", file, err)
			}
			if err := leave118(tb, c, o); err != nil {
				tb.Fatalf("leaving the %s %s of the operator: %v", o.GetKind(), o.GetName(), err)
			}
			known = append(known, "$UID_OF_"+o.GetName(), string(o.GetUID()))
			stored[i] = append(stored[i], o)
		}
	}
	return stored[1], stored[2]
}

// cleanup does something after the test; what is gone by then is fine.
func cleanup(tb testing.TB, what string, do func(context.Context) error) {
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		defer cancel()
		if err := client.IgnoreNotFound(do(ctx)); err != nil {
			tb.Logf("%s: %v", what, err)
		}
	})
}

// leave118 applies an object and writes its status, as the operator did.
func leave118(tb testing.TB, c *Cluster, o *unstructured.Unstructured) error {
	ctx := tb.Context()
	status, hasStatus := o.Object["status"]
	namespaced, err := c.Client.IsObjectNamespaced(o)
	if err != nil {
		return err
	}
	if namespaced && o.GetNamespace() == "" {
		o.SetNamespace(c.Namespace)
	}
	if err := c.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("tenant-operator")); err != nil {
		return err
	}
	left := &unstructured.Unstructured{}
	left.SetGroupVersionKind(o.GroupVersionKind())
	left.SetNamespace(o.GetNamespace())
	left.SetName(o.GetName())
	switch {
	case o.GetKind() == "Namespace":
		cleanup(tb, "deleting the namespace "+o.GetName(), func(ctx context.Context) error { return c.Client.Delete(ctx, left) })
	case len(o.GetFinalizers()) > 0: // the controller that would remove them has stopped by the end of the test
		cleanup(tb, "letting go of "+o.GetName(), func(ctx context.Context) error {
			return c.Client.Patch(ctx, left, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		})
	}
	if !hasStatus {
		return nil
	}
	o.Object["status"] = status
	return c.Client.Status().Update(ctx, o, client.FieldOwner("tenant-operator"))
}
