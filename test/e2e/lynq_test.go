package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/internal/testkit/database"
)

// bequest is a namespace as Lynq leaves it, with a Deployment of its own and a
// ConfigMap that is to stay for each of two nodes.
type bequest struct {
	*testkit.Cluster
	db *database.Server
}

// A migration from Lynq follows docs/migrate-from-tenant-operator.md, in that order.
// Nothing of an object changes but metadata, and of that only what says whose it is:
// no Deployment gets another pod template, so no pod is started again. Later a row
// reaches its own object, and what is left of Lynq can go.
func TestTakeoverOfLynq(t *testing.T) {
	t.Parallel()
	p := testkit.Up(t)
	b := bequest{p.Cluster(t), database.StartMariaDB(t)}
	b.db.Exec(t, "CREATE TABLE customers (id VARCHAR(40) PRIMARY KEY, active TINYINT(1), plan TEXT)", "INSERT INTO customers VALUES ('acme', 1, 'gold'), ('bolt', 1, 'free')")
	b.PutSecret(t, "database", map[string]string{"password": database.Password})
	b.leave(t)
	left := b.objects(t)

	t.Run("it is imported", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "imported.yaml")
		text := b.Terrier(t, "import", "lynq")
		if !strings.Contains(text, "configMaps/notes: .hubId became .registryId") || strings.Contains(text, "hubId }}") {
			t.Errorf("terrier import lynq prints\n%s\nwant the variable renamed, and that said", text)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		b.Kubectl(t, "apply", "-f", file)
		testkit.Eventually(t, testkit.Patience, "the registry is suspended and has no tenants", func(context.Context) error {
			if out := b.Terrier(t, "tenants"); !strings.Contains(out, "customers: spec.suspend is set: Terrier reads no rows") || !strings.Contains(out, "No tenants.") {
				return errors.New("terrier tenants shows\n" + out)
			}
			return nil
		})
		if diff := cmp.Diff(left, b.objects(t)); diff != "" {
			t.Errorf("the objects were written (-before +after):\n%s", diff)
		}
	})
	t.Run("it changes hands", func(t *testing.T) {
		b.handOver(t)
		b.Terrier(t, "resume", "tenantregistry/customers")
		for _, uid := range []string{"acme", "bolt"} {
			b.awaitTenant(t, uid)
		}
		got, want := b.objects(t), b.taken(t, left)
		for _, list := range [][]*unstructured.Unstructured{got, want} {
			for _, o := range list { // each write changes these
				o.SetResourceVersion("")
				o.SetManagedFields(nil)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the objects (-want +got):\n%s", diff)
		}
	})
	taken := b.objects(t)
	t.Run("a row reaches its own object", func(t *testing.T) {
		b.db.Exec(t, "UPDATE customers SET plan = 'silver' WHERE id = 'bolt'")
		b.Terrier(t, "rows", "customers", "--now")
		testkit.Eventually(t, testkit.Patience, "bolt-app has the new plan", func(context.Context) error {
			if got := planOf(b.object(t, "Deployment", "bolt-app")); got != "silver" {
				return fmt.Errorf("it is %q, and the tenant says\n%s", got, b.TryTerrier(t, "tenant", "bolt-web").Stdout)
			}
			return nil
		})
		if was, is := b.find(t, taken, "bolt-app"), b.object(t, "Deployment", "bolt-app"); is.GetUID() != was.GetUID() || is.GetGeneration() != was.GetGeneration()+1 {
			t.Errorf("it has the generation %d and was %d, or is another object: %s, %s", is.GetGeneration(), was.GetGeneration(), is.GetUID(), was.GetUID())
		}
		for _, name := range []string{"acme-app", "acme-notes"} {
			was := b.find(t, taken, name)
			if diff := cmp.Diff(was, b.object(t, was.GetKind(), name)); diff != "" {
				t.Errorf("%s was written (-before +after):\n%s", name, diff)
			}
		}
	})
	t.Run("what is left of Lynq goes alone", func(t *testing.T) {
		before := b.objects(t)
		b.Kubectl(t, "delete", "lynqforms,lynqhubs", "--all", "--timeout=5m")
		testkit.Eventually(t, testkit.Patience, "what the hub owned was collected", func(context.Context) error {
			if b.Exists(t, "of-the-hub", &corev1.ConfigMap{}) {
				return errNot("the end of it")
			}
			return nil
		})
		b.Kubectl(t, "delete", "crd", "lynqhubs.operator.lynq.sh", "lynqforms.operator.lynq.sh", "lynqnodes.operator.lynq.sh", "--timeout=5m")
		if diff := cmp.Diff(before, b.objects(t)); diff != "" {
			t.Errorf("the objects (-before +after):\n%s", diff)
		}
		if out := b.Terrier(t, "tenants"); !strings.Contains(out, "2 tenants: 2 ready.") {
			t.Errorf("terrier tenants shows\n%s\nwant both ready", out)
		}
	})
}

