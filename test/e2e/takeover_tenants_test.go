package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/tenantapi"
	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/internal/testkit/database"
)

// heritage is a namespace as Tenant Operator 1.1.8 leaves it.
type heritage struct {
	*testkit.Cluster
	objects []*unstructured.Unstructured // of its tenants, as they were
}

// A migration from Tenant Operator 1.1.8 starts Terrier on the same cluster, and no
// object of a tenant is written, before the database can be read and after. What the
// template or the rows change later is changed in place.
func TestTakeoverOfTenants(t *testing.T) {
	h := heritage{Cluster: testkit.Kube(t, tenantsv1.AddToScheme)}
	_, h.objects = h.Operator118(t)
	p, err := testkit.NewPlatform(testkit.PlatformOptions{
		Dir: filepath.Join(t.TempDir(), "platform"), Cluster: h.Cluster,
		Flags: []string{"--tenant-namespaces", "*"}, // as the operator could
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the platform said:\n%s", p.Log())
		}
		if err := p.Close(); err != nil {
			t.Errorf("ending the platform: %v", err)
		}
	})

	t.Run("while the database cannot be reached", func(t *testing.T) {
		h.awaitTenant(t, "acme-web", settled)
		h.awaitTenant(t, "bolt-web", settled)
		h.awaitRegistry(t, "DatabaseConnectionFailed")
		h.untouched(t)
		for _, name := range []string{"acme-web", "bolt-web"} {
			o := h.tenant(t, name)
			if len(o.Status.Inventory) != 7 || !slices.Contains(o.Finalizers, tenantsv1.TenantFinalizer) || o.Annotations[tenantsv1.AnnotationExtra] == "" {
				t.Errorf("%s has %d objects, the finalizers %v and the annotations %v; want 7, and the rest as it was", name, len(o.Status.Inventory), o.Finalizers, o.Annotations)
			}
		}
	})

	db := database.StartMariaDB(t)
	db.Exec(t, "CREATE TABLE customers (customer_id VARCHAR(40) PRIMARY KEY, site_url TEXT, is_active TINYINT(1), subscription_plan TEXT, message TEXT)",
		`INSERT INTO customers VALUES ('acme', 'https://acme.example.com/shop', 1, 'gold', '{{ env "HOME" }}'), ('bolt', 'bolt.example.com', 1, 'free', 'hello')`)
	h.reach(t, db)

	t.Run("when the rows are read", func(t *testing.T) {
		h.awaitRegistry(t, "DatabaseConnected")
		for _, name := range []string{"acme-web", "bolt-web"} {
			o := h.awaitTenant(t, name, func(o *tenantsv1.Tenant) error {
				if o.Annotations[tenantsv1.AnnotationRow] == "" || o.Status.Row != o.Annotations[tenantsv1.AnnotationRow] {
					return fmt.Errorf("its row is %q, and what it has is made of %q", o.Annotations[tenantsv1.AnnotationRow], o.Status.Row)
				}
				return settled(o)
			})
			if o.Annotations[tenantsv1.AnnotationExtra] != "" {
				t.Errorf("%s still has its row in an annotation", name)
			}
			var s corev1.Secret
			h.Get(t, tenantapi.RowSecret(name), &s)
		}
		h.untouched(t)
	})

	t.Run("a change of the template is made in place", func(t *testing.T) {
		h.change(t, "TenantTemplate", "web", `[{"op":"replace","path":"/spec/configMaps/0/spec/data/motd","value":"{{ .motd }}!"}]`)
		for uid, want := range map[string]string{"acme": `{{ env "HOME" }}!`, "bolt": "hello!"} {
			m := h.awaitMap(t, uid+"-config", "motd", want)
			if before := h.before(t, "ConfigMap", uid+"-config"); m.UID != before.GetUID() || m.Labels["app"] != uid {
				t.Errorf("%s-config is another object, or has lost something: %+v", uid, m.ObjectMeta)
			}
		}
		h.untouched(t, "acme-config", "bolt-config")
	})

	t.Run("a change of a row reaches its own objects", func(t *testing.T) {
		db.Exec(t, "UPDATE customers SET message = 'closed today' WHERE customer_id = 'bolt'")
		h.Terrier(t, "rows", "customers", "--now")
		h.awaitMap(t, "bolt-config", "motd", "closed today!")
		h.untouched(t, "acme-config", "bolt-config")
	})

	t.Run("a row that is deactivated goes as its policies say", func(t *testing.T) {
		h.change(t, "TenantRegistry", "customers", `[{"op":"add","path":"/spec/guard","value":{"gracePeriod":"0s"}}]`)
		db.Exec(t, "UPDATE customers SET is_active = 0 WHERE customer_id = 'bolt'")
		h.Terrier(t, "rows", "customers", "--now")
		testkit.Eventually(t, testkit.Patience, "bolt-web is gone", func(context.Context) error {
			if h.Exists(t, "bolt-web", &tenantsv1.Tenant{}) {
				return errors.New(h.TryTerrier(t, "tenant", "bolt-web").Stdout)
			}
			return nil
		})
		if h.Exists(t, "bolt-config", &corev1.ConfigMap{}) || h.Exists(t, "bolt-web", &corev1.Service{}) || h.Exists(t, "bolt-first", &corev1.ConfigMap{}) {
			t.Error("objects of bolt are still there")
		}
		var license corev1.Secret
		h.Get(t, "bolt-license", &license)
		if license.Labels[tenantsv1.LabelOrphaned] != "true" || license.Annotations[tenantsv1.AnnotationOrphanedReason] != "TenantDeleted" || license.Labels[tenantsv1.LabelTenant] != "" {
			t.Errorf("what stays of bolt is %+v, want it marked as an orphan", license.ObjectMeta)
		}
		if out := h.Terrier(t, "tenants"); !strings.Contains(out, "1 tenant: 1 ready.") {
			t.Errorf("terrier tenants says %q", out)
		}
	})
}

