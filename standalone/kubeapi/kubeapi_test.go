package kubeapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
)

// TestControlPlane shares one server between what can be seen of a running one.
func TestControlPlane(t *testing.T) {
	dir := filepath.Join(openTempDir(t), "data directory") // a space, which no URL carries
	logged := &recorder{}
	server, _ := startServer(t, Options{Dir: dir, UnsafeNoFsync: true, Log: logged.logger()})
	client := ownerClient(t, dir)

	t.Run("says who the owner is", func(t *testing.T) { testOwner(t, server, dir) })
	t.Run("lends its certificate", func(t *testing.T) { testCertificate(t, server, dir) })
	t.Run("refuses whoever has no token", func(t *testing.T) { testAuthentication(t, server, dir) })
	t.Run("refuses other host names", func(t *testing.T) { testHosts(t, server, dir) })
	t.Run("listens on one port of loopback", func(t *testing.T) { testListeners(t, server) })
	t.Run("refuses a second instance", func(t *testing.T) { testSecondInstance(t, dir) })
	t.Run("keeps other users out", func(t *testing.T) { testOtherUser(t, dir) })
	t.Run("serves custom resources", func(t *testing.T) { testCustomResource(t, dir) })
	t.Run("collects what an owner leaves", func(t *testing.T) { testGarbage(t, client) })
	t.Run("counts quotas", func(t *testing.T) { testQuota(t, client) })
	t.Run("warns that workloads do not run", func(t *testing.T) { testWorkloadWarning(t, dir) })
	t.Run("seals secrets", func(t *testing.T) { testSealedSecrets(t, client, dir) })
	t.Run("deletes namespaces", func(t *testing.T) { testNamespaceDeletion(t, client) })
	t.Run("logs no token", func(t *testing.T) {
		if got, token := logged.String(), ownerConfig(t, dir).BearerToken; strings.Contains(got, token) {
			t.Error("the log holds the token")
		}
	})
}

func testCustomResource(t *testing.T, dir string) {
	client, err := dynamic.NewForConfig(ownerConfig(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	crds := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	kennels := client.Resource(schema.GroupVersionResource{Group: "test.terrier", Version: "v1", Resource: "kennels"}).Namespace("default")
	crd := object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "kennels.test.terrier", map[string]any{
		"group": "test.terrier", "scope": "Namespaced", "names": map[string]any{"plural": "kennels", "kind": "Kennel"},
		"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true,
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{
				"spec": map[string]any{"type": "object", "properties": map[string]any{"dogs": map[string]any{"type": "integer", "maximum": int64(3)}}},
			}}}}},
	})
	if _, err := crds.Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a kennel is stored", func(ctx context.Context) error {
		_, err := kennels.Create(ctx, object("test.terrier/v1", "Kennel", "ours", map[string]any{"dogs": int64(2)}), metav1.CreateOptions{})
		return err
	})
	_, err = kennels.Create(t.Context(), object("test.terrier/v1", "Kennel", "full", map[string]any{"dogs": int64(4)}), metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) {
		t.Errorf("Create() = %v, want its schema to refuse four dogs", err)
	}
}

func object(apiVersion, kind, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec,
	}}
}

func testGarbage(t *testing.T, client *kubernetes.Clientset) {
	maps := client.CoreV1().ConfigMaps("default")
	owner, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: objectMeta("owner")}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	owned := &corev1.ConfigMap{ObjectMeta: objectMeta("owned")}
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}
	if _, err := maps.Create(t.Context(), owned, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := maps.Delete(t.Context(), owner.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the owned object is gone", func(ctx context.Context) error {
		return gone(maps.Get(ctx, owned.Name, metav1.GetOptions{}))
	})
}

func gone(_ any, err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	default:
		return errors.New("it is still there")
	}
}

func testQuota(t *testing.T, client *kubernetes.Clientset) {
	const ns = "counted"
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: objectMeta(ns)}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	quota := &corev1.ResourceQuota{ObjectMeta: objectMeta("one"), Spec: corev1.ResourceQuotaSpec{
		Hard: corev1.ResourceList{"count/secrets": resource.MustParse("1")},
	}}
	if _, err := client.CoreV1().ResourceQuotas(ns).Create(t.Context(), quota, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	count := 0
	create := func(ctx context.Context) error {
		count++
		secret := &corev1.Secret{ObjectMeta: objectMeta(fmt.Sprintf("number-%d", count))}
		_, err := client.CoreV1().Secrets(ns).Create(ctx, secret, metav1.CreateOptions{})
		return err
	}
	eventually(t, "the quota is exceeded", func(ctx context.Context) error {
		if err := create(ctx); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "exceeded quota") {
			return fmt.Errorf("creating secret number %d: %w", count, err)
		}
		return nil
	})
}

// warnings keeps what the server says beside its answer.
type warnings struct {
	mu    sync.Mutex
	texts []string
}

func (w *warnings) HandleWarningHeader(_ int, _ string, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

func testWorkloadWarning(t *testing.T, dir string) {
	config, heard := ownerConfig(t, dir), &warnings{}
	config.WarningHandler = heard
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: objectMeta("quiet")}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if len(heard.texts) != 0 {
		t.Errorf("a config map warns: %q", heard.texts)
	}
	labels := map[string]string{"app": "idle"}
	idle := &appsv1.Deployment{ObjectMeta: objectMeta("idle"), Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "idle", Image: "idle"}}}},
	}}
	if _, err := client.AppsV1().Deployments("default").Create(t.Context(), idle, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := heard.texts; len(got) != 1 || got[0] != storedNotRun {
		t.Errorf("a deployment warns %q, want %q", got, storedNotRun)
	}
	if _, err := client.AppsV1().Deployments("default").Get(t.Context(), idle.Name, metav1.GetOptions{}); err != nil {
		t.Errorf("the deployment is not stored: %v", err)
	}
}

func testSealedSecrets(t *testing.T, client *kubernetes.Clientset, dir string) {
	const sealed, plain = "canary-in-a-secret", "canary-in-a-config-map"
	secret := &corev1.Secret{ObjectMeta: objectMeta("canary"), StringData: map[string]string{"text": sealed}}
	if _, err := client.CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config := &corev1.ConfigMap{ObjectMeta: objectMeta("canary"), Data: map[string]string{"text": plain}}
	if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), config, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if !storeHolds(t, dir, plain) {
		t.Fatal("the store does not hold the text of a config map: this test looks in the wrong place")
	}
	if storeHolds(t, dir, sealed) {
		t.Error("the store holds the text of a secret")
	}
}

func storeHolds(t *testing.T, path, text string) (found bool) {
	t.Helper()
	err := filepath.WalkDir(dir{path: path}.store(), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		found = found || bytes.Contains(content, []byte(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func testNamespaceDeletion(t *testing.T, client *kubernetes.Clientset) {
	namespaces := client.CoreV1().Namespaces()
	if _, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: objectMeta("brief")}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the namespace has its service account", func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts("brief").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	if err := namespaces.Delete(t.Context(), "brief", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the namespace is gone", func(ctx context.Context) error {
		return gone(namespaces.Get(ctx, "brief", metav1.GetOptions{}))
	})
}
