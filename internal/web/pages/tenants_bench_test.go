package pages

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/query"
)

// BenchmarkTenants is what one page of ten thousand tenants costs, once they were
// listed.
func BenchmarkTenants(b *testing.B) {
	var c county
	for i := range 10_000 {
		c.list.Items = append(c.list.Items, query.Tenant{
			Namespace: fmt.Sprintf("region-%02d", i/500), Name: fmt.Sprintf("t-%05d-web", i), UID: fmt.Sprint("t-", i),
			Template: "web", Registry: "customers", State: query.TenantReady, Ready: 6, Desired: 6, Since: now,
		})
	}
	renderer, err := NewRenderer("v1")
	if err != nil {
		b.Fatal(err)
	}
	for name, params := range map[string]url.Values{"the first page": nil, "a search": {"q": {"t-0777"}}, "the last page": {"offset": {"9900"}}, "newest first": {"sort": {"since"}}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				v := &Visit{Context: b.Context(), Backend: &Backend{Board: board{town()}, Tenants: &c}, Scopes: scoped(access.Everything), Can: func(access.Request) bool { return true }, Path: "/tenants", Query: params, Now: now}
				p, err := Tenants(v)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := renderer.Render(v, p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
