package web

import (
	"net/http"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/query/usedby"
)

// heard remembers the question.
type heard struct {
	q     usedby.Question
	scope access.Scope
}

func (h *heard) Ask(scope access.Scope, q usedby.Question) (usedby.Answer, error) {
	h.scope, h.q = scope, q
	return usedby.Answer{Items: []usedby.Use{{Namespace: "net", Name: "vpc", Version: "1.2.0"}}, Total: 1, Stacks: 1}, nil
}

// A question reaches the index with the scope of its user.
func TestWhoUsesIsAskedWithTheScopeOfTheUser(t *testing.T) {
	h := &heard{}
	o := options(newRoles())
	o.UsedBy, o.Scopes = h, scopeFunc(func() access.Scope { return access.Scope{In: map[string]bool{"net": true}} })
	u, c := serve(t, o)
	resp, body := ask(t, c, http.MethodGet, u.String()+"/api/v1/modules/uses?module=net/vpc/aws&versions=%3C+2.0&namespace=net&offset=2&limit=3", bearer)
	want := usedby.Question{Module: "net/vpc/aws", Versions: "< 2.0", Namespace: "net", Offset: 2, Limit: 3}
	if resp.StatusCode != http.StatusOK || h.q != want || !h.scope.Has("net") || h.scope.Has("apps") || !strings.Contains(body, `"version":"1.2.0"`) {
		t.Errorf("%s %s: asked %+v, want %+v", resp.Status, body, h.q, want)
	}
	if resp, body = ask(t, c, http.MethodGet, u.String()+"/api/v1/providers/uses?provider=hashicorp/aws", bearer); resp.StatusCode != http.StatusOK || h.q != (usedby.Question{Provider: "hashicorp/aws"}) {
		t.Errorf("%s %s: asked %+v", resp.Status, body, h.q)
	}
	for _, address := range []string{"/modules/uses", "/providers/uses", "/modules/uses?provider=a/b", "/modules/uses?module=a/b/c&limit=x"} {
		if resp, body := ask(t, c, http.MethodGet, u.String()+"/api/v1"+address, bearer); resp.StatusCode != http.StatusUnprocessableEntity {
			t.Errorf("%s: %s %s, want 422", address, resp.Status, body)
		}
	}
	o.UsedBy = nil
	u, c = serve(t, o)
	if resp, body := ask(t, c, http.MethodGet, u.String()+"/api/v1/modules/uses?module=a/b/c", bearer); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("without an index: %s %s, want 503", resp.Status, body)
	}
}
