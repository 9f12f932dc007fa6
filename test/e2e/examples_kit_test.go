package e2e

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	_ "modernc.org/sqlite" // the driver that registries use, too
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1alpha2 "github.com/terrier-iac/terrier/api/infra/v1alpha2"
	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// guidePlatform has the providers which the guide names.
func guidePlatform(t *testing.T, args ...string) *testkit.Platform {
	t.Helper()
	mirror, err := filepath.Abs("../../bin/mirror-guide")
	if err == nil {
		_, err = os.Stat(mirror)
	}
	if err != nil {
		t.Fatalf("run make providers-guide: %v", err)
	}
	return testkit.Up(t, append([]string{"--provider-mirror", mirror, "--sqlite-dir", os.TempDir()}, args...)...)
}

// example is a namespace with one template of the guide and its registry.
type example struct {
	*testkit.Cluster
	platform *testkit.Platform
	rows     *sql.DB
	database string // the file of the rows
	cloud    string // the file that stands in for a cloud
	template string // its name
	uid      string // of the row that the test makes
}

// newExample applies a template as it is, but for the namespace, and a registry
// that the template names, without rows. Credentials are what the example says
// there are.
func newExample(t *testing.T, p *testkit.Platform, name string, credentials map[string]map[string]string) *example {
	t.Helper()
	e := &example{
		Cluster: p.Cluster(t), platform: p, template: name, uid: "tenant-alpha",
		cloud: filepath.Join(p.Shared(t), "cloud.json"), database: filepath.Join(t.TempDir(), "rows.db"),
	}
	for secret, data := range credentials {
		data = maps.Clone(data)
		if secret == "aws-credentials" {
			data["AWS_ENDPOINT_URL"] = "file://" + e.cloud
		}
		e.PutSecret(t, secret, data)
	}
	var err error
	if e.rows, err = sql.Open("sqlite", e.database); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.rows.Close() })
	e.sql(t, "CREATE TABLE tenants (id TEXT PRIMARY KEY, url TEXT, active INTEGER)")
	text := e.seed(t)
	_, registry, _ := strings.Cut(text, "registryId: ")
	registry, _, _ = strings.Cut(registry, "\n")
	e.Apply(t, fmt.Sprintf(`
apiVersion: operator.kubernetes-tenants.org/v1
kind: TenantRegistry
metadata: {name: %s}
spec:
  source: {type: sqlite, syncInterval: 1s, sqlite: {path: %q, table: tenants}}
  valueMappings: {uid: id, hostOrUrl: url, activate: active}
  guard: {gracePeriod: 0s}
`, registry, e.database))
	e.Apply(t, text)
	return e
}

// seed is the template as the guide has it, in the test's namespace.
func (e *example) seed(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(guideDir, e.template+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), "  namespace: default\n", "  namespace: "+e.Namespace+"\n")
}

func (e *example) sql(t *testing.T, statement string, args ...any) {
	t.Helper()
	if _, err := e.rows.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatal(err)
	}
}

// activate adds the row and waits for its Tenant (A2).
func (e *example) activate(t *testing.T) {
	t.Helper()
	e.sql(t, "INSERT INTO tenants VALUES (?, 'https://alpha.example.com/x', 1)", e.uid)
	e.awaitTenant(t, "is there", func(*tenantsv1.Tenant) error { return nil })
}

// awaitStack waits until the tenant's stack is ready, and checks that it is what
// the template says: the text of the module in every byte, but for the row's
// values (A3), and a label and the template's annotations to find it by (A4, A16).
func (e *example) awaitStack(t *testing.T, name string) *infrav1alpha2.Terraform {
	t.Helper()
	e.awaitMade(t, name, &infrav1alpha2.Terraform{})
	s := e.AwaitReady(t, name)
	written := e.written(t)
	if want := strings.ReplaceAll(written.Values.HCL, "{{ .uid }}", e.uid); want != "" {
		var got struct{ HCL string }
		if err := json.Unmarshal(s.Spec.Values.Raw, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got.HCL); diff != "" {
			t.Errorf("the module of %s is another (-want +got):\n%s", name, diff)
		}
		e.locked(t, s, got.HCL)
	}
	if found := e.Kubectl(t, "get", "terraform", "-l", tenantsv1.LabelTenantID+"="+e.uid, "-o", "name"); strings.TrimSpace(found) != "terraform.infra.contrib.fluxcd.io/"+name {
		t.Errorf("by its tenant's id one finds %q", found)
	}
	return s
}

