package web

import (
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/access"
)

// door says how far somebody must be known to come in.
type door int

const (
	closed  door = iota // nobody; the zero value, so that a forgotten row opens nothing
	open                // anybody
	known               // whoever the cluster knows
	guarded             // whoever has the right that access names
)

// route is one row: what is served, to whom, and within what limits.
type route struct {
	method, path string
	door         door
	access       requirement
	within       func(Limits) time.Duration
	body         int64 // bytes
	handle       gin.HandlerFunc
	operation         // what the document of the API says of it
	browser      bool // it is for browsers: failures are pages, and strangers are sent to sign in
}

// routes is the table of everything that is served.
func (s *server) routes() []route {
	request := func(l Limits) time.Duration { return l.Request }
	table := []route{
		{method: http.MethodGet, path: "/healthz", door: open, within: request, handle: s.healthz},
		{method: http.MethodGet, path: "/readyz", door: open, within: request, handle: s.readyz},
	}
	for _, more := range [][]route{s.apiRoutes(), s.pageRoutes(), s.mounted()} {
		table = append(table, more...)
	}
	return table
}

// mounted are the rows of handlers that others bring.
func (s *server) mounted() []route {
	transfer := func(l Limits) time.Duration { return l.Transfer }
	var table []route
	if s.Artifacts != nil {
		h := gin.WrapH(http.StripPrefix(ArtifactsPrefix, s.Artifacts))
		for _, m := range []string{http.MethodGet, http.MethodHead} {
			table = append(table, route{method: m, path: ArtifactsPrefix + "/*path", door: open, within: transfer, handle: h})
		}
	}
	if s.Registry != nil {
		h := gin.WrapH(s.Registry)
		for _, m := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
			table = append(table, route{method: m, path: registryPrefix + "/*path", door: guarded, access: registryAccess, within: transfer, body: s.Limits.Upload, handle: h})
		}
	}
	for path, h := range s.Admission {
		table = append(table, route{method: http.MethodPost, path: path, door: open, within: func(l Limits) time.Duration { return l.Request }, body: admissionBody, handle: gin.WrapH(h)})
	}
	return table
}

// admissionBody bounds what an API server sends: an object twice, as it was and
// as it is to be, each as large as one may be, and who asks.
const admissionBody = 8 << 20

const registryPrefix = "/v2"

// right is the right to a stack, or to the stacks of a namespace.
func right(verb string, r access.Resource) requirement {
	return func(c *gin.Context) (access.Request, error) {
		a := access.Request{Verb: verb, Resource: r, Namespace: c.Param("namespace"), Name: c.Param("name")}
		for _, p := range []string{"namespace", "name"} {
			if v, has := c.Params.Get(p); has && !dnsName.MatchString(v) {
				return a, errName(p, v)
			}
		}
		return a, nil
	}
}

var dnsName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)

// registryAccess is the right to a repository. The first part of its name is
// the namespace whose roles decide; the catalogue is for those who may see all.
func registryAccess(c *gin.Context) (access.Request, error) {
	a := access.Request{Verb: "get", Resource: access.ResourceRegistry}
	if m := c.Request.Method; m != http.MethodGet && m != http.MethodHead {
		a.Verb = "update"
	}
	path := strings.Trim(c.Param("path"), "/")
	if path == "" || path == "_catalog" {
		return a, nil
	}
	namespace, _, _ := strings.Cut(path, "/")
	if !dnsName.MatchString(namespace) {
		return a, errName("namespace", namespace)
	}
	a.Namespace = namespace
	return a, nil
}
