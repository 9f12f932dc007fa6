package admission

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/yaml"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// guarded installs the policy about deletions under a name of the test's own, for its
// namespace.
func guarded(t *testing.T) *testkit.Cluster {
	t.Helper()
	k := testkit.Kube(t)
	for _, file := range []string{"deletion/tenants.yaml", "deletion/tenants-binding.yaml"} {
		text, err := Deletion.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(strings.ReplaceAll(string(text), "deletion.tenants.terrier.dev", "deletion."+k.Namespace)), &u.Object); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(u.GetKind(), "Binding") {
			only := map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": k.Namespace}}}
			if err := unstructured.SetNestedMap(u.Object, only, "spec", "matchResources"); err != nil {
				t.Fatal(err)
			}
		}
		if err := k.Client.Create(t.Context(), u); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
			defer cancel()
			if err := k.Client.Delete(ctx, u); err != nil {
				t.Logf("removing %s: %v", u.GetKind(), err)
			}
		})
	}
	return k
}

const tenantsToDelete = `
apiVersion: operator.kubernetes-tenants.org/v1
kind: Tenant
metadata: {name: acme-web}
spec: {uid: acme, templateRef: web}
---
apiVersion: operator.kubernetes-tenants.org/v1
kind: TenantRegistry
metadata: {name: customers}
spec:
  source: {type: sqlite, sqlite: {path: x, table: t}}
  valueMappings: {uid: id, activate: active}
---
apiVersion: operator.kubernetes-tenants.org/v1
kind: TenantTemplate
metadata: {name: web}
spec: {registryId: customers}
`

// Tenants are not deleted in the foreground, one by one or all at once; in every other way they
// are. Registries and templates are.
func TestDeletionsInTheForegroundAreRefused(t *testing.T) {
	k := guarded(t)
	all := k.Apply(t, tenantsToDelete)
	foreground := client.PropagationPolicy(metav1.DeletePropagationForeground)
	testkit.Eventually(t, testkit.Patience, "the policy is in force", func(ctx context.Context) error {
		if err := k.Client.Delete(ctx, all[0], foreground, client.DryRunAll); !apierrors.IsForbidden(err) {
			return errors.Join(errors.New("a deletion in the foreground is not refused"), err)
		}
		return nil
	})
	acme := all[0]
	err := k.Client.Delete(t.Context(), acme, foreground)
	for _, way := range []string{"nothing was deleted", "--cascade=background", "PrunePropagationPolicy=background", "resources-finalizer.argocd.argoproj.io/background"} {
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), way) {
			t.Errorf("deleting a Tenant in the foreground = %v, want a refusal that says %s", err, way)
		}
	}
	if err := k.Client.DeleteAllOf(t.Context(), acme.DeepCopy(), client.InNamespace(k.Namespace), foreground); !apierrors.IsForbidden(err) {
		t.Errorf("deleting all Tenants in the foreground = %v, want a refusal", err)
	}
	for _, policy := range []client.DeleteOption{client.PropagationPolicy(metav1.DeletePropagationBackground), client.PropagationPolicy(metav1.DeletePropagationOrphan)} {
		if err := k.Client.Delete(t.Context(), acme, policy, client.DryRunAll); err != nil {
			t.Errorf("deleting a Tenant otherwise = %v", err)
		}
	}
	if err := k.Client.Delete(t.Context(), acme); err != nil {
		t.Errorf("deleting a Tenant = %v", err)
	}
	for _, o := range all[1:] {
		if err := k.Client.Delete(t.Context(), o, foreground); err != nil {
			t.Errorf("deleting a %s in the foreground = %v, want it not to be refused", o.GetKind(), err)
		}
	}
}

// refusals is how many requests the policy of a test has refused.
func refusals(ctx context.Context, k *testkit.Cluster) (n int, err error) {
	d, err := discovery.NewDiscoveryClientForConfig(k.Config)
	if err != nil {
		return 0, err
	}
	text, err := d.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "apiserver_validating_admission_policy_check_total{") && strings.Contains(line, `enforcement_action="deny"`) && strings.Contains(line, `policy="deletion.`+k.Namespace+`"`) {
			count, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " "):]), 64)
			if err != nil {
				return 0, err
			}
			n += int(count)
		}
	}
	return n, nil
}