// written is what the template says of its stack.
func (e *example) written(t *testing.T) (spec struct{ Values struct{ HCL string } }) {
	t.Helper()
	var template tenantsv1.TenantTemplate
	e.get(t, "TenantTemplate", e.template, &template)
	var manifest struct {
		Spec *struct{ Values struct{ HCL string } }
	}
	manifest.Spec = &spec
	if err := json.Unmarshal(template.Spec.Manifests[0].Spec.Raw, &manifest); err != nil {
		t.Fatal(err)
	}
	return spec
}

// get reads an object of a kind that the client does not know.
func (e *example) get(t *testing.T, kind, name string, into any) {
	t.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(tenantsv1.GroupVersion.WithKind(kind))
	e.Get(t, name, u)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into); err != nil {
		t.Fatal(err)
	}
}

func (e *example) tenantName() string { return e.uid + "-" + e.template }

func (e *example) hasTenant(t *testing.T) bool {
	t.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(tenantsv1.GroupVersion.WithKind("Tenant"))
	return e.Exists(t, e.tenantName(), u)
}

func (e *example) awaitTenant(t *testing.T, what string, until func(*tenantsv1.Tenant) error) *tenantsv1.Tenant {
	t.Helper()
	var o tenantsv1.Tenant
	testkit.Eventually(t, testkit.Patience, "the tenant "+what, func(context.Context) error {
		if !e.hasTenant(t) {
			return errNot("a Tenant")
		}
		o = tenantsv1.Tenant{}
		e.get(t, "Tenant", e.tenantName(), &o)
		return until(&o)
	})
	return &o
}

// awaitMade waits until an object is there.
func (e *example) awaitMade(t *testing.T, name string, kind client.Object) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, fmt.Sprintf("%T %s is there", kind, name), func(context.Context) error {
		if !e.Exists(t, name, kind) {
			return errNot("such an object")
		}
		return nil
	})
}

// deactivate waits until the Tenant of the row is gone, within a sync (A11).
func (e *example) deactivate(t *testing.T) {
	t.Helper()
	e.sql(t, "UPDATE tenants SET active = 0")
	testkit.Eventually(t, testkit.Patience, "the tenant is gone", func(context.Context) error {
		if e.hasTenant(t) {
			return errNot("the end of it")
		}
		return nil
	})
}

// outputs are those of the stack's Secret, which must be exactly these (A6).
func (e *example) outputs(t *testing.T, name string, keys ...string) map[string]string {
	t.Helper()
	got := e.Secret(t, name)
	slices.Sort(keys)
	if diff := cmp.Diff(keys, slices.Sorted(maps.Keys(got))); diff != "" {
		t.Errorf("the outputs in %s (-want +got):\n%s", name, diff)
	}
	return got
}

// silent checks that a secret is told nowhere but in Secrets (A7).
func (e *example) silent(t *testing.T, secrets ...string) {
	t.Helper()
	told := e.Kubectl(t, "get", "events,terraforms,tenants,tenanttemplates,tenantregistries,configmaps,deployments,controllerrevisions", "--show-managed-fields", "-o", "json") + e.platform.Log()
	for _, secret := range secrets {
		inJSON, err := json.Marshal(secret)
		if err != nil {
			t.Fatal(err)
		}
		if secret == "" || strings.Contains(told, secret) || strings.Contains(told, strings.Trim(string(inJSON), `"`)) {
			t.Errorf("the secret %q is told", secret)
		}
	}
}

// orphaned checks a stack that its tenant released: it is there and says why, and
// its state and outputs are there, too (A9).
func (e *example) orphaned(t *testing.T, name, outputs string) {
	t.Helper()
	s := e.Stack(t, name)
	if !s.DeletionTimestamp.IsZero() || s.Labels[tenantsv1.LabelOrphaned] != "true" || s.Annotations[tenantsv1.AnnotationOrphanedReason] != "TenantDeleted" || len(s.OwnerReferences) > 0 {
		t.Errorf("what stays of the tenant is %+v, want it marked as an orphan", s.ObjectMeta)
	}
	for _, secret := range []string{outputs, "tfstate-default-" + name} {
		if !e.Exists(t, secret, &corev1.Secret{}) {
			t.Errorf("the Secret %s is gone", secret)
		}
	}
}
