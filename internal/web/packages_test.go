package web

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/access"
)

var _ = addDoors(map[string]string{
	"GET /.well-known/terraform.json": "open", "HEAD /.well-known/terraform.json": "open",
	"GET /v1/archives/*path": "open", "HEAD /v1/archives/*path": "open",
	"GET /v1/mirror/*path": "known", "HEAD /v1/mirror/*path": "known",
	"GET /v1/signing-keys": "known", "HEAD /v1/signing-keys": "known",
	"GET /v1/usage/*path": "get terraforms/registry apps", "HEAD /v1/usage/*path": "get terraforms/registry apps",
	"GET /v1/repositories": "known", "HEAD /v1/repositories": "known",
	"POST /v1/webhooks/*path":    "open",
	"GET /v1/modules/*path":      "get terraforms/registry apps",
	"HEAD /v1/modules/*path":     "get terraforms/registry apps",
	"PUT /v1/modules/*path":      "update terraforms/registry apps",
	"POST /v1/modules/*path":     "update terraforms/registry apps",
	"DELETE /v1/modules/*path":   "update terraforms/registry apps",
	"GET /v1/providers/*path":    "get terraforms/registry apps",
	"HEAD /v1/providers/*path":   "get terraforms/registry apps",
	"PUT /v1/providers/*path":    "update terraforms/registry apps",
	"POST /v1/providers/*path":   "update terraforms/registry apps",
	"DELETE /v1/providers/*path": "update terraforms/registry apps",
})

// The registry learns who asks, from a token alone, and the first part of an address is the
// namespace whose roles decide, however it is spelled.
func TestPackagesKnowTheirUser(t *testing.T) {
	auth := newRoles()
	o := options(auth)
	o.Packages = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%s", User(r.Context()).Name) })
	u, c := serve(t, o)
	name := auth.user.Name
	for path, want := range map[string]string{"/v1/modules/apps/net/aws/versions": name, "/v1/mirror/registry.example.com/a/b/index.json": name, "/.well-known/terraform.json": "", "/v1/archives/x": ""} {
		if resp, body := ask(t, c, http.MethodGet, u.String()+path, bearer); resp.StatusCode != http.StatusOK || body != want {
			t.Errorf("%s is %s for %q, want 200 for %q", path, resp.Status, body, want)
		}
	}
	for path, want := range map[string]int{"/v1/modules/%61pps/net/aws/versions": http.StatusOK, "/v1/modules/UPPER/net/aws/versions": http.StatusUnprocessableEntity, "/v1/modules/": http.StatusUnprocessableEntity} {
		if resp, body := ask(t, c, http.MethodGet, u.String()+path, bearer); resp.StatusCode != want {
			t.Errorf("%s is %s %s, want %d", path, resp.Status, body, want)
		}
	}
	if got := accessText(auth.last()); !strings.HasSuffix(got, " apps") {
		t.Errorf("the last right that was asked for is %q, want one of the namespace apps", got)
	}
}

// The log says what was asked of the registry and its mirror, and never by which signature.
func TestTheLogSaysWhatWasAskedFor(t *testing.T) {
	log := &said{}
	o := options(newRoles())
	o.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/v1/mirror/registry.example.com/a/b/index.json", "/v1/modules/apps/net/aws/versions", "/v1/archives/mirror/a.zip", "/v2/apps/x/tags/list"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://127.0.0.1"+path+"?signature=canary-4711", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		h.ServeHTTP(httptest.NewRecorder(), r)
		if text := log.String(); !strings.Contains(text, "path="+path+" status=200") || strings.Contains(text, "canary-4711") {
			t.Errorf("the log lacks %s, or has the signature:\n%s", path, text)
		}
	}
}

// Engines ask whether /v2/ is a registry before they ask for a repository. The answer says
// nothing else, so every known user gets it.
func TestEveryKnownUserMayAskForTheRegistry(t *testing.T) {
	auth := newRoles()
	auth.deny(access.ResourceRegistry)
	u, c := serve(t, options(auth))
	for _, tt := range []struct {
		method, path string
		want         int
	}{
		{http.MethodGet, "/v2/", http.StatusOK}, {http.MethodHead, "/v2/", http.StatusOK}, {http.MethodPost, "/v2/", http.StatusForbidden},
		{http.MethodGet, "/v2/_catalog", http.StatusForbidden}, {http.MethodGet, "/v2/apps/x/tags/list", http.StatusForbidden},
	} {
		if resp, body := ask(t, c, tt.method, u.String()+tt.path, bearer); resp.StatusCode != tt.want {
			t.Errorf("%s %s is %s %s, want %d", tt.method, tt.path, resp.Status, body, tt.want)
		}
	}
	if resp, _ := ask(t, c, http.MethodGet, u.String()+"/v2/", func(*http.Request) {}); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a request without a user is %s, want 401", resp.Status)
	}
}