// known waits until the garbage collector knows all objects of a kind that were written before: it
// learns of them in their order, and deletes one whose owner does not exist.
func known(t *testing.T, k *testkit.Cluster, probe client.Object) {
	t.Helper()
	probe.SetNamespace(k.Namespace)
	probe.SetName("probe")
	probe.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "nothing", UID: "11111111-2222-3333-4444-555555555555"}})
	if err := k.Client.Create(t.Context(), probe); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.Patience, "the garbage collector is up to date", func(ctx context.Context) error {
		if err := k.Client.Get(ctx, client.ObjectKeyFromObject(probe), probe); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("the probe is there"), err)
		}
		return nil
	})
}

// Argo CD deletes a registry in the foreground unless it is told otherwise. The API server lets
// it, and refuses what the garbage collector of Kubernetes asks for then: the deletion of the
// Tenants with all that they own. Terrier deletes them.
func TestARegistryIsDeletedInTheForegroundWithoutItsTenants(t *testing.T) {
	k := guarded(t)
	all := k.Apply(t, tenantsToDelete)
	acme, registry := all[0], all[1]
	own := func(o, by client.Object) {
		t.Helper()
		before := o.DeepCopyObject().(client.Object)
		gvk := by.GetObjectKind().GroupVersionKind()
		o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(by, gvk)})
		if err := k.Client.Patch(t.Context(), o, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	finalizers := func(change func()) {
		t.Helper()
		if err := k.Client.Get(t.Context(), client.ObjectKeyFromObject(registry), registry); err != nil {
			t.Fatal(err)
		}
		before := registry.DeepCopyObject().(client.Object)
		change()
		if err := k.Client.Patch(t.Context(), registry, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	finalizers(func() { controllerutil.AddFinalizer(registry, "terrier.dev/test") }) // as Terrier keeps it
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
		defer cancel()
		if err := k.Client.Patch(ctx, registry, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); client.IgnoreNotFound(err) != nil {
			t.Errorf("cleaning up: %v", err)
		}
	})
	own(acme, registry)
	credentials := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: "credentials"}}
	if err := k.Client.Create(t.Context(), credentials); err != nil {
		t.Fatal(err)
	}
	own(credentials, acme)
	foreground := client.PropagationPolicy(metav1.DeletePropagationForeground)
	testkit.Eventually(t, testkit.Patience, "the policy is in force", func(ctx context.Context) error {
		if err := k.Client.Delete(ctx, acme, foreground, client.DryRunAll); !apierrors.IsForbidden(err) {
			return errors.Join(errors.New("a deletion in the foreground is not refused"), err)
		}
		return nil
	})
	known(t, k, &corev1.ConfigMap{})
	probe := &unstructured.Unstructured{}
	probe.SetGroupVersionKind(acme.GetObjectKind().GroupVersionKind())
	probe.Object["spec"] = map[string]any{"uid": "probe", "templateRef": "web"}
	known(t, k, probe)

	before, err := refusals(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Client.Delete(t.Context(), registry, foreground); err != nil {
		t.Fatalf("deleting the registry in the foreground = %v", err)
	}
	testkit.Eventually(t, testkit.Patience, "the garbage collector is refused", func(ctx context.Context) error {
		if now, err := refusals(ctx, k); err != nil || now <= before {
			return errors.Join(errors.New("it was not"), err)
		}
		return nil
	})
	finalizers(func() { controllerutil.RemoveFinalizer(registry, metav1.FinalizerDeleteDependents) }) // as Terrier does
	for _, o := range []client.Object{acme, credentials} {
		if err := k.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil || o.GetDeletionTimestamp() != nil {
			t.Errorf("%s: %v, in deletion since %v, want it to be as before", o.GetName(), err, o.GetDeletionTimestamp())
		}
	}
}
