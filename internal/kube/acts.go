package kube

import (
	"net/http"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/terrier-iac/terrier/internal/failpoint"
)

// CountWrites makes every client of the configuration report its writes to the
// API server to package failpoint, if a test armed it.
func CountWrites(c *rest.Config) {
	if failpoint.Armed() {
		c.Wrap(func(next http.RoundTripper) http.RoundTripper { return counted{next} })
	}
}

type counted struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper. A write has ended when the server has
// answered, whatever the answer.
func (c counted) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		defer failpoint.Act("api."+strings.ToLower(r.Method), resourceOf(r.URL.Path))()
	}
	return c.next.RoundTrip(r)
}

// resourceOf is the resource that a path of the API names, with its
// subresource: terraforms/status.
func resourceOf(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	}
	if len(parts) > 2 && parts[0] == "namespaces" && parts[2] != "status" && parts[2] != "finalize" {
		parts = parts[2:]
	}
	if len(parts) > 2 {
		return parts[0] + "/" + parts[2]
	}
	return parts[0]
}
