package web

import (
	"net/http"
	"testing"

	"github.com/terrier-iac/terrier/internal/identity"
)

var _ = addDoors(map[string]string{
	"POST /v1/identity/tokens":              "open",
	"GET /.well-known/openid-configuration": "open", "HEAD /.well-known/openid-configuration": "open",
	"GET /.well-known/jwks.json": "open", "HEAD /.well-known/jwks.json": "open",
})

// Verifiers need no token for the keys, and may keep them.
func TestKeysOfIdentitiesArePublic(t *testing.T) {
	o := options(newRoles())
	o.Identity = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=3600")
		_, _ = w.Write([]byte(r.Method + " " + r.URL.Path))
	})
	u, c := serve(t, o)
	for _, path := range identity.Documents() {
		resp, body := ask(t, c, http.MethodGet, u.String()+path, nil)
		if resp.StatusCode != http.StatusOK || body != "GET "+path || resp.Header.Get("Cache-Control") != "public, max-age=3600" {
			t.Errorf("%s is %s %q, Cache-Control %q", path, resp.Status, body, resp.Header.Get("Cache-Control"))
		}
	}
	if resp, body := ask(t, c, http.MethodPost, u.String()+identity.PathTokens, nil); resp.StatusCode != http.StatusOK || body != "POST "+identity.PathTokens {
		t.Errorf("a supervisor with its grant gets %s %q", resp.Status, body)
	}
	o.Identity = nil
	u, c = serve(t, o)
	for _, path := range identity.Documents() {
		if resp, _ := ask(t, c, http.MethodGet, u.String()+path, nil); resp.StatusCode == http.StatusOK {
			t.Errorf("without identities %s is %s", path, resp.Status)
		}
	}
}
