package testkit

import (
	"fmt"
	"net/http"
	"testing"

	authnv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/internal/testkit/database"
	"github.com/terrier-iac/terrier/internal/vault/vaulttest"
)

// VaultTrusts lets ServiceAccounts of a cluster sign in to a Vault by the method kubernetes.
// OpenBao asks the API server of the test whose tokens they are.
func VaultTrusts(t *testing.T, s vaulttest.Server, c *Cluster) {
	t.Helper()
	s.Ask(t, http.MethodPost, "sys/auth/kubernetes", map[string]string{"type": "kubernetes"})
	if !s.Real {
		return
	}
	c.Apply(t, `
apiVersion: v1
kind: ServiceAccount
metadata: {name: reviewer}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reviewer-`+c.Namespace+`}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:auth-delegator"}
subjects:
- {kind: ServiceAccount, name: reviewer, namespace: `+c.Namespace+`}
`)
	token := &authnv1.TokenRequest{}
	of := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "reviewer"}}
	if err := c.Client.SubResource("token").Create(t.Context(), of, token); err != nil {
		t.Fatal(err)
	}
	s.Ask(t, http.MethodPost, "auth/kubernetes/config", map[string]any{
		"kubernetes_host": c.Config.Host, "kubernetes_ca_cert": string(c.Config.CAData), "token_reviewer_jwt": token.Status.Token, "disable_local_ca_jwt": true,
	})
}

// VaultRole gives the role and the policy of a name to ServiceAccounts of the same name.
func VaultRole(t *testing.T, s vaulttest.Server, c *Cluster, name, lasts string) {
	t.Helper()
	s.Ask(t, http.MethodPost, "auth/kubernetes/role/"+name, map[string]any{
		"bound_service_account_names": name, "bound_service_account_namespaces": c.Namespace, "token_policies": name, "token_ttl": lasts,
	})
}

// vaultAdmin is the user by whom an OpenBao makes users in databases.
const vaultAdmin, vaultAdminPassword = "bao", "admin-canary"

// VaultPostgreSQL starts a PostgreSQL server in which an OpenBao makes users, at
// database/creds/app: they may read the table customers and make tables, and no more. Their names
// begin with v-. The statements are those of docs/vault.md: a user who owns something cannot be
// dropped, and only a member of both gives it to a group.
func VaultPostgreSQL(t *testing.T, s vaulttest.Server) *database.Server {
	t.Helper()
	db := database.StartPostgreSQL(t)
	db.Exec(t, "CREATE TABLE customers (name TEXT)", "INSERT INTO customers VALUES ('alpha')", "GRANT CREATE ON SCHEMA public TO "+database.Reader,
		fmt.Sprintf("CREATE ROLE %s LOGIN CREATEROLE PASSWORD '%s'", vaultAdmin, vaultAdminPassword), fmt.Sprintf("GRANT %s TO %s WITH ADMIN OPTION", database.Reader, vaultAdmin))
	s.Database(t, vaulttest.Database{
		Plugin: "postgresql-database-plugin", URL: "postgresql://{{username}}:{{password}}@" + db.Address() + "/" + database.Database + "?sslmode=disable",
		Admin: vaultAdmin, Password: vaultAdminPassword,
		Create: `CREATE ROLE "{{name}}" LOGIN PASSWORD '{{password}}' VALID UNTIL '{{expiration}}' IN ROLE ` + database.Reader + `; GRANT "{{name}}" TO ` + vaultAdmin,
		Revoke: `REASSIGN OWNED BY "{{name}}" TO ` + database.Reader + `; DROP OWNED BY "{{name}}"; DROP ROLE "{{name}}"`,
	})
	return db
}

// VaultMariaDB is the same with a MariaDB server, whose users make no tables.
func VaultMariaDB(t *testing.T, s vaulttest.Server) *database.Server {
	t.Helper()
	db := database.StartMariaDB(t)
	db.Exec(t, "CREATE TABLE customers (name TEXT)", "INSERT INTO customers VALUES ('alpha')",
		fmt.Sprintf("CREATE USER %s@'%%' IDENTIFIED BY '%s'", vaultAdmin, vaultAdminPassword), "GRANT CREATE USER ON *.* TO "+vaultAdmin+"@'%'",
		"GRANT SELECT ON "+database.Database+".* TO "+vaultAdmin+"@'%' WITH GRANT OPTION")
	s.Database(t, vaulttest.Database{
		Plugin: "mysql-database-plugin", URL: "{{username}}:{{password}}@tcp(" + db.Address() + ")/", Admin: vaultAdmin, Password: vaultAdminPassword,
		Create: "CREATE USER '{{name}}'@'%' IDENTIFIED BY '{{password}}'; GRANT SELECT ON " + database.Database + ".customers TO '{{name}}'@'%'",
	})
	return db
}
