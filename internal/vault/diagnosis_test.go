package vault_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/vault"
	"github.com/terrier-iac/terrier/internal/vault/vaulttest"
)

// Each way in which a sign-in is refused leads to the setting that is wrong. The answers are
// those of the source of OpenBao 2.4.
func TestARefusedSignInIsDiagnosed(t *testing.T) {
	for name, tt := range map[string]struct {
		method vault.Method
		code   int
		says   string
		want   []string
	}{
		"the API server refuses the review":     {vault.Kubernetes, 403, "permission denied", []string{"kubernetes_host", "kubernetes_ca_cert", "system:auth-delegator", "vault write auth/k8s/config"}},
		"the review fails with an error":        {vault.Kubernetes, 500, "lookup failed: service account unauthorized; this could mean it has been deleted", []string{"vault read auth/k8s/config", "tokenreviews"}},
		"the configuration was never written":   {vault.Kubernetes, 500, "could not load backend configuration", []string{"has no configuration", "vault write auth/k8s/config kubernetes_host="}},
		"there is no such role":                 {vault.Kubernetes, 400, `invalid role name "app"`, []string{`no role "app"`, "vault.hashicorp.com/role"}},
		"the role is of another ServiceAccount": {vault.Kubernetes, 403, "service account name not authorized", []string{"bound_service_account_names", "vault read auth/k8s/role/app"}},
		"the role is of another namespace":      {vault.Kubernetes, 403, "namespace not authorized", []string{"bound_service_account_namespaces"}},
		"the role wants another audience":       {vault.Kubernetes, 403, "invalid audience (aud) claim: audience claim does not match any expected audience", []string{"--vault-audience"}},
		"the method is not enabled":             {vault.Kubernetes, 404, "no handler for route \"auth/k8s/login\"", []string{"vault auth enable -path=k8s kubernetes", "--vault-auth-path"}},
		"keys of another cluster":               {vault.JWT, 400, "error validating token: invalid signature: no known key successfully validated the token signature", []string{"jwks_url", "bound_issuer"}},
		"clocks that differ":                    {vault.JWT, 400, "error validating token: token is expired", []string{"clocks"}},
		"approle is not enabled":                {vault.AppRole, 404, "no handler for route \"auth/k8s/login\"", []string{"vault auth enable -path=k8s approle", "vault.hashicorp.com/auth-path"}},
		"a secret ID that expired":              {vault.AppRole, 400, "invalid role or secret ID", []string{"secret-id"}},
		"anything else":                         {vault.JWT, 400, "something", []string{"vault read auth/k8s/config"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tt.code)
				if err := json.NewEncoder(w).Encode(map[string]any{"errors": []string{tt.says}}); err != nil {
					t.Error(err)
				}
			}))
			defer h.Close()
			at, err := url.Parse(h.URL)
			if err != nil {
				t.Fatal(err)
			}
			_, err = vault.Server{URL: at, HTTP: h.Client()}.SignIn(t.Context(), vault.SignIn{Method: tt.method, Path: "k8s", Role: "app", Identity: secret.New("token-canary")})
			if fault.Of(err) != fault.Denied || fault.Reason(err, "") != vault.ReasonSignIn || strings.Contains(err.Error(), "canary") {
				t.Fatalf("the error is %v, want Denied without the token", err)
			}
			for _, want := range append(tt.want, tt.says) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error is %q, want %q in it", err, want)
				}
			}
		})
	}
}

// An OpenBao whose method has no configuration, or one that leads to another cluster.
func TestAMisconfiguredMethod(t *testing.T) {
	s := vaulttest.OpenBao(t)
	s.Ask(t, http.MethodPost, "sys/auth/kubernetes", map[string]any{"type": "kubernetes"})
	s.Ask(t, http.MethodPost, "auth/kubernetes/role/app", map[string]any{"bound_service_account_names": "*", "bound_service_account_namespaces": "*"})
	by := vault.SignIn{Method: vault.Kubernetes, Role: "app", Identity: secret.New("e30.e30.e30")}
	_, err := server(s).SignIn(t.Context(), by)
	if fault.Reason(err, "") != vault.ReasonSignIn || !strings.Contains(err.Error(), "has no configuration") {
		t.Errorf("without a configuration the error is %v, want that there is none", err)
	}
	by.Role = "other"
	if _, err = server(s).SignIn(t.Context(), by); !strings.Contains(err.Error(), "has no role") {
		t.Errorf("with another role the error is %v, want that there is none", err)
	}
	by.Path = "nowhere"
	if _, err = server(s).SignIn(t.Context(), by); fault.Of(err) != fault.Denied {
		t.Errorf("at a path without a method the error is %v, want Denied", err)
	}
}
