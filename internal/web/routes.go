package web

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/identity"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/web/metacontroller"
)

// door is what a request needs to be served.
type door int

const (
	closed  door = iota // never served; the zero value, so that a forgotten row is closed
	open                // nothing
	known               // a user that the cluster knows
	guarded             // a user with the permission that access names
)

// route is one row: an address, its door, and its limits.
type route struct {
	method, path string
	door         door
	access       requirement
	within       func(Limits) time.Duration
	later        int   // the status that has the caller come again; zero means 503
	body         int64 // bytes
	parts        bool  // the handler moves the deadline of the body with each part of it
	whole        bool  // the handler holds a whole state in memory, so that few of them run at once
	handle       gin.HandlerFunc
	operation         // its entry in the document of the API
	tokens       bool // tokens for the registry open it, besides those of the cluster
	browser      bool // it is for browsers: errors are pages, and requests without a user lead to the sign-in page
}

// mounted are the rows of handlers in the options.
func mounted(o Options) []route {
	transfer := func(l Limits) time.Duration { return l.Transfer }
	var table []route
	if o.Artifacts != nil {
		h := gin.WrapH(http.StripPrefix(ArtifactsPrefix, o.Artifacts))
		for _, m := range []string{http.MethodGet, http.MethodHead} {
			table = append(table, route{method: m, path: ArtifactsPrefix + "/*path", door: open, within: transfer, handle: h})
		}
	}
	if o.Registry != nil {
		h := asUser(o.Registry)
		for _, m := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
			reads := m == http.MethodGet || m == http.MethodHead
			table = append(table, route{method: m, path: registryPrefix + "/*path", door: guarded, access: registryAccess, tokens: reads, within: transfer, body: o.Limits.Upload, handle: h})
		}
	}
	table = append(table, packageRows(o)...)
	table = append(table, identityRows(o)...)
	for path, h := range o.Admission {
		table = append(table, route{method: http.MethodPost, path: path, door: open, within: func(l Limits) time.Duration { return l.Request }, body: admissionBody, handle: gin.WrapH(h)})
	}
	if o.Hooks != nil {
		may := func(*gin.Context) (access.Request, error) {
			return access.Request{Verb: "create", Resource: access.ResourceHook}, nil
		}
		for _, path := range []string{metacontroller.SyncPath, metacontroller.FinalizePath, metacontroller.CustomizePath} {
			table = append(table, route{method: http.MethodPost, path: path, door: guarded, access: may, within: func(Limits) time.Duration { return metacontroller.Within },
				later: http.StatusTooManyRequests, body: metacontroller.MaxBody, handle: gin.WrapH(o.Hooks)}) // metacontroller takes any other status for an error
		}
	}
	return table
}

// admissionBody bounds a request of the API server: an object twice, before and
// after the change, each of the maximum size, and the user.
const admissionBody = 8 << 20

const registryPrefix = "/v2"

// right is the permission for an object, or for the objects of a namespace.
func right(verb string, r access.Resource) requirement {
	return func(c *gin.Context) (access.Request, error) {
		a := access.Request{Verb: verb, Resource: r, Kind: c.Param("kind"), Namespace: c.Param("namespace"), Name: c.Param("name")}
		for _, p := range []string{"namespace", "name"} {
			if v, has := c.Params.Get(p); has && !dnsName.MatchString(v) {
				return a, errName(p, v)
			}
		}
		return a, nil
	}
}

var dnsName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)

// errEveryUser is what a requirement returns for a request that needs no permission of a
// known user.
var errEveryUser = errors.New("every user that the cluster knows may do this")

