package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// Names that are too long for labels are names like any other: a tenant of 200
// characters gets its objects, in its namespace and elsewhere, keeps them right,
// and takes them with it, but for what is to stay.
func TestLongNames(t *testing.T) {
	t.Parallel()
	p := testkit.Up(t, "--sqlite-dir", os.TempDir())
	elsewhere := p.Cluster(t)
	e := &example{
		Cluster: p.Cluster(t), platform: p, uid: strings.Repeat("u", 63), template: strings.Repeat("t", 136),
		database: filepath.Join(t.TempDir(), "rows.db"),
	}
	if n := len(e.tenantName()); n != 200 {
		t.Fatalf("the name of the tenant has %d characters, want 200", n)
	}
	var err error
	if e.rows, err = sql.Open("sqlite", e.database); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.rows.Close() })
	e.sql(t, "CREATE TABLE tenants (id TEXT PRIMARY KEY, url TEXT, active INTEGER)")
	registry := strings.Repeat("r", 100)
	e.Apply(t, fmt.Sprintf(longManifests, registry, e.database, e.template, registry, elsewhere.Namespace))
	e.activate(t)
	e.AwaitReady(t, "stack")
	ready := func(o *tenantsv1.Tenant) error {
		if o.Status.ReadyResources != 3 {
			return fmt.Errorf("it is %+v", o.Status)
		}
		return nil
	}
	e.awaitTenant(t, "is ready", ready)
	var kept, there corev1.ConfigMap
	if e.Get(t, "kept", &kept); kept.Data["registry"] != registry || kept.Annotations["terrier.dev/tenant"] != e.tenantName() {
		t.Errorf("what is to stay is %+v", kept)
	}
	elsewhere.Kubectl(t, "delete", "configmap", "there")
	testkit.Eventually(t, testkit.Patience, "what somebody deleted is there again", func(context.Context) error {
		if !elsewhere.Exists(t, "there", &there) {
			return errNot("such an object")
		}
		return nil
	})
	if got := e.Terrier(t, "tenants", "--registry", registry); !strings.Contains(got, "1 tenant: 1 ready.") {
		t.Errorf("terrier tenants shows\n%s", got)
	}

	e.deactivate(t)
	e.AwaitGone(t, "stack")
	if elsewhere.Exists(t, "there", &there) {
		t.Error("what the tenant had elsewhere is still there")
	}
	kept = corev1.ConfigMap{}
	if e.Get(t, "kept", &kept); kept.Labels[tenantsv1.LabelOrphaned] != "true" || kept.Labels[tenantsv1.LabelTenant] != "" || kept.Annotations["terrier.dev/tenant"] != "" {
		t.Errorf("what stays is marked with %v and %v, want as an orphan", kept.Labels, kept.Annotations)
	}
}

const longManifests = `
apiVersion: operator.kubernetes-tenants.org/v1
kind: TenantRegistry
metadata: {name: %s}
spec:
  source: {type: sqlite, syncInterval: 1s, sqlite: {path: %q, table: tenants}}
  valueMappings: {uid: id, hostOrUrl: url, activate: active}
  guard: {gracePeriod: 0s}
---
apiVersion: operator.kubernetes-tenants.org/v1
kind: TenantTemplate
metadata: {name: %s}
spec:
  registryId: %s
  configMaps:
  - {id: kept, nameTemplate: kept, deletionPolicy: Retain, spec: {apiVersion: v1, kind: ConfigMap, data: {registry: "{{ .registryId }}"}}}
  - {id: there, nameTemplate: there, targetNamespace: %s, dependIds: [stack], spec: {apiVersion: v1, kind: ConfigMap, data: {uid: "{{ .uid }}"}}}
  manifests:
  - id: stack
    nameTemplate: stack
    spec:
      apiVersion: infra.contrib.fluxcd.io/v1alpha2
      kind: Terraform
      spec: {interval: 1h, values: {hcl: "output \"uid\" { value = \"{{ .uid }}\" }"}}
`
