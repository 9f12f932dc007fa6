package web

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// provider is an OpenID Connect provider as the specification has it: a code is
// for one client, one address and one verifier, and is taken once; what it says
// is signed. Its user is always signed in. Tests make it lie.
type provider struct {
	t     *testing.T
	srv   *httptest.Server
	key   *ecdsa.PrivateKey
	clock *handClock

	mu     sync.Mutex
	down   bool
	secret string
	codes  map[string]url.Values // what each code was asked for with
	claims map[string]any        // of the user
	lie    func(claims map[string]any)
	sign   *ecdsa.PrivateKey // in place of key
}

const clientID = "terrier"

func newProvider(t *testing.T, clock *handClock) *provider {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{t: t, key: key, clock: clock, secret: "a secret of the client", codes: map[string]url.Values{}, claims: map[string]any{
		"sub": "8f14e45f", "email": "ann@example.com", "email_verified": true, "groups": []string{"net", "ops"},
	}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", p.discovery)
	mux.HandleFunc("GET /keys", p.keys)
	mux.HandleFunc("GET /authorize", p.authorize)
	mux.HandleFunc("POST /token", p.token)
	p.srv = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		down := p.down
		p.mu.Unlock()
		if down {
			http.Error(w, "down", http.StatusBadGateway)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(p.srv.Close)
	return p
}

// change changes the provider between two requests.
func (p *provider) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func (p *provider) json(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		p.t.Errorf("the provider cannot answer: %v", err)
	}
}

func (p *provider) discovery(w http.ResponseWriter, _ *http.Request) {
	p.json(w, http.StatusOK, map[string]any{
		"issuer": p.srv.URL, "authorization_endpoint": p.srv.URL + "/authorize", "token_endpoint": p.srv.URL + "/token", "jwks_uri": p.srv.URL + "/keys",
		"response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"}, "id_token_signing_alg_values_supported": []string{"ES256"},
	})
}

func (p *provider) keys(w http.ResponseWriter, _ *http.Request) {
	p.json(w, http.StatusOK, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &p.key.PublicKey, KeyID: "1", Algorithm: "ES256", Use: "sig"}}})
}

// authorize sends the browser back with a code.
func (p *provider) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	back, err := url.Parse(q.Get("redirect_uri"))
	if err != nil || q.Get("client_id") != clientID || q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" || q.Get("code_challenge") == "" || q.Get("nonce") == "" || q.Get("state") == "" {
		http.Error(w, "not an authentication request", http.StatusBadRequest)
		return
	}
	code := rand.Text()
	p.mu.Lock()
	p.codes[code] = q
	p.mu.Unlock()
	back.RawQuery = url.Values{"code": {code}, "state": {q.Get("state")}, "iss": {p.srv.URL}}.Encode()
	http.Redirect(w, r, back.String(), http.StatusFound)
}

// token takes a code for an ID token.
func (p *provider) token(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	refuse := func(what string) { p.json(w, http.StatusBadRequest, map[string]string{"error": what}) }
	id, secret, ok := r.BasicAuth()
	if !ok {
		id, secret = r.FormValue("client_id"), r.FormValue("client_secret")
	}
	if s, err := url.QueryUnescape(secret); err != nil || id != clientID || s != p.secret && secret != p.secret {
		p.json(w, http.StatusUnauthorized, map[string]string{"error": "invalid_client"})
		return
	}
	asked, ok := p.codes[r.FormValue("code")]
	delete(p.codes, r.FormValue("code"))
	hash := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	if !ok || r.FormValue("grant_type") != "authorization_code" || r.FormValue("redirect_uri") != asked.Get("redirect_uri") ||
		base64.RawURLEncoding.EncodeToString(hash[:]) != asked.Get("code_challenge") {
		refuse("invalid_grant")
		return
	}
	signed, err := p.idToken(asked.Get("nonce"))
	if err != nil {
		p.t.Errorf("the provider cannot sign: %v", err)
		refuse("server_error")
		return
	}
	p.json(w, http.StatusOK, map[string]any{"access_token": rand.Text(), "token_type": "Bearer", "expires_in": 300, "id_token": signed})
}

func (p *provider) idToken(nonce string) (string, error) {
	now := p.clock.Now()
	claims := map[string]any{"iss": p.srv.URL, "aud": clientID, "iat": now.Unix(), "exp": now.Add(5 * time.Minute).Unix(), "nonce": nonce}
	maps.Copy(claims, p.claims)
	if p.lie != nil {
		p.lie(claims)
	}
	key := p.key
	if p.sign != nil {
		key = p.sign
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, (&jose.SignerOptions{}).WithType("JWT").WithHeader("kid", "1"))
	if err != nil {
		return "", err
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	jws, err := signer.Sign(payload)
	if err != nil {
		return "", err
	}
	compact, err := jws.CompactSerialize()
	return compact, errors.Join(err)
}
