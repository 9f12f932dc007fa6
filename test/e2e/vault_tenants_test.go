package e2e

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/internal/vault/vaulttest"
)

const vaultTenants = `
apiVersion: v1
kind: ServiceAccount
metadata:
  name: app
  annotations: {vault.hashicorp.com/role: app}
---
apiVersion: operator.kubernetes-tenants.org/v1
kind: TenantRegistry
metadata: {name: customers}
spec:
  source: {type: sqlite, syncInterval: 1s, sqlite: {path: %q, table: tenants}}
  valueMappings: {uid: id, hostOrUrl: url, activate: active}
  extraValueMappings: {shelf: shelf}
---
apiVersion: operator.kubernetes-tenants.org/v1
kind: TenantTemplate
metadata: {name: web}
spec:
  registryId: customers
  manifests:
  - id: stack
    nameTemplate: "{{ .uid }}"
    spec:
      apiVersion: infra.contrib.fluxcd.io/v1alpha2
      kind: Terraform
      spec:
        approvePlan: auto
        interval: 1h
        retryInterval: 1s
        serviceAccountName: app
        varsFrom: [{kind: Secret, name: "vault://kyuubi/tenants/{{ .shelf }}", varsKeys: ["password:db"]}]
        values: {hcl: "variable \"db\" { sensitive = true }\noutput \"db\" {\n  value     = var.db\n  sensitive = true\n}"}
        writeOutputsToSecret: {name: "{{ .uid }}-outputs"}
`

// A template names a secret of each tenant. A value of a row chooses it, below the path that the
// template names and no higher.
func TestTenantsReadFromVault(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, s vaulttest.Server) {
		p := testkit.Up(t, "--vault", s.URL.String(), "--allow-plain-http", "--sqlite-dir", os.TempDir())
		c := p.Cluster(t)
		kubernetesAuth(t, s, c)
		s.Policy(t, "app", "path \"kyuubi/data/*\" { capabilities = [\"read\"] }\n")
		for _, of := range []string{"alpha", "beta"} {
			s.Write(t, "tenants/"+of, map[string]any{"password": "canary-of-" + of})
		}
		s.Write(t, "platform", map[string]any{"password": "canary-of-platform"})
		path := filepath.Join(t.TempDir(), "rows.db")
		rows, err := sql.Open("sqlite", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { rows.Close() })
		for _, statement := range []string{
			"CREATE TABLE tenants (id TEXT PRIMARY KEY, url TEXT, active INTEGER, shelf TEXT)",
			"INSERT INTO tenants VALUES ('alpha', 'https://a.example.com', 1, 'alpha'), ('beta', 'https://b.example.com', 1, 'beta'), ('mallory', 'https://m.example.com', 1, '../platform')",
		} {
			if _, err := rows.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		c.Apply(t, fmt.Sprintf(vaultTenants, path))
		for _, of := range []string{"alpha", "beta"} {
			c.AwaitReady(t, of)
			if got := c.Secret(t, of+"-outputs")["db"]; got != "canary-of-"+of {
				t.Errorf("the stack of %s has %q", of, got)
			}
		}
		c.Await(t, "mallory", func(s *v1alpha2.Terraform) error {
			if m := condition(s, "Ready").Message; !strings.Contains(m, "is no path of a secret") {
				return errNot(m)
			}
			return nil
		})
		said := c.Terrier(t, "audit", "list", "--what", "secret-read", "-o", "json") + c.Kubectl(t, "get", "tenants,terraforms,events", "-o", "yaml") + p.Log()
		if strings.Contains(said, "canary-of-") {
			t.Error("an object, an event or a log holds a secret of a tenant")
		}
		if !strings.Contains(said, "kyuubi/tenants/alpha") || !strings.Contains(said, "kyuubi/tenants/beta") {
			t.Error("the audit log lacks a reading")
		}
	})
}