// registryAccess is the permission for a repository. The first part of its name is
// the namespace whose roles decide; the catalogue needs it in all namespaces. Engines ask
// for /v2/ before they ask for a repository, and learn there that it is a registry.
func registryAccess(c *gin.Context) (access.Request, error) {
	a := access.Request{Verb: "get", Resource: access.ResourceRegistry}
	if m := c.Request.Method; m != http.MethodGet && m != http.MethodHead {
		a.Verb = "update"
	}
	path := strings.Trim(c.Param("path"), "/")
	if path == "" && a.Verb == "get" {
		return a, errEveryUser
	}
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

func keyOf(c *gin.Context) query.Key {
	return query.Key{Namespace: c.Param("namespace"), Name: c.Param("name"), Kind: c.Param("kind")}
}

// The addresses of the registry of modules and providers.
const (
	packagesPrefix = "/v1"
	discoveryPath  = "/.well-known/terraform.json"
)

// packageBytes bounds one upload to the registry of modules and providers.
const packageBytes = 4 << 30

// packageRows are the rows of the registry of modules and providers. The discovery document
// is for all. The address of an archive is signed, since clients fetch it without a token.
// The mirror is for every known user: its own rules decide. So are the repositories whose tags
// become versions: the handler leaves out those of namespaces in which the user may not read.
func packageRows(o Options) []route {
	if o.Packages == nil {
		return nil
	}
	h := asUser(o.Packages)
	var table []route
	add := func(path string, d door, may requirement, methods ...string) {
		for _, m := range methods {
			// The handler disconnects clients that stall, and slow ones have time.
			table = append(table, route{method: m, path: path, door: d, access: may, tokens: true, within: func(l Limits) time.Duration { return l.Stream }, body: packageBytes, parts: true, handle: h})
		}
	}
	read := []string{http.MethodGet, http.MethodHead}
	add(discoveryPath, open, nil, read...)
	add(packagesPrefix+"/archives/*path", open, nil, read...)
	add(packagesPrefix+"/mirror/*path", known, nil, read...)
	add(packagesPrefix+"/signing-keys", known, nil, read...) // the handler decides, for each namespace
	add(packagesPrefix+"/usage/*path", guarded, packageAccess, read...)
	add(packagesPrefix+"/repositories", known, nil, read...)
	add(packagesPrefix+"/webhooks/*path", open, nil, http.MethodPost) // signed with the secret of a repository
	for _, path := range []string{"/modules/*path", "/providers/*path"} {
		add(packagesPrefix+path, guarded, packageAccess, append(read, http.MethodPut, http.MethodPost, http.MethodDelete)...)
	}
	return table
}

// packageAccess is the permission for modules and providers. The first part of their
// address is the namespace whose roles decide.
func packageAccess(c *gin.Context) (access.Request, error) {
	a := access.Request{Verb: "get", Resource: access.ResourceRegistry}
	if m := c.Request.Method; m != http.MethodGet && m != http.MethodHead {
		a.Verb = "update"
	}
	a.Namespace, _, _ = strings.Cut(strings.TrimPrefix(c.Param("path"), "/"), "/")
	if !dnsName.MatchString(a.Namespace) {
		return a, errName("namespace", a.Namespace)
	}
	return a, nil
}

// identityRows are the rows of the identities of runs. Verifiers read the documents without a
// token, since they hold public keys alone. A supervisor shows its grant, which the handler
// opens: it is no user.
func identityRows(o Options) []route {
	if o.Identity == nil {
		return nil
	}
	h, within := gin.WrapH(o.Identity), func(l Limits) time.Duration { return l.Request }
	table := []route{{method: http.MethodPost, path: identity.PathTokens, door: open, within: within, handle: h}}
	for _, path := range identity.Documents() {
		for _, m := range []string{http.MethodGet, http.MethodHead} {
			table = append(table, route{method: m, path: path, door: open, within: within, handle: h})
		}
	}
	return table
}

type (
	userKey  struct{}
	tokenKey struct{}
)

// asUser passes the user of a request on to a handler.
func asUser(h http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		ctx := WithUser(c.Request.Context(), userOf(c))
		if c.GetBool(keyToken) {
			ctx = context.WithValue(ctx, tokenKey{}, true)
		}
		h.ServeHTTP(c.Writer, c.Request.WithContext(ctx))
	}
}

// ByToken reports whether a request to one of the handlers of Options came with a token for
// the registry, which opens modules and providers alone.
func ByToken(ctx context.Context) bool {
	by, _ := ctx.Value(tokenKey{}).(bool)
	return by
}

// WithUser is a context with the user of a request.
func WithUser(ctx context.Context, u access.User) context.Context {
	return context.WithValue(ctx, userKey{}, u)
}

// User is the user of a request to one of the handlers of Options, the zero User if its
// route is open.
func User(ctx context.Context) access.User {
	u, _ := ctx.Value(userKey{}).(access.User)
	return u
}
