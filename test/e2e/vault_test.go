package e2e

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/internal/vault/vaulttest"
)

// KY-02, KY-04 to KY-07: stacks read what stays, and are made what is made, as the
// ServiceAccount of their runs.
func TestStacksReadFromVault(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, s vaulttest.Server) {
		p := testkit.Up(t, "--vault", s.URL.String(), "--allow-plain-http", "--vault-refresh-interval", "1s")
		c := p.Cluster(t)
		kubernetesAuth(t, s, c)
		s.Policy(t, "app", `path "kyuubi/data/database" { capabilities = ["read"] }
path "pki/issue/web" { capabilities = ["update"] }
path "sys/leases/renew" { capabilities = ["update"] }
`)
		s.Write(t, "database", map[string]any{"password": "canary-of-vault-1"})
		c.Apply(t, `
apiVersion: v1
kind: ServiceAccount
metadata:
  name: app
  annotations: {vault.hashicorp.com/role: app, vault.hashicorp.com/auth-path: auth/kubernetes}
`)
		given := filepath.Join(p.Shared(t), "given")
		c.Apply(t, inline("stack", kept+`
serviceAccountName: app
varsFrom:
- {kind: Secret, name: "vault://kyuubi/database", varsKeys: ["password:db"]}
fileMappings:
- {secretRef: {name: "vault://pki/issue/web?common_name=a.example.com&ttl=1h", key: certificate}, location: home, path: web.pem}
runnerPodTemplate:
  spec:
    env:
    - {name: WEB_KEY, valueFrom: {secretKeyRef: {name: "vault://pki/issue/web?common_name=a.example.com&ttl=1h", key: private_key}}}
    - {name: PASS, valueFrom: {secretKeyRef: {name: "vault://kyuubi/database", key: password}}}`, `
variable "db" { sensitive = true }
resource "terraform_data" "it" {
  triggers_replace = [sha256(var.db)]
  provisioner "local-exec" {
    command = "{ printf '%s\n' \"$PASS\"; printf '%s' \"$WEB_KEY\" | wc -c; wc -c < ~/web.pem; } > `+given+`; echo \"$WEB_KEY\" > `+given+`.key"
  }
  provisioner "local-exec" {
    when    = destroy
    command = "echo \"$WEB_KEY\" > `+given+`.destroyed"
  }
}
`))
		c.AwaitReady(t, "stack")
		if got := lines(t, given); len(got) != 3 || got[0] != "canary-of-vault-1" || strings.TrimSpace(got[1]) == "0" || strings.TrimSpace(got[2]) == "0" {
			t.Errorf("the run was given %q", got)
		}
		ended := func() {
			t.Helper()
			testkit.Eventually(t, testkit.Patience, "what the runs were given has ended", func(context.Context) error {
				all := leases(t, c)
				if len(all) == 0 {
					return errors.New("the audit log names no lease")
				}
				for _, lease := range all {
					if s.Leased(t, lease) {
						return errors.New("the lease " + lease + " goes on")
					}
				}
				return nil
			})
		}
		ended()
		first, err := os.ReadFile(given + ".key")
		if err != nil {
			t.Fatal(err)
		}
		if log := c.Terrier(t, "logs", "stack"); strings.Contains(log, "canary-of-vault") || strings.Contains(log, strings.TrimSpace(string(first))) {
			t.Errorf("a log holds a secret:\n%s", log)
		}

		// Another version in Vault is another plan, found without a change of an object.
		s.Write(t, "database", map[string]any{"password": "canary-of-vault-2"})
		testkit.Eventually(t, testkit.Patience, "the new version reaches the stack", func(context.Context) error {
			if got := lines(t, given); got[0] != "canary-of-vault-2" {
				return errors.New(got[0])
			}
			return nil
		})
		c.AwaitReady(t, "stack")
		ended()
		if second, err := os.ReadFile(given + ".key"); err != nil || string(second) == string(first) {
			t.Errorf("two runs have the same credential (%v)", err)
		}

		// A Vault that is sealed holds the stack, and says what to do. The key to unseal
		// OpenBao is in its log.
		if !s.Real {
			s.Ask(t, http.MethodPut, "sys/seal", nil)
			c.Kubectl(t, "annotate", "terraform/stack", "reconcile.fluxcd.io/requestedAt=now")
			c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
				if m := condition(s, "Ready").Message; !strings.Contains(m, "unseal it") {
					return errNot(m)
				}
				return nil
			})
			s.Ask(t, http.MethodPut, "sys/unseal", nil)
			c.AwaitReady(t, "stack")
		}

		// The destroy is given what it needs, too, and nothing is left.
		c.Delete(t, "stack")
		c.AwaitGone(t, "stack")
		if got := lines(t, given+".destroyed"); got[0] == "" || got[0] == strings.TrimSpace(string(first)) {
			t.Errorf("the destroy was given %q, want a credential of its own", got)
		}
		for _, lease := range leases(t, c) {
			s.AwaitEnded(t, lease)
		}
	})
}

