package e2e

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/internal/vault/vaulttest"
)

// seedManifests are those of the guide to Kyuubi's platform, with what surrounds the fragments
// that it prints.
const seedManifests = `
apiVersion: v1
kind: Namespace
metadata: {name: kyuubi}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: kyuubi-sa
  namespace: kyuubi
  annotations:
    vault.hashicorp.com/auth-path: "auth/kubernetes"
    vault.hashicorp.com/role: "kyuubi-role"
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: kyuubi-dbt, namespace: kyuubi}
spec:
  selector: {matchLabels: {app: kyuubi-dbt}}
  template:
    metadata: {labels: {app: kyuubi-dbt}}
    spec:
      serviceAccountName: kyuubi-sa
      containers:
      - name: kyuubi
        image: example.com/kyuubi
        env:
        - name: MARIADB_PASSWORD
          valueFrom:
            secretKeyRef:
              name: vault-secret-database
              key: mariadb_password
`

// KY-03, KY-04, KY-05, KY-07: the workloads of the guide have their Secrets, which follow
// Vault, and each reading is in the audit log.
func TestWorkloadsReadFromVault(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, s vaulttest.Server) {
		p := testkit.Up(t, "--vault", s.URL.String(), "--allow-plain-http", "--vault-refresh-interval", "2s")
		c := p.Cluster(t)
		kubernetesAuth(t, s, c)
		s.Policy(t, "kyuubi-policy", `path "kyuubi/data/*" {
  capabilities = ["read"]
}
`)
		s.Ask(t, http.MethodPost, "auth/kubernetes/role/kyuubi-role", map[string]any{
			"bound_service_account_names": "kyuubi-sa", "bound_service_account_namespaces": "kyuubi", "token_policies": "kyuubi-policy", "token_ttl": "20m",
		})
		s.Write(t, "database", map[string]any{"mariadb_password": "canary-of-vault-1"})
		c.Apply(t, seedManifests)
		holds := func(want string) {
			t.Helper()
			testkit.Eventually(t, testkit.Patience, "the Secret holds what is in Vault", func(ctx context.Context) error {
				var found corev1.Secret
				if err := c.Client.Get(ctx, types.NamespacedName{Namespace: "kyuubi", Name: "vault-secret-database"}, &found); err != nil {
					return err
				}
				if string(found.Data["mariadb_password"]) != want || len(found.Data) != 1 {
					return errors.New("it holds something else")
				}
				return nil
			})
		}
		holds("canary-of-vault-1")
		s.Write(t, "database", map[string]any{"mariadb_password": "canary-of-vault-2"})
		holds("canary-of-vault-2") // by the interval
		c.Kubectl(t, "wait", "-n", "kyuubi", "externalsecret/vault-secret-database", "--for=condition=Ready", "--timeout=5m")
		testkit.Eventually(t, testkit.Patience, "the pods are made again once", func(context.Context) error {
			if got := c.Kubectl(t, "get", "-n", "kyuubi", "deployment/kyuubi-dbt", "-o", "jsonpath={.metadata.generation}"); got != "2" {
				return errors.New("the generation is " + got)
			}
			return nil
		})

		// What was written outlives the server.
		s.Ask(t, http.MethodPut, "sys/seal", nil)
		c.Kubectl(t, "wait", "-n", "kyuubi", "externalsecret/vault-secret-database", "--for=condition=Stale", "--timeout=5m")
		holds("canary-of-vault-2")

		log := c.Terrier(t, "audit", "list", "--what", "secret-read", "-n", "kyuubi", "-o", "json")
		for _, want := range []string{`"kyuubi/database"`, `"kyuubi/kyuubi-sa"`, `"kyuubi-role"`, `"requestID"`} {
			if !strings.Contains(log, want) {
				t.Errorf("the audit log lacks %s:\n%s", want, log)
			}
		}
		said := log + c.Kubectl(t, "get", "events,externalsecrets,secretstores,deployments", "-A", "-o", "yaml")
		if strings.Contains(said, "canary-of-vault") {
			t.Error("the audit log, an event or an object holds a value")
		}

		// The Secret goes with the ServiceAccount, by the collector of the control plane.
		c.Kubectl(t, "delete", "-n", "kyuubi", "serviceaccount/kyuubi-sa")
		testkit.Eventually(t, testkit.Patience, "the Secret is gone", func(ctx context.Context) error {
			err := c.Client.Get(ctx, types.NamespacedName{Namespace: "kyuubi", Name: "vault-secret-database"}, &corev1.Secret{})
			if err == nil {
				return errors.New("it is there")
			}
			if !apierrors.IsNotFound(err) {
				return err
			}
			return nil
		})
	})
}

// KY-05: a workload has a credential of its own in a Secret. It outlives a controller that is
// killed, and is revoked when the object is deleted, also by one that was away meanwhile.
func TestWorkloadsHaveCredentialsOfTheirOwn(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, s vaulttest.Server) {
		p := testkit.Up(t, "--vault", s.URL.String(), "--allow-plain-http")
		c := p.Cluster(t)
		kubernetesAuth(t, s, c)
		s.Policy(t, "app", `path "rabbitmq/creds/app" { capabilities = ["read"] }
path "auth/token/renew-self" { capabilities = ["update"] }
path "auth/token/revoke-self" { capabilities = ["update"] }
path "sys/leases/renew" { capabilities = ["update"] }
`)
		s.Lasting(t, 3600, 0)
		c.Apply(t, `
apiVersion: v1
kind: ServiceAccount
metadata:
  name: app
  annotations: {vault.hashicorp.com/role: app, terrier.dev/vault-leases: rabbitmq/creds/app}
`)
		const name = "vault-secret-rabbitmq.creds.app"
		user := func() (user string) {
			t.Helper()
			testkit.Eventually(t, testkit.Patience, "the Secret has a user", func(ctx context.Context) error {
				var found corev1.Secret
				if err := c.Client.Get(ctx, types.NamespacedName{Namespace: c.Namespace, Name: name}, &found); err != nil {
					return err
				}
				if user = string(found.Data["username"]); user == "" {
					return errors.New("it has none")
				}
				return nil
			})
			return user
		}
		first := user()
		all := leases(t, c)
		if len(all) != 1 || !s.Leased(t, all[0]) {
			t.Fatalf("the leases are %q, want one", all)
		}
		c.Kubectl(t, "wait", "externalsecret/"+name, "--for=condition=Ready", "--timeout=5m")
		kill(t, p)
		start(t, p)
		c.Kubectl(t, "label", "--overwrite", "externalsecret/"+name, "a=b") // another one is made for any change
		testkit.Eventually(t, testkit.Patience, "the credential is replaced", func(context.Context) error {
			if user() == first {
				return errors.New("it is the first one")
			}
			return nil
		})
		if all = leases(t, c); len(all) != 2 || !s.Leased(t, all[0]) || !s.Leased(t, all[1]) {
			t.Errorf("the leases are %q, want two that go on", all)
		}
		c.Kubectl(t, "delete", "serviceaccount/app")
		for _, lease := range all {
			s.AwaitEnded(t, lease)
		}
		testkit.Eventually(t, testkit.Patience, "the audit log has two credentials that were revoked", func(context.Context) error { // once the server has answered
			if log := c.Terrier(t, "audit", "list", "--what", "secret-revoked", "-o", "json"); strings.Count(log, `"secret-revoked"`) != 2 {
				return errNot("in\n" + log)
			}
			return nil
		})
	})
}