// handOver is what the guide tells a person to type, steps 4 and 5.
func (b bequest) handOver(t *testing.T) {
	t.Helper()
	b.checkNodes(t)
	b.Shell(t, `for n in $(kubectl get lynqnodes -o name); do
  kubectl patch $n --type=merge -p '{"metadata":{"finalizers":null}}'
done
kubectl delete lynqnodes --all --cascade=orphan --timeout=5m`)
	testkit.Eventually(t, testkit.Patience, "nobody owns the objects", func(context.Context) error {
		for _, o := range b.objects(t) {
			if len(o.GetOwnerReferences()) > 0 || o.GetDeletionTimestamp() != nil {
				return fmt.Errorf("%s: %+v", o.GetName(), o.Object["metadata"])
			}
		}
		return nil
	})
	b.Shell(t, `for o in deployment/acme-app deployment/bolt-app configmap/acme-notes configmap/bolt-notes; do
  kubectl get $o -o json --show-managed-fields \
    | jq '{metadata: {resourceVersion: .metadata.resourceVersion, managedFields: [.metadata.managedFields[] | if .manager == "lynq-operator" then .manager = "tenant-operator" else . end]}}' \
    | kubectl patch $o --type=merge --patch-file=/dev/stdin
done`)
}

// taken are the objects as they were left, with the marks of whose they are now in
// the place of Lynq's.
func (b bequest) taken(t *testing.T, left []*unstructured.Unstructured) []*unstructured.Unstructured {
	t.Helper()
	var all []*unstructured.Unstructured
	for _, o := range left {
		o = o.DeepCopy()
		uid, _, _ := strings.Cut(o.GetName(), "-")
		if o.GetKind() == "Deployment" {
			o.SetGeneration(o.GetGeneration() + 1) // Kubernetes counts what becomes of its annotations, too
			o.SetAnnotations(map[string]string{tenantsv1.AnnotationDeletionPolicy: "Delete"})
			yes := true
			o.SetOwnerReferences([]metav1.OwnerReference{{
				APIVersion: tenantsv1.GroupVersion.String(), Kind: tenantsv1.TenantKind, Name: uid + "-web",
				UID: b.tenant(t, uid).UID, Controller: &yes, BlockOwnerDeletion: &yes,
			}})
		} else {
			o.SetAnnotations(map[string]string{tenantsv1.AnnotationDeletionPolicy: "Retain"})
			o.SetLabels(map[string]string{tenantsv1.LabelTenant: uid + "-web", tenantsv1.LabelTenantNamespace: b.Namespace})
		}
		all = append(all, o)
	}
	return all
}

func (b bequest) tenant(t *testing.T, uid string) *tenantsv1.Tenant {
	t.Helper()
	var o tenantsv1.Tenant
	(&example{Cluster: b.Cluster}).get(t, tenantsv1.TenantKind, uid+"-web", &o)
	return &o
}

func (b bequest) awaitTenant(t *testing.T, uid string) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, uid+" is ready", func(context.Context) error {
		r := b.TryTerrier(t, "tenant", uid+"-web")
		if r.Code != 0 {
			return errors.New(r.Stderr)
		}
		if o := b.tenant(t, uid); o.Status.ObservedGeneration != o.Generation || !meta.IsStatusConditionTrue(o.Status.Conditions, "Ready") {
			return errors.New(r.Stdout)
		}
		return nil
	})
}

// objects are those of the tenants, as they are stored.
func (b bequest) objects(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	return []*unstructured.Unstructured{
		b.object(t, "Deployment", "acme-app"), b.object(t, "Deployment", "bolt-app"),
		b.object(t, "ConfigMap", "acme-notes"), b.object(t, "ConfigMap", "bolt-notes"),
	}
}

