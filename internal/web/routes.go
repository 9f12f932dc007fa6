package web

import (
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/service"
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
	access       func(*gin.Context) (service.Access, error)
	within       func(Limits) time.Duration
	body         int64 // bytes
	handle       gin.HandlerFunc
	browser      bool // it is for browsers: failures are pages, and strangers are sent to sign in
}

const api = "/api/v1"

// routes is the table of everything that is served.
func (s *server) routes() []route {
	const stacks = api + "/namespaces/:namespace/stacks"
	const one = stacks + "/:name"
	get := func(path string, d door, access func(*gin.Context) (service.Access, error), handle gin.HandlerFunc) route {
		return route{method: http.MethodGet, path: path, door: d, access: access, handle: handle,
			within: func(l Limits) time.Duration { return l.Request }}
	}
	table := []route{
		get("/healthz", open, nil, s.healthz),
		get("/readyz", open, nil, s.readyz),
		get(api+"/version", known, nil, s.version),
		get(api+"/stacks", guarded, right("list", service.ResourceStacks), s.list),
		get(stacks, guarded, right("list", service.ResourceStacks), s.list),
		get(one, guarded, right("get", service.ResourceStacks), s.describe),
		get(one+"/explain", guarded, right("get", service.ResourceStacks), s.explain),
		get(one+"/runs", guarded, right("get", service.ResourceLog), s.runs),
		get(one+"/runs/:run", guarded, right("get", service.ResourceLog), s.run),
		get(one+"/runs/:run/report", guarded, right("get", service.ResourceLog), s.run),
		get(one+"/runs/:run/log", guarded, right("get", service.ResourceLog), s.log),
		get(one+"/plan", guarded, right("get", service.ResourcePlan), s.plan),
	}
	table = append(table, s.stateRoutes(one, get)...)
	table = append(table, s.pageRoutes()...)
	for i, r := range table {
		if strings.HasSuffix(r.path, "/log") {
			table[i].within = func(l Limits) time.Duration { return l.Stream }
		}
	}
	return append(table, s.mounted()...)
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
	return table
}

const registryPrefix = "/v2"

// right is the right to a stack, or to the stacks of a namespace.
func right(verb string, r service.Resource) func(*gin.Context) (service.Access, error) {
	return func(c *gin.Context) (service.Access, error) {
		a := service.Access{Verb: verb, Resource: r, Namespace: c.Param("namespace"), Name: c.Param("name")}
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
func registryAccess(c *gin.Context) (service.Access, error) {
	a := service.Access{Verb: "get", Resource: service.ResourceRegistry}
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
