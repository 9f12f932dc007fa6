package vault

import (
	"fmt"
	"net/http"
	"strings"
)

// diagnosis is what a refusal of a sign-in means, and what to do. The method kubernetes
// shows the token to the API server (TokenReview) and says "permission denied" for whatever
// goes wrong there; its own log has the reason, at the level debug.
//
// The texts are those of OpenBao 2.4 and Vault 1.20: builtin/credential/kubernetes
// (path_login.go, token_review.go) and the plug-in for JWT.
func diagnosis(by SignIn, path string, r refusal) string {
	config, role := "vault read auth/"+path+"/config", "vault read auth/"+path+"/role/"+by.Role
	switch {
	case r.code == http.StatusNotFound || r.says("no handler for route", "unsupported path", "no auth method"):
		return fmt.Sprintf("no method is enabled at auth/%s: enable it with vault auth enable -path=%s %s, or name the path of yours (--vault-auth-path, or the annotation vault.hashicorp.com/auth-path)", path, path, by.Method)
	case by.Method == AppRole:
		return "check the role ID and the secret ID, which may have expired: write another secret ID with vault write -f auth/" + path + "/role/NAME/secret-id"
	case r.says("could not load backend configuration", "could not load configuration"):
		return fmt.Sprintf("the method at auth/%s has no configuration: %s", path, configure(by.Method, path))
	case r.says("invalid role name", "could not be found"):
		return fmt.Sprintf("the method at auth/%s has no role %q: make it with vault write auth/%s/role/%s, or correct the annotation vault.hashicorp.com/role of the ServiceAccount", path, by.Role, path, by.Role)
	case r.says("service account name not authorized", "namespace not authorized"):
		return fmt.Sprintf("the role %s is bound to other ServiceAccounts: compare bound_service_account_names and bound_service_account_namespaces of %s", by.Role, role)
	case r.says("audience", "aud)"):
		return fmt.Sprintf("the role wants another audience: set --vault-audience to the one that %s shows", role)
	case r.says("signature", "no known key", "keyset", "invalid issuer", "iss)") && by.Method == JWT:
		return fmt.Sprintf("the method at auth/%s does not know the keys of this cluster, or expects another issuer: compare oidc_discovery_url, jwks_url, jwt_validation_pubkeys and bound_issuer of %s with the output of kubectl get --raw /.well-known/openid-configuration", path, config)
	case r.says("expired", "token is not valid yet"):
		return "the clocks of the cluster and of the server differ: set both by the same time servers"
	case by.Method == Kubernetes && (r.code == http.StatusForbidden || r.says("lookup failed", "tokenreview", "x509", "connection refused", "no such host", "i/o timeout")):
		return fmt.Sprintf("the server could not have the token reviewed by the API server, or the API server refused it. Check in this order: "+
			"(1) %s: kubernetes_host is reachable from the server, and kubernetes_ca_cert is the authority of this cluster; "+
			"(2) token_reviewer_jwt is valid, or unset so that the server uses its own ServiceAccount; "+
			"(3) that ServiceAccount may create tokenreviews: kubectl create clusterrolebinding vault-reviewer --clusterrole=system:auth-delegator --serviceaccount=NAMESPACE:NAME; "+
			"(4) the role has this audience, or none: %s. To correct the configuration: %s", config, role, configure(by.Method, path))
	}
	return fmt.Sprintf("check that the configuration of the method fits this cluster (%s), and that the role is bound to this identity (%s)", config, role)
}

// configure is the command that configures a method.
func configure(m Method, path string) string {
	if m == JWT {
		return "vault write auth/" + path + "/config oidc_discovery_url=https://ISSUER"
	}
	return "vault write auth/" + path + "/config kubernetes_host=https://kubernetes.default.svc:443 kubernetes_ca_cert=@ca.crt"
}

// misconfigured reports whether a server error is about the configuration of the method,
// which another attempt does not change.
func (r refusal) misconfigured() bool {
	return r.code/100 == 5 && (r.says("could not load backend configuration", "could not load configuration", "lookup failed") || strings.Contains(strings.Join(r.errors, " "), "tokenreviews"))
}