func (b bequest) object(t *testing.T, kind, name string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(map[string]schema.GroupVersionKind{
		"Deployment": {Group: "apps", Version: "v1", Kind: "Deployment"}, "ConfigMap": {Version: "v1", Kind: "ConfigMap"},
	}[kind])
	b.Get(t, name, o)
	return o
}

func (b bequest) find(t *testing.T, all []*unstructured.Unstructured, name string) *unstructured.Unstructured {
	t.Helper()
	for _, o := range all {
		if o.GetName() == name {
			return o
		}
	}
	t.Fatalf("there is no %s", name)
	return nil
}

// planOf is what the program in a Deployment is told.
func planOf(o *unstructured.Unstructured) string {
	containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	env, _, _ := unstructured.NestedSlice(containers[0].(map[string]any), "env")
	plan, _, _ := unstructured.NestedString(env[0].(map[string]any), "value")
	return plan
}

// leave makes the namespace what it was with Lynq, which is not there any more.
func (b bequest) leave(t *testing.T) {
	t.Helper()
	for _, kind := range []string{"LynqHub", "LynqForm", "LynqNode"} {
		b.Apply(t, strings.NewReplacer("KIND", kind, "NAME", strings.ToLower(kind)).Replace(lynqKind))
		b.Kubectl(t, "wait", "--for=condition=Established", "--timeout=5m", "crd/"+strings.ToLower(kind)+"s.operator.lynq.sh")
	}
	owners := b.Apply(t, fmt.Sprintf(lynqObjects, b.db.Port, database.Reader, database.Database))
	for _, o := range owners {
		if o.GetKind() == "LynqHub" {
			b.Apply(t, fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: of-the-hub\n  ownerReferences: [{apiVersion: operator.lynq.sh/v1, kind: LynqHub, name: customers, uid: %s}]\n", o.GetUID()))
		}
		if o.GetKind() != "LynqNode" {
			continue
		}
		uid, _, _ := strings.Cut(o.GetName(), "-")
		plan := map[string]string{"acme": "gold", "bolt": "free"}[uid]
		manifest := strings.NewReplacer("NODE", string(o.GetUID()), "NAMESPACE", b.Namespace, "TENANT", uid, "PLANNED", plan)
		for _, text := range []string{lynqApp, lynqNotes} {
			b.applyAs(t, "lynq-operator", manifest.Replace(text))
		}
	}
}

// applyAs applies an object as another manager of its fields.
func (b bequest) applyAs(t *testing.T, manager, manifest string) {
	t.Helper()
	o := parsed(t, manifest)
	o.SetNamespace(b.Namespace)
	if err := b.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(manager)); err != nil {
		t.Fatalf("applying %s: %v", o.GetName(), err)
	}
}

// checkNodes runs the check of step 4 as it stands: a node in deletion would take its
// objects with it as soon as its finalizer is removed.
func (b bequest) checkNodes(t *testing.T) {
	t.Helper()
	page := read(t, filepath.Join(testkit.Repository(t), "docs", "migrate-from-tenant-operator.md"))
	check := regexp.MustCompile(`(?m)^ +(kubectl -n NS get lynqnodes -o json .*)$`).FindStringSubmatch(page)
	if check == nil {
		t.Fatal("the page checks no nodes")
	}
	line := strings.ReplaceAll(check[1], "NS", b.Namespace) + " 2>&1; echo ended with $?"
	if said := b.Shell(t, line); !strings.Contains(said, "none\nended with 0") {
		t.Errorf("without a node in deletion the check says %s", said)
	}
	b.Shell(t, `kubectl get lynqnodes -o json | jq '.items[0] | .metadata = {name: "leaving", namespace: .metadata.namespace, finalizers: ["example.com/held"]} | del(.status)' | kubectl create -f -
kubectl delete lynqnode leaving --wait=false`)
	if said := b.Shell(t, line); !strings.Contains(said, `in deletion: ["leaving"]`) || strings.Contains(said, "ended with 0") {
		t.Errorf("with a node in deletion the check says %s", said)
	}
	b.Kubectl(t, "patch", "lynqnode", "leaving", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
}
