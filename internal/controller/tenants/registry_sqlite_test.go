package tenants

import (
	"database/sql"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/rows"
)

// What a person does with a file of SQLite, one statement after another.
func TestStatementsAndWhatTheyLeadTo(t *testing.T) {
	dir := t.TempDir()
	db, err := sql.Open("sqlite", filepath.Join(dir, "shop.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	exec := func(statement string) {
		t.Helper()
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	exec(`CREATE TABLE customers (id TEXT, url TEXT, active INTEGER, plan TEXT)`)
	exec(`INSERT INTO customers VALUES ('a', 'https://a.example.com', 1, 'gold'), ('b', 'https://b.example.com', 1, NULL), ('c', 'https://c.example.com', 0, '')`)
	pools := rows.New(rows.Options{SQLiteDirs: []string{dir}})
	defer pools.Close()
	o := newOffice(t, func(opts *Options) { opts.Rows, opts.SQLiteDirs = pools, []string{dir} })
	o.Apply(t, `
apiVersion: operator.kubernetes-tenants.org/v1
kind: TenantRegistry
metadata: {name: reg}
spec:
  source: {type: sqlite, syncInterval: 1h, sqlite: {path: shop.db, table: customers}}
  valueMappings: {uid: id, hostOrUrl: url, activate: active}
  extraValueMappings: {plan: plan}
  guard: {gracePeriod: 0s}
`)
	o.template()
	o.sync()
	o.wantTenants("with two active rows", "a-web", "b-web")
	exec(`INSERT INTO customers VALUES ('d', 'https://d.example.com', 1, 'gold')`)
	exec(`UPDATE customers SET active = 0 WHERE id = 'a'`)
	o.sync()
	o.wantTenants("after an insert and an update", "b-web", "d-web")
	exec(`DELETE FROM customers WHERE id = 'd'`)
	o.sync()
	o.wantTenants("after a row was absent once", "b-web", "d-web")
	o.sync()
	o.wantTenants("after it was absent twice", "b-web")
	exec(`ALTER TABLE customers RENAME COLUMN url TO link`)
	o.annotate(o.registry(), tenantsv1.AnnotationSyncNow, "with a column renamed")
	o.wantCondition(o.ofRegistry, "Ready", metav1.ConditionFalse, "DatabaseConnectionFailed")
	exec(`ALTER TABLE customers RENAME COLUMN link TO url`)
	exec(`DELETE FROM customers`)
	o.sync()
	o.sync()
	o.wantCondition(o.ofRegistry, "Guarded", metav1.ConditionTrue, "NoRows")
	o.wantTenants("after DELETE FROM customers", "b-web")
}

// A template outlives its registry only until its tenants are gone.
func TestDeletingATemplateWhoseRegistryIsGone(t *testing.T) {
	o := newOffice(t)
	o.template()
	o.Apply(t, `
apiVersion: operator.kubernetes-tenants.org/v1
kind: Tenant
metadata: {name: a-web, labels: {kubernetes-tenants.org/registry: reg}, finalizers: [tenant.operator.kubernetes-tenants.org/finalizer]}
spec: {uid: a, templateRef: web}
`)
	o.wantCondition(o.ofTemplate, "Valid", metav1.ConditionFalse, "RegistryNotFound")
	if err := o.Client.Delete(t.Context(), o.web()); err != nil {
		t.Fatal(err)
	}
	o.wantTenants("after the template was deleted")
	o.eventually("the template is gone", func() error {
		err := o.Client.Get(t.Context(), client.ObjectKey{Namespace: o.Namespace, Name: "web"}, &tenantsv1.TenantTemplate{})
		if err == nil {
			return errDown
		}
		return client.IgnoreNotFound(err)
	})
}
