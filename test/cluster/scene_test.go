package cluster

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	_ "modernc.org/sqlite" // the driver of the database that a registry reads

	"github.com/terrier-iac/terrier/internal/testkit"
)

// gate is where a run waits in the middle of an apply, until the test opens it.
type gate struct {
	pipe *os.File
	path string // as runs see it
}

// newGate makes a gate in a world's directory.
func newGate(t *testing.T, w *testkit.World) gate {
	t.Helper()
	dir := filepath.Dir(w.Path)
	here := filepath.Join(dir, "gate")
	if err := unix.Mkfifo(here, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(here, testkit.PodUser, testkit.PodUser); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(here, os.O_RDWR, 0) // it keeps what is written until a run reads
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pipe.Close() })
	return gate{pipe, filepath.Join(worldVolume, filepath.Base(dir), "gate")}
}

// open lets one run pass.
func (g gate) open(t *testing.T) {
	t.Helper()
	if _, err := g.pipe.WriteString("go\n"); err != nil {
		t.Fatal(err)
	}
}

// stackOf is a stack whose pods have the test cloud, and the mirror of the providers. More is
// appended to its spec.
func (r *release) stackOf(t *testing.T, name, more, hcl string) string {
	t.Helper()
	return fmt.Sprintf(`
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: %s}
spec:
  interval: 1h
  retryInterval: 1s
  destroyResourcesOnDeletion: true
  runnerPodTemplate:
    spec:
      volumes: [{name: world, hostPath: {path: %q}}, {name: mirror, hostPath: {path: %q}}]
      volumeMounts: [{name: world, mountPath: %s}, {name: mirror, mountPath: /usr/local/bin/mirror, readOnly: true}]
%s
  values:
    hcl: %q
`, name, r.dir, filepath.Join(testkit.Repository(t), "bin", "mirror"), worldVolume, more, hcl)
}

// thing is a resource of the test cloud.
func thing(name, value string) string {
	return fmt.Sprintf("resource \"world_thing\" %q {\n  name = %[1]q\n  value = %q\n}\n", name, value)
}

// gated are two resources of the test cloud, with a gate between them.
func gated(w *testkit.World, g gate) string {
	return w.HCL() + `
resource "world_thing" "a" { name = "a" }
resource "terraform_data" "gate" {
  depends_on = [world_thing.a]
  provisioner "local-exec" { command = "read x < ` + g.path + `" }
}
resource "world_thing" "b" {
  name       = "b"
  depends_on = [terraform_data.gate]
}
output "b" { value = world_thing.b.id }
`
}

const approved = "  approvePlan: auto"

// made compares what a world holds with names, each of which was created once.
func made(t *testing.T, w *testkit.World, names ...string) {
	t.Helper()
	if got := w.Things(); len(got) != len(names) {
		t.Errorf("the world holds %+v, want %q", got, names)
	}
	for _, name := range names {
		n := 0
		for _, c := range w.Calls() {
			if c.Call == "create" && c.Phase == "begin" && c.Name == name {
				n++
			}
		}
		if n != 1 || len(w.Named(name)) != 1 {
			t.Errorf("%s was created %d times, and is there %d times, want once", name, n, len(w.Named(name)))
		}
	}
}

