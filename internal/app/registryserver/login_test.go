package registryserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/terrier-iac/terrier/internal/registry/registrytest/enginetest"
)

// provider is the identity provider of an operator, as far as a login and the registry ask it:
// discovery and keys, an authorization endpoint at which ann is signed in, and a token endpoint
// for one public client with PKCE.
type provider struct {
	*httptest.Server
	key *ecdsa.PrivateKey

	mu    sync.Mutex
	codes map[string]url.Values // the requests, by their codes
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{key: key, codes: map[string]url.Values{}}
	answer := func(w http.ResponseWriter, status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		if err := json.NewEncoder(w).Encode(v); err != nil {
			t.Errorf("the provider cannot answer: %v", err)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]any{"issuer": p.URL, "jwks_uri": p.URL + "/keys", "id_token_signing_alg_values_supported": []string{"ES256"}})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: "1", Algorithm: "ES256", Use: "sig"}}})
	})
	mux.HandleFunc("GET /authorize", p.authorize)
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		token, err := p.exchange(r)
		if err != nil {
			answer(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant", "error_description": err.Error()})
			return
		}
		answer(w, http.StatusOK, map[string]any{"access_token": token, "token_type": "Bearer", "expires_in": 3600})
	})
	p.Server = httptest.NewTLSServer(mux)
	t.Cleanup(p.Close)
	return p
}

func (p *provider) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("client_id") != "tofu" || q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" || !strings.HasPrefix(q.Get("redirect_uri"), "http://localhost:100") {
		http.Error(w, "not a request of the client: "+r.URL.RawQuery, http.StatusBadRequest)
		return
	}
	code := rand.Text()
	p.mu.Lock()
	p.codes[code] = q
	p.mu.Unlock()
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+url.Values{"code": {code}, "state": {q.Get("state")}}.Encode(), http.StatusFound)
}

func (p *provider) exchange(r *http.Request) (string, error) {
	if err := r.ParseForm(); err != nil {
		return "", err
	}
	p.mu.Lock()
	q := p.codes[r.PostForm.Get("code")]
	delete(p.codes, r.PostForm.Get("code"))
	p.mu.Unlock()
	sum := sha256.Sum256([]byte(r.PostForm.Get("code_verifier")))
	if _, _, basic := r.BasicAuth(); q == nil || basic || base64.RawURLEncoding.EncodeToString(sum[:]) != q.Get("code_challenge") || r.PostForm.Get("redirect_uri") != q.Get("redirect_uri") {
		return "", errors.New("the code is of another request")
	}
	return p.token(q.Get("scope"), time.Now().Add(time.Hour))
}

// token is an access token of ann.
func (p *provider) token(scopes string, until time.Time) (string, error) {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: p.key, KeyID: "1"}}, nil)
	if err != nil {
		return "", err
	}
	return jwt.Signed(signer).Claims(map[string]any{
		"iss": p.URL, "aud": "terrier", "sub": "ann", "scope": scopes, "groups": []string{"net"}, "iat": time.Now().Unix(), "exp": until.Unix(),
	}).Serialize()
}

// RG-19, RG-20: "tofu login" leads to the identity provider of the operator, with the scopes of
// discovery, and the access token of that opens what the file of rights says of its claims.
func TestTofuLoginAtAnIdentityProvider(t *testing.T) {
	p := newProvider(t)
	config := files(t, map[string]string{
		"rights.yaml": "tokens: []\noidc:\n  - issuer: " + p.URL + "\n    audience: terrier\n    caFile: idp.pem\n    rights:\n      - claims: {groups: net, scope: openid groups}\n        write: [net]\n",
	})
	authority, err := os.ReadFile(enginetest.Authority(t, p.Server))
	if err == nil {
		err = os.WriteFile(filepath.Join(config, "idp.pem"), authority, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, func(c *Config) {
		c.Rights, c.AllowHosts = filepath.Join(config, "rights.yaml"), []string{"127.0.0.0/8"}
		c.LoginClient, c.LoginAuthz, c.LoginToken, c.LoginScopes, c.LoginPorts = "tofu", p.URL+"/authorize", p.URL+"/token", []string{"openid", "groups"}, "10000-10010"
	})
	own, err := os.ReadFile(r.CA)
	if err != nil {
		t.Fatal(err)
	}
	trusted := filepath.Join(files(t, map[string]string{"trusted.pem": string(own) + string(authority)}), "trusted.pem")
	user := enginetest.Client{Authority: trusted, Home: t.TempDir()}
	token := user.Login(t, r.host(), func(address string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := p.Client().Do(req) // a browser follows the redirect to the command line
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("the command line answers %s", resp.Status)
		}
	})
	if code, out := r.terrier(t, token, push(files(t, says("hello")), "1.0.0")...); code != 0 {
		t.Fatalf("publishing with the token of the login ended with %d: %s", code, out)
	}
	if got := user.Says(t, r.uses(t, "~> 1.0")); got != "hello" {
		t.Errorf("the module says %q", got)
	}
	if code, out := r.terrier(t, token, "module", "push", files(t, says("hello")), "--version", "1.0.0", "--namespace", "other", "--name", "hello", "--system", "demo"); code != 3 {
		t.Errorf("publishing in another namespace ended with %d: %s, want 3", code, out)
	}
	for name, made := range map[string]func() (string, error){
		"of a login without the scopes": func() (string, error) { return p.token("openid", time.Now().Add(time.Hour)) },
		"that has expired":              func() (string, error) { return p.token("openid groups", time.Now().Add(-time.Hour)) },
	} {
		token, err := made()
		if err != nil {
			t.Fatal(err)
		}
		if status, body := r.get(t, r.URL+"/v1/modules/net/hello/demo/versions", token); status != http.StatusUnauthorized && status != http.StatusForbidden {
			t.Errorf("with a token %s the versions are %d %s", name, status, body)
		}
	}
	if strings.Contains(r.logs(), token) {
		t.Error("the log has the token")
	}
}