// settled says that nothing is left to do for a tenant.
func settled(o *tenantsv1.Tenant) error {
	if len(o.Status.Inventory) == 0 || o.Status.ObservedGeneration != o.Generation || !meta.IsStatusConditionTrue(o.Status.Conditions, "Ready") {
		return fmt.Errorf("it is %+v", o.Status)
	}
	return nil
}

func (h heritage) tenant(t *testing.T, name string) *tenantsv1.Tenant {
	t.Helper()
	var o tenantsv1.Tenant
	h.Get(t, name, &o)
	return &o
}

func (h heritage) awaitTenant(t *testing.T, name string, until func(*tenantsv1.Tenant) error) *tenantsv1.Tenant {
	t.Helper()
	var o *tenantsv1.Tenant
	testkit.Eventually(t, testkit.Patience, name+" has come to rest", func(context.Context) error {
		o = h.tenant(t, name)
		return until(o)
	})
	return o
}

func (h heritage) awaitRegistry(t *testing.T, reason string) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, "the registry says "+reason, func(context.Context) error {
		var o tenantsv1.TenantRegistry
		h.Get(t, "customers", &o)
		if c := meta.FindStatusCondition(o.Status.Conditions, "Ready"); c == nil || c.Reason != reason {
			return fmt.Errorf("it says %+v", c)
		}
		return nil
	})
}

func (h heritage) awaitMap(t *testing.T, name, key, want string) *corev1.ConfigMap {
	t.Helper()
	var m corev1.ConfigMap
	testkit.Eventually(t, testkit.Patience, name+" says "+want, func(context.Context) error {
		if h.Get(t, name, &m); m.Data[key] != want {
			return fmt.Errorf("it says %q", m.Data[key])
		}
		return nil
	})
	return &m
}

// reach points the registry at a database that is there.
func (h heritage) reach(t *testing.T, db *database.Server) {
	t.Helper()
	h.PutSecret(t, "customers-database", map[string]string{"password": database.Password})
	patch, err := json.Marshal([]map[string]any{
		{"op": "replace", "path": "/spec/source/mysql/port", "value": db.Port},
		{"op": "replace", "path": "/spec/source/mysql/username", "value": database.Reader},
		{"op": "replace", "path": "/spec/source/mysql/database", "value": database.Database},
	})
	if err != nil {
		t.Fatal(err)
	}
	h.change(t, "TenantRegistry", "customers", string(patch))
}

// change edits an object as its owner does.
func (h heritage) change(t *testing.T, kind, name, patch string) {
	t.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(tenantsv1.GroupVersion.WithKind(kind))
	o.SetNamespace(h.Namespace)
	o.SetName(name)
	if err := h.Client.Patch(t.Context(), o, client.RawPatch(types.JSONPatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

func (h heritage) before(t *testing.T, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, o := range h.objects {
		if o.GetKind() == kind && o.GetName() == name {
			return o
		}
	}
	t.Fatalf("the operator left no %s %s", kind, name)
	return nil
}

// untouched checks that no object was written, but for those that are named.
func (h heritage) untouched(t *testing.T, but ...string) {
	t.Helper()
	for _, before := range h.objects {
		if slices.Contains(but, before.GetName()) {
			continue
		}
		after := &unstructured.Unstructured{}
		after.SetGroupVersionKind(before.GroupVersionKind())
		if err := h.Client.Get(t.Context(), client.ObjectKeyFromObject(before), after); err != nil {
			t.Errorf("%s %s: %v", before.GetKind(), before.GetName(), err)
			continue
		}
		if after.GetUID() != before.GetUID() || after.GetResourceVersion() != before.GetResourceVersion() {
			t.Errorf("%s %s was written: %v", before.GetKind(), before.GetName(), after.GetManagedFields())
		}
	}
}
