package app

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authnv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/controller/vaults"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/input"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/vault"
)

// accountsOnly is an API server that has a ServiceAccount of each name, and notes for which
// audiences tokens of it are made.
type accountsOnly struct {
	client.Client
	audiences *[][]string
}

func (a accountsOnly) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	into.SetAnnotations(map[string]string{vaults.RoleAnnotation: "app"})
	return nil
}

func (a accountsOnly) SubResource(string) client.SubResourceClient {
	return tokensOnly{audiences: a.audiences}
}

type tokensOnly struct {
	client.SubResourceClient
	audiences *[][]string
}

func (a tokensOnly) Create(_ context.Context, _ client.Object, asked client.Object, _ ...client.SubResourceCreateOption) error {
	request := asked.(*authnv1.TokenRequest)
	*a.audiences = append(*a.audiences, request.Spec.Audiences)
	request.Status.Token = "token"
	return nil
}

// Which methods there are, and which flags go with them.
func TestMethodsOfAVault(t *testing.T) {
	for name, tt := range map[string]struct {
		method, role, audience string
		says                   string // of the error; empty for none
	}{
		"approle":                  {"approle", "", "", ""},
		"token":                    {"token", "", "", ""},
		"kubernetes with a role":   {"kubernetes", "app", "vault", ""},
		"approle with a role":      {"approle", "app", "", "remove them"},
		"token with an audience":   {"token", "", "vault", "remove them"},
		"a method that is not one": {"ldap", "", "", "--vault-auth-method \"ldap\" is not kubernetes, jwt, approle or token"},
	} {
		c, _, err := Config{Vault: "https://vault.example.com", VaultMethod: tt.method, VaultRole: tt.role, VaultAudience: tt.audience, VaultReread: time.Minute}.vault()
		switch {
		case tt.says == "" && (err != nil || string(c.Method) != tt.method || c.Audience != tt.audience):
			t.Errorf("%s: vault() = %+v, %v", name, c, err)
		case tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)):
			t.Errorf("%s: vault() = %v, want an error that says %q", name, err, tt.says)
		}
	}
}

// A Vault that verifies tokens by itself gets none that opens the API server. One that shows
// them to the API server gets such a token only where the operator names no audience.
func TestForWhomTokensAreThatAVaultGets(t *testing.T) {
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) }))
	t.Cleanup(h.Close)
	for name, tt := range map[string]struct {
		method vault.Method
		named  string
		want   []string
	}{
		"jwt":                         {vault.JWT, "", []string{h.URL}},
		"jwt with an audience":        {vault.JWT, "vault", []string{"vault"}},
		"kubernetes":                  {vault.Kubernetes, "", nil}, // the API server's
		"kubernetes with an audience": {vault.Kubernetes, "vault", []string{"vault"}},
	} {
		c, _, err := Config{Vault: h.URL + "/", PlainHTTP: true, VaultMethod: string(tt.method), VaultAudience: tt.named, VaultReread: time.Minute}.vault()
		if err != nil {
			t.Fatal(err)
		}
		c.Server.HTTP = http.DefaultClient
		var asked [][]string
		v := (&vaults.Vaults{Config: *c, Accounts: kube.AccountTokens{Client: accountsOnly{audiences: &asked}}, Now: time.Now, Log: slog.New(slog.DiscardHandler)}).Open()
		reader, ok := v.Reader(vaults.Stack{UID: "u", Account: types.NamespacedName{Namespace: "ns", Name: "app"}}).(input.VaultReader)
		if !ok {
			t.Fatal("it reads nothing of a Vault")
		}
		_, err = reader.Vault(t.Context(), input.VaultSecret{Path: "kyuubi/database"})
		if fault.Reason(err, "") != vault.ReasonSignIn || tt.want != nil && !strings.Contains(err.Error(), tt.want[0]) {
			t.Errorf("%s: %v, want that the sign-in failed, with the audience", name, err)
		}
		if diff := cmp.Diff([][]string{tt.want}, asked); diff != "" {
			t.Errorf("%s: the audiences (-want +got):\n%s", name, diff)
		}
	}
}
