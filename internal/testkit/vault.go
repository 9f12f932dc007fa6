package testkit

import (
	"net/http"
	"testing"

	authnv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
