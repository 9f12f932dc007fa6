package web

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

var _ = addDoors(map[string]string{
	"GET /.well-known/terraform.json": "open", "HEAD /.well-known/terraform.json": "open",
	"GET /v1/archives/*path": "open", "HEAD /v1/archives/*path": "open",
	"GET /v1/mirror/*path": "known", "HEAD /v1/mirror/*path": "known",
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
