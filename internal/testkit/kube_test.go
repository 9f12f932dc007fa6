package testkit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1alpha2 "github.com/terrier-iac/terrier/api/infra/v1alpha2"
)

func TestKubeGivesEachTestItsNamespace(t *testing.T) {
	first, second := Kube(t), Kube(t)
	if first.Namespace == second.Namespace || !strings.HasPrefix(first.Namespace, "testkubegiveseachtestitsnamespace-") {
		t.Errorf("namespaces are %q and %q, want two named after the test", first.Namespace, second.Namespace)
	}
	stored := first.Apply(t, `
apiVersion: v1
kind: ConfigMap
metadata: {name: one}
---
---
apiVersion: v1
kind: ConfigMap
metadata: {name: two}
`)
	if len(stored) != 2 || stored[0].GetUID() == "" || stored[1].GetNamespace() != first.Namespace {
		t.Errorf("Apply() = %v, want two stored objects in %s", stored, first.Namespace)
	}
	for c, want := range map[*Cluster]int{first: 2, second: 0} {
		var maps corev1.ConfigMapList
		if err := c.Client.List(t.Context(), &maps, client.InNamespace(c.Namespace)); err != nil || len(maps.Items) != want {
			t.Errorf("%s has %d config maps, %v, want %d", c.Namespace, len(maps.Items), err, want)
		}
	}
}

func TestKubeconfigOpensTheNamespace(t *testing.T) {
	c := Kube(t)
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: c.Kubeconfig}, nil)
	if got, _, err := loader.Namespace(); got != c.Namespace || err != nil {
		t.Errorf("the kubeconfig's namespace is %q, %v, want %q", got, err, c.Namespace)
	}
	config, err := loader.ClientConfig()
	if err != nil || config.Host != c.Config.Host {
		t.Errorf("the kubeconfig's server is %v, %v, want %s", config, err, c.Config.Host)
	}
}

func TestKubeHasOurKinds(t *testing.T) {
	c := Kube(t, infrav1alpha2.AddToScheme)
	c.Apply(t, `
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: stack}
spec:
  interval: 1m
  path: ./
  sourceRef: {kind: GitRepository, name: code}
`)
	var stack infrav1alpha2.Terraform
	if err := c.Client.Get(t.Context(), client.ObjectKey{Namespace: c.Namespace, Name: "stack"}, &stack); err != nil {
		t.Fatal(err)
	}
	if got, want := stack.Spec.SourceRef.Name, "code"; got != want {
		t.Errorf("the stack's source is %q, want %q", got, want)
	}
}

func TestNamespacesEndWithTheirTest(t *testing.T) {
	outer := Kube(t)
	var inner string
	t.Run("inner", func(t *testing.T) {
		c := Kube(t, infrav1alpha2.AddToScheme)
		inner = c.Namespace
		c.Apply(t, `
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: held, finalizers: [example.com/held]}
spec:
  interval: 1m
  path: ./
  sourceRef: {kind: GitRepository, name: code}
`)
	})
	Eventually(t, Patience, "the inner test's namespace is gone", func(ctx context.Context) error {
		var ns corev1.Namespace
		err := outer.Client.Get(ctx, client.ObjectKey{Name: inner}, &ns)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, fmt.Errorf("it is there: %v", ns.Status.Conditions))
	})
}

// reports keeps what a test that fails would say.
type reports struct {
	testing.TB
	failure string
}

func (r *reports) Helper() {}
func (r *reports) Fatalf(format string, args ...any) {
	r.failure = fmt.Sprintf(format, args...)
}

func TestEventuallySaysWhatItWaitedFor(t *testing.T) {
	r, tries := &reports{TB: t}, 0
	Eventually(r, Patience, "it works", func(context.Context) error {
		if tries++; tries < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	if r.failure != "" || tries != 3 {
		t.Errorf("Eventually() failed with %q after %d tries, want success after 3", r.failure, tries)
	}
	Eventually(r, 50*time.Millisecond, "pigs fly", func(context.Context) error { return errors.New("pigs walk") })
	if !strings.Contains(r.failure, "pigs fly") || !strings.Contains(r.failure, "pigs walk") {
		t.Errorf("Eventually() failed with %q, want what it waited for and what it saw", r.failure)
	}
}

// heldServer makes the test binary a process that has a server of its own and
// says where, so that a test can kill it.
const heldServer = "TERRIER_TEST_HOLD_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(heldServer) == "" {
		os.Exit(m.Run())
	}
	s, err := startServer()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(s.kubeconfig)
	_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed
	runtime.KeepAlive(s)
}

func TestServerEndsWithItsProcess(t *testing.T) {
	if _, err := findBinary(); err != nil {
		t.Fatal(err)
	}
	holder := exec.Command(os.Args[0])
	holder.Env = append(os.Environ(), heldServer+"=1")
	if _, err := holder.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	output, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	var kubeconfig string
	_, err = fmt.Fscanln(output, &kubeconfig)
	_ = holder.Process.Kill() // without a chance to clean up
	_ = holder.Wait()
	if err != nil {
		t.Fatalf("the process with the server says %q, %v", kubeconfig, err)
	}
	Eventually(t, Patience, "the server has removed its directory", func(context.Context) error {
		if _, err := os.Stat(filepath.Dir(kubeconfig)); !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(err, fmt.Errorf("%s is there", filepath.Dir(kubeconfig)))
		}
		return nil
	})
}