// shopTemplate makes a Deployment whose pods start, a Service, a stack, and then settings for
// each tenant.
const shopTemplate = `
apiVersion: operator.kubernetes-tenants.org/v1
kind: TenantRegistry
metadata: {name: customers}
spec:
  source: {type: sqlite, syncInterval: 1s, sqlite: {path: /var/lib/terrier/shop/customers.db, table: customers}}
  guard: {gracePeriod: 0s}
  valueMappings: {uid: id, hostOrUrl: url, activate: active}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: tenants}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenants}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{kind: ServiceAccount, name: tenants, namespace: %[1]s}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: tenants-stacks}
rules: [{apiGroups: [infra.contrib.fluxcd.io], resources: [terraforms], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenants-stacks}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: tenants-stacks}
subjects: [{kind: ServiceAccount, name: tenants, namespace: %[1]s}]
---
apiVersion: operator.kubernetes-tenants.org/v1
kind: TenantTemplate
metadata: {name: shop}
spec:
  registryId: customers
  serviceAccountName: tenants
  deployments:
    - id: web
      nameTemplate: "{{ .uid }}-web"
      spec:
        apiVersion: apps/v1
        kind: Deployment
        spec:
          replicas: 1
          selector: {matchLabels: {app: "{{ .uid }}-web"}}
          template:
            metadata: {labels: {app: "{{ .uid }}-web"}}
            spec:
              terminationGracePeriodSeconds: 2
              containers:
                - name: main
                  image: %[2]s
                  args: [serve, ":8080"]
                  readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1}
  services:
    - id: shop
      nameTemplate: "{{ .uid }}-shop"
      spec:
        apiVersion: v1
        kind: Service
        spec: {selector: {app: "{{ .uid }}-web"}, ports: [{port: 80, targetPort: 8080}]}
  manifests:
    - id: database
      nameTemplate: "{{ .uid }}-database"
      spec:
        apiVersion: infra.contrib.fluxcd.io/v1alpha2
        kind: Terraform
        spec:
          interval: 1h
          vars: [{name: tenant, value: "{{ .uid }}"}]
          values:
            hcl: |
              variable "tenant" { type = string }
              resource "terraform_data" "database" { input = "shop_${var.tenant}" }
              output "name" { value = terraform_data.database.output }
          writeOutputsToSecret: {name: "{{ .uid }}-database"}
  configMaps:
    - id: settings
      nameTemplate: "{{ .uid }}-settings"
      dependIds: [web, database]
      spec: {apiVersion: v1, kind: ConfigMap, data: {url: "{{ .hostOrUrl }}"}}
`

// customers is a table of customers in the data directory of the controller.
type customers struct {
	db *sql.DB
}

// newCustomers makes the table.
func (r *release) newCustomers(t *testing.T) customers {
	t.Helper()
	dir := filepath.Join(r.Dir, "shop")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, "customers.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	c := customers{db}
	c.exec(t, `CREATE TABLE customers (id TEXT, url TEXT, active INTEGER)`)
	return c
}

func (c customers) exec(t *testing.T, statement string) {
	t.Helper()
	if _, err := c.db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

// closeShop deactivates a tenant, and waits until it is gone.
func (r *release) closeShop(t *testing.T, c customers, tenant string) {
	t.Helper()
	c.exec(t, `UPDATE customers SET active = 0 WHERE id = '`+tenant+`'`)
	r.must(t, "--namespace", r.Namespace, "wait", "tenant", tenant+"-shop", "--for=delete", "--timeout=3m")
}

// awaitShop waits until the Deployment of a tenant is available and the settings have a
// URL, and returns the Deployment.
func (r *release) awaitShop(t *testing.T, tenant, url string) *appsv1.Deployment {
	t.Helper()
	var d *appsv1.Deployment
	testkit.Eventually(t, testkit.Patience, "the shop of "+tenant+" is open", func(ctx context.Context) error {
		var err error
		if d, err = r.Client.AppsV1().Deployments(r.Namespace).Get(ctx, tenant+"-web", metav1.GetOptions{}); err != nil {
			return err
		}
		if d.Status.ObservedGeneration < d.Generation || d.Status.AvailableReplicas != *d.Spec.Replicas {
			return fmt.Errorf("its Deployment has %+v", d.Status)
		}
		m, err := r.Client.CoreV1().ConfigMaps(r.Namespace).Get(ctx, tenant+"-settings", metav1.GetOptions{})
		if err == nil && m.Data["url"] != url {
			err = fmt.Errorf("its settings have %v, want %s", m.Data, url)
		}
		return err
	})
	return d
}
