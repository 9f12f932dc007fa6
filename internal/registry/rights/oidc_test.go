package rights

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/terrier-iac/terrier/internal/fault"
)

// idp is an issuer that signs what a test wants.
type idp struct {
	t     *testing.T
	srv   *httptest.Server
	at    *clock
	key   *ecdsa.PrivateKey
	id    string
	down  atomic.Bool
	asked atomic.Int32 // for its keys
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newIDP(t *testing.T, at *clock) *idp {
	t.Helper()
	p := &idp{t: t, at: at, key: newKey(t), id: "1"}
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(v); err != nil {
			t.Errorf("the issuer cannot answer: %v", err)
		}
	}
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"issuer": p.srv.URL, "jwks_uri": p.srv.URL + "/keys", "id_token_signing_alg_values_supported": []string{"ES256", "HS256"}})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		p.asked.Add(1)
		answer(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &p.key.PublicKey, KeyID: p.id, Algorithm: "ES256", Use: "sig"}}})
	})
	p.srv = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.down.Load() {
			http.Error(w, "down", http.StatusBadGateway)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(p.srv.Close)
	return p
}

// token signs claims, with those that every token has unless the test says otherwise.
func (p *idp) token(claims map[string]any) string {
	p.t.Helper()
	all := map[string]any{"iss": p.srv.URL, "aud": "terrier", "sub": "ann", "iat": p.at.Now().Unix(), "exp": p.at.Now().Add(time.Hour).Unix()}
	for name, value := range claims {
		all[name] = value
	}
	body, err := json.Marshal(all)
	if err != nil {
		p.t.Fatal(err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: p.key, KeyID: p.id}}, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	signed, err := signer.Sign(body)
	if err != nil {
		p.t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		p.t.Fatal(err)
	}
	return text
}

// book has the rights of an issuer.
func (p *idp) book(rights string) *Book {
	p.t.Helper()
	dir := p.t.TempDir()
	write(p.t, filepath.Join(dir, "ca.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.srv.Certificate().Raw})))
	file := write(p.t, filepath.Join(dir, "rights.yaml"), `
tokens: [{name: ci, sha256: `+hexOf(ciToken)+`, read: [static]}]
oidc:
  - issuer: `+p.srv.URL+`
    audience: terrier
    caFile: ca.pem
    rights: `+rights+"\n")
	var log logged
	b, err := Open(Options{File: file, Now: p.at.Now, Log: log.log()})
	if err != nil {
		p.t.Fatal(err)
	}
	return b
}

// RG-19: tokens of an issuer have the rights of their claims.
func TestOIDC(t *testing.T) {
	p := newIDP(t, newClock())
	b := p.book(`
      - {claims: {repository: "net/*", ref: [refs/heads/main, refs/tags/*]}, write: [net]}
      - {claims: {groups: ops}, read: ["*"], tenant: ops}`)
	stranger := newIDP(t, p.at)
	for name, tt := range map[string]struct {
		token string
		want  string
	}{
		"claims that match":          {p.token(map[string]any{"repository": "net/vpc", "ref": "refs/tags/v1"}), "read net, write net"},
		"one of several values":      {p.token(map[string]any{"groups": []string{"dev", "ops"}}), "read net, read other"},
		"the rights of both":         {p.token(map[string]any{"repository": "net/a", "ref": "refs/heads/main", "groups": "ops"}), "read net, write net, read other"},
		"a claim that is missing":    {p.token(map[string]any{"repository": "net/vpc"}), "has no entry for its claims"},
		"another audience":           {p.token(map[string]any{"groups": "ops", "aud": "other"}), "expected audience"},
		"a token that expired":       {p.token(map[string]any{"groups": "ops", "exp": p.at.Now().Add(-time.Second).Unix()}), "expired"},
		"no name":                    {p.token(map[string]any{"groups": "ops", "sub": ""}), "has no claim sub"},
		"an issuer without an entry": {stranger.token(map[string]any{"groups": "ops"}), "does not know this token"},
		"another signer":             {stranger.token(map[string]any{"groups": "ops", "iss": p.srv.URL}), "failed to verify"},
		"a static token":             {ciToken, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p.at.add(issuerPause) // tokens with unknown keys have the issuer asked at most so often
			got, err := may(t, b, tt.token, "net", "other")
			if err != nil {
				if !unknown(err) || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), tt.token) {
					t.Errorf("the caller is refused with: %v, want a 401 with %q, without the token", err, tt.want)
				}
				return
			}
			if got != tt.want {
				t.Errorf("the caller may %q, want %q", got, tt.want)
			}
		})
	}
}

// An issuer that does not answer keeps neither other callers out nor those whose keys are
// known, and is not asked by each request.
func TestIssuerAway(t *testing.T) {
	p := newIDP(t, newClock())
	b := p.book(`[{claims: {sub: "*"}, read: [net]}]`)
	reads := func(what, token string) {
		t.Helper()
		if got, err := may(t, b, token, "net", "static"); err != nil || got == "" {
			t.Errorf("%s: the caller may %q, %v, want to read", what, got, err)
		}
	}
	waits := func(what, token string) {
		t.Helper()
		if _, err := may(t, b, token, "net"); fault.Of(err) != fault.Later || strings.Contains(err.Error(), token) {
			t.Errorf("%s: %v, want Later, without the token", what, err)
		}
	}
	p.down.Store(true)
	waits("away from the start", p.token(nil))
	reads("a static token", ciToken)
	p.down.Store(false)
	waits("asked a moment ago", p.token(nil))
	p.at.add(issuerPause)
	reads("back", p.token(nil))

	p.down.Store(true)
	reads("away, with a key that is known", p.token(nil))
	p.key, p.id = newKey(t), "2"
	p.at.add(issuerPause)
	waits("away, with a new key", p.token(nil))
	p.down.Store(false)
	p.at.add(issuerPause)
	reads("back, with a new key", p.token(nil))

	stranger := newIDP(t, p.at)
	stranger.id = "3"
	before := p.asked.Load()
	p.at.add(issuerPause)
	for range 20 {
		if _, err := may(t, b, stranger.token(map[string]any{"iss": p.srv.URL}), "net"); err == nil {
			t.Fatal("a token of another signer is accepted")
		}
	}
	if asked := p.asked.Load() - before; asked != 1 {
		t.Errorf("20 tokens with unknown keys had the issuer asked %d times, want once", asked)
	}
}
