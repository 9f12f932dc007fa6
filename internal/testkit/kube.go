package testkit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Cluster is a namespace of the test's own on a real API server that has our
// kinds. Other tests use the same server at the same time, so a test keeps to its
// namespace, and its controllers do too.
type Cluster struct {
	Config    *rest.Config // the server's administrator
	Namespace string
	Client    client.Client

	programs

	platform *Platform // nil if nothing but an API server is there
	witness  *Witness  // nil likewise
}

// Kube gives the test a namespace, which is deleted after it. The client knows
// the kinds that Kubernetes has built in, and those that add registers.
//
// The server is the one that TERRIER_TEST_KUBECONFIG names, or else one that the
// first call in a test process starts from bin/terrier.
func Kube(tb testing.TB, add ...func(*runtime.Scheme) error) *Cluster {
	tb.Helper()
	shared, err := sharedServer()
	if err != nil {
		tb.Fatal(err)
	}
	c := &Cluster{}
	if c.Config, err = clientcmd.BuildConfigFromFlags("", shared.kubeconfig); err != nil {
		tb.Fatalf("reading the kubeconfig of the test server: %v", err)
	}
	c.Config.QPS = -1
	c.Config.WarningHandler = rest.NoWarnings{}
	if c.Client, err = newClient(c.Config, add); err != nil {
		tb.Fatalf("making a client of the test server: %v", err)
	}
	c.makeNamespace(tb)
	tb.Cleanup(func() { release(tb, c) })
	c.Kubeconfig = filepath.Join(tb.TempDir(), "kubeconfig")
	if err := writeKubeconfig(shared.kubeconfig, c.Kubeconfig, c.Namespace); err != nil {
		tb.Fatalf("writing a kubeconfig for the test: %v", err)
	}
	return c
}

// Apply applies every document of manifest, as kubectl does on the server's side,
// and returns them as they were stored. What is namespaced and names none goes to
// the test's namespace.
func (c *Cluster) Apply(tb testing.TB, manifest string) []*unstructured.Unstructured {
	tb.Helper()
	var applied []*unstructured.Unstructured
	documents := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifest), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := documents.Decode(&object.Object)
		switch {
		case errors.Is(err, io.EOF):
			return applied
		case err != nil:
			tb.Fatalf("parsing document %d of the manifest: %v", len(applied)+1, err)
		case len(object.Object) == 0: // between two separators
			continue
		}
		if err := c.apply(tb.Context(), object); err != nil {
			tb.Fatalf("applying %s %s: %v", object.GetKind(), object.GetName(), err)
		}
		applied = append(applied, object)
	}
}

// Patience is how long a test waits for what has to come: a machine that is busy
// is slow, and what takes this long does not come at all.
const Patience = 5 * time.Minute

// Eventually polls check until it returns nil, and ends the test with its last
// error if that takes longer than within. What completes "waiting until".
func Eventually(tb testing.TB, within time.Duration, what string, check func(context.Context) error) {
	tb.Helper()
	var last error
	err := wait.PollUntilContextTimeout(tb.Context(), 20*time.Millisecond, within, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		tb.Fatalf("waiting until %s: %v, at last: %v", what, err, last)
	}
}

func newClient(config *rest.Config, add []func(*runtime.Scheme) error) (client.Client, error) {
	scheme := runtime.NewScheme()
	for _, register := range append(add, clientscheme.AddToScheme) {
		if err := register(scheme); err != nil {
			return nil, fmt.Errorf("registering kinds: %w", err)
		}
	}
	return client.New(config, client.Options{Scheme: scheme})
}

// notInNames is what a namespace cannot be called.
var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

func (c *Cluster) makeNamespace(tb testing.TB) {
	tb.Helper()
	name := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(tb.Name()), "-"), "-")
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: name[:min(len(name), 50)] + "-"}}
	if err := c.Client.Create(tb.Context(), ns); err != nil {
		tb.Fatalf("making a namespace for the test: %v", err)
	}
	c.Namespace = ns.Name
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		defer cancel()
		if err := c.Client.Delete(ctx, ns); err != nil {
			tb.Logf("deleting the test's namespace: %v", err)
		}
	})
}

// release removes the finalizers of what the test leaves in its namespace. Its
// controllers have stopped by then, and a namespace that cannot end has the API
// server try again for as long as it runs, at the cost of all other tests.
func release(tb testing.TB, c *Cluster) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	listed := map[schema.GroupKind]bool{}
	for kind, model := range c.Client.Scheme().AllKnownTypes() {
		_, object := reflect.New(model).Interface().(client.Object)
		if !object || listed[kind.GroupKind()] || clientscheme.Scheme.IsGroupRegistered(kind.Group) {
			continue
		}
		var left metav1.PartialObjectMetadataList
		left.SetGroupVersionKind(kind)
		err := c.Client.List(ctx, &left, client.InNamespace(c.Namespace))
		if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
			continue // the server does not have the kind, or not in this version
		}
		listed[kind.GroupKind()] = true
		for i := range left.Items {
			if len(left.Items[i].Finalizers) > 0 {
				free := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
				err = errors.Join(err, client.IgnoreNotFound(c.Client.Patch(ctx, &left.Items[i], free)))
			}
		}
		if err != nil {
			tb.Logf("removing the finalizers of each %s of the test: %v", kind.Kind, err)
		}
	}
}

func (c *Cluster) apply(ctx context.Context, object *unstructured.Unstructured) error {
	namespaced, err := c.Client.IsObjectNamespaced(object)
	if err != nil {
		return err
	}
	if namespaced && object.GetNamespace() == "" {
		object.SetNamespace(c.Namespace)
	}
	var last error // of an etcd whose disk is busy with other tests, it is asked again
	err = wait.PollUntilContextTimeout(ctx, time.Second, Patience, true, func(ctx context.Context) (bool, error) {
		last = c.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("testkit"), client.ForceOwnership)
		return last == nil || !strings.Contains(last.Error(), "etcdserver: request timed out"), nil
	})
	return cmp.Or(last, err)
}

func writeKubeconfig(from, to, namespace string) error {
	config, err := clientcmd.LoadFromFile(from)
	if err != nil {
		return err
	}
	current, ok := config.Contexts[config.CurrentContext]
	if !ok {
		return fmt.Errorf("%s has no current context", from)
	}
	current.Namespace = namespace
	return clientcmd.WriteToFile(*config, to)
}

// Define installs the definition of a kind, and waits until the API server serves it.
func Define(tb testing.TB, c *Cluster, definition string, list client.ObjectList) {
	tb.Helper()
	c.Apply(tb, definition)
	Eventually(tb, Patience, "the API server serves the kind", func(ctx context.Context) error {
		return c.Client.List(ctx, list, client.InNamespace(c.Namespace))
	})
}