// leases are those that the audit log says were handed out.
func leases(t *testing.T, c *testkit.Cluster) (all []string) {
	t.Helper()
	for _, line := range strings.Split(c.Terrier(t, "audit", "list", "--what", "secret-read", "-o", "json"), "\"lease\":")[1:] {
		_, rest, _ := strings.Cut(line, "\"")
		lease, _, _ := strings.Cut(rest, "\"")
		all = append(all, lease)
	}
	return all
}

// kubernetesAuth lets ServiceAccounts called app sign in with the role app.
func kubernetesAuth(t *testing.T, s vaulttest.Server, c *testkit.Cluster) {
	t.Helper()
	testkit.VaultTrusts(t, s, c)
	testkit.VaultRole(t, s, c, "app", "5m")
}

// A stack reads with the AppRole or the token in a Secret of its namespace. A stack of
// another namespace that says the same has nothing of it.
func TestStacksReadWithCredentials(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, s vaulttest.Server) {
		p := testkit.Up(t, "--vault", s.URL.String(), "--allow-plain-http", "--vault-auth-method", "approle", "--vault-refresh-interval", "1s")
		s.Policy(t, "app", "path \"kyuubi/data/database\" { capabilities = [\"read\"] }\npath \"auth/token/create\" { capabilities = [\"update\"] }\n")
		s.Write(t, "database", map[string]any{"password": "canary-of-vault-1"})
		role, id := s.AppRole(t, "app", "app", "5m")
		c, other := p.Cluster(t), p.Cluster(t)
		account := `
apiVersion: v1
kind: ServiceAccount
metadata:
  name: app
  annotations: {terrier.dev/vault-credentials: vault}
`
		spec := kept + `
retryInterval: 1s
serviceAccountName: app
varsFrom:
- {kind: Secret, name: "vault://kyuubi/database", varsKeys: ["password:db"]}`
		hcl := "variable \"db\" { sensitive = true }\nresource \"terraform_data\" \"it\" { input = sha256(var.db) }\n"
		for _, each := range []*testkit.Cluster{c, other} {
			each.Apply(t, account)
			each.Apply(t, inline("stack", spec, hcl))
		}
		says := func(in *testkit.Cluster, what string) {
			t.Helper()
			in.Await(t, "stack", func(s *v1alpha2.Terraform) error {
				if m := condition(s, "Ready").Message; !strings.Contains(m, what) {
					return errNot(m)
				}
				return nil
			})
		}
		says(c, "the Secret vault of the namespace "+c.Namespace)
		c.Kubectl(t, "create", "secret", "generic", "vault", "--from-literal=role-id="+role, "--from-literal=secret-id="+id)
		c.AwaitReady(t, "stack")
		says(other, "the Secret vault of the namespace "+other.Namespace)
		other.Kubectl(t, "create", "secret", "generic", "vault", "--from-literal=role-id="+role, "--from-literal=secret-id=guessed")
		says(other, "check the role ID and the secret ID")

		// A ServiceAccount has a token in place of the AppRole.
		c.Kubectl(t, "create", "secret", "generic", "by-token", "--from-literal=token="+s.Token(t, "app", "1h"))
		c.Kubectl(t, "annotate", "--overwrite", "serviceaccount/app", "vault.hashicorp.com/auth-type=token", "terrier.dev/vault-credentials=by-token")
		s.EndSecretID(t, "app", id)
		s.Write(t, "database", map[string]any{"password": "canary-of-vault-2"})
		testkit.Eventually(t, testkit.Patience, "the new version is read with the token", func(context.Context) error {
			if out := c.Terrier(t, "audit", "list", "--what", "secret-read", "-o", "json"); !strings.Contains(out, c.Namespace+"/by-token") {
				return errNot(out)
			}
			return nil
		})
		c.AwaitReady(t, "stack")
		for _, credential := range []string{id, "canary-of-vault"} {
			if strings.Contains(p.Log(), credential) {
				t.Errorf("the log of the platform holds %s", credential)
			}
		}
	})
}
