// Package web is the HTTP server of Terrier: the API that the command line reads
// logs and plans through, the pages, and the addresses at which artifacts and the registry
// are mounted. Kubernetes alone decides permissions: each
// request has the token of its user, and each route names in one
// row of the table the permission that it needs.
//
// It refuses unknown host names, requests of other origins, and
// every route without a row. It ignores headers about the user,
// changes nothing on a GET, and forbids caching.
//
// Start reading at Options, then server.go and routes.go.
package web

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/access/regtoken"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/query/catalog"
	"github.com/terrier-iac/terrier/internal/query/situation"
	"github.com/terrier-iac/terrier/internal/query/usedby"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/web/pages"
)

// Stacks reads stacks and their states.
type Stacks interface {
	query.StackReader
	States
}

// Board is all stacks as they are now.
type Board interface {
	pages.Board
	Changes(scope access.Scope, since string) (query.BoardNews, error)
	Namespaces() []string
	Len() int
}

// UsedBy says which stacks use a module or a provider.
type UsedBy interface {
	Ask(scope access.Scope, q usedby.Question) (usedby.Answer, error)
}

// Auth authenticates and authorizes users.
type Auth interface {
	Authenticate(context.Context, secret.Text) (access.User, error)
	Authorize(context.Context, access.User, access.Request) error
}

// Tokens are the tokens for the registry of modules and providers.
type Tokens interface {
	pages.Tokens
	Authenticate(context.Context, secret.Text) (access.User, error)
	Create(context.Context, regtoken.Wanted) (regtoken.Token, secret.Text, error)
}

// Options are the parts and settings of the server.
type Options struct {
	Kinds   query.Kinds        // of stacks
	Stacks  Stacks             // reads without permission checks: the routes make them
	Former  query.StackReader  // Stacks that also finds the last runs of stacks of former namespaces, for users with the permission in all namespaces; nil without it
	Tenants query.TenantReader // likewise
	Board   Board              // likewise
	UsedBy  UsedBy             // likewise: which stacks use modules and providers; nil if this server does not watch the stacks
	Details query.StackDetails // likewise
	Sources query.SourceReader // likewise
	Figures pages.Figures      // of runs over time; nil without them
	Graphs  pages.Graphs       // likewise, of all stacks
	Estate  query.TenantEstate // likewise
	Queue   query.Queue        // of all namespaces; nil if this server starts no runs
	Notices query.Notices      // sent notifications; nil if none are sent

	Retained command.RetainedRecords // retained resources of deleted stacks; nil without records

	Platform pages.Platform  // the server and its settings
	Overview situation.Asked // what of the status of the platform is not in the other fields

	People  func(access.User) (command.Person, error)
	Scopes  func(context.Context, access.User) (access.Scope, error) // the namespaces whose stacks a user may list
	SoFar   func(context.Context, access.User) (access.Scope, error) // the part of these that is known after a moment, for pages; Scopes if nil
	Auth    Auth
	Recent  Auth // Auth with a cache of some seconds, for the many checks of pages; Auth if nil
	Version string
	Ready   func(context.Context) error // nil is always ready
	Hosts   []string                    // host names of the server, without ports
	Log     *slog.Logger
	Now     func() time.Time

	AuditLog query.AuditLog // the audit log, for reading; nil without one
	Audit    Audit          // the audit log, for writing; nil without one

	Artifacts http.Handler // at ArtifactsPrefix; its paths cannot be guessed, and need no permission
	Registry  http.Handler // at /v2/
	Packages  http.Handler // at /v1/ and the address of discovery: modules and providers; nil without a registry of them

	Identity http.Handler // the keys of the identities of runs, and tokens for supervisors; nil if runs have none

	Catalog   *catalog.Catalog // what the registry of modules and providers has; nil without it
	Authority []byte           // the certificate authority of this server in PEM, if it is one of its own
	Uses      pages.Uses       // which stacks use its modules and providers; nil if that is not known

	Tokens    Tokens        // for the registry of modules and providers; nil without that registry
	LoginLife time.Duration // of the tokens of "tofu login"

	Admission map[string]http.Handler // by path; they take POSTs of an API server, which has no token, and only at paths that cannot be guessed does an answer contain more than the request

	Hooks http.Handler // of metacontroller; nil if they are not answered

	Replicas Replicas // that serve together with this one; nil if it is the only one

	Sessions SessionOptions
	Issuer   *Issuer // to sign in with; nil if there is none

	Limits    Limits
	Following func(streams int) // receives the number of open streams whenever it changes; may be nil
}

// filled has the defaults of what is not set.
func (o Options) filled() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Recent == nil {
		o.Recent = o.Auth
	}
	o.Limits = o.Limits.filled()
	return o
}

// overview is what is asked about the status of the platform.
func (o Options) overview() situation.Asked {
	a := o.Overview
	a.Board, a.Queue, a.Version = o.Board, o.Queue, o.Version
	for _, c := range o.Platform.Checks {
		a.Checks = append(a.Checks, situation.Check{Name: c.Name, Ask: c.Ask})
	}
	return a
}

// ArtifactsPrefix is the prefix of artifacts; it is stripped.
const ArtifactsPrefix = "/artifacts"

// Limits bound what one request, and all of them, may take. Zero means the
// default.
type Limits struct {
	Request     time.Duration // an API request: 30s
	Transfer    time.Duration // an artifact or a request to the registry: 15m
	Stream      time.Duration // a stream: 6h; the reader may connect again
	Recheck     time.Duration // how often the permission for a stream is checked again: 30s
	Stall       time.Duration // how long a reader may not read: 30s
	Unread      time.Duration // how long a body may take that no handler reads: 30s
	Beat        time.Duration // interval of heartbeats of an event stream: 15s
	Streams     int           // at once: 256
	UserStreams int           // of one user at once: 16
	States      int           // requests at once that hold a whole state in memory: 16
	UserStates  int           // of one user at once: 4
	StateBytes  int64         // of memory that these requests take together; one user has half of it: 2 GiB
	Seat        time.Duration // how long such a request waits for its turn: 10s
	Upload      int64         // bytes of one request to the registry: 1 GiB
	File        int64         // bytes of a form with a file: 64 MiB
}

func (l Limits) filled() Limits {
	return Limits{
		Request:     cmp.Or(l.Request, 30*time.Second),
		Transfer:    cmp.Or(l.Transfer, 15*time.Minute),
		Stream:      cmp.Or(l.Stream, 6*time.Hour),
		Recheck:     cmp.Or(l.Recheck, 30*time.Second),
		Stall:       cmp.Or(l.Stall, 30*time.Second),
		Unread:      cmp.Or(l.Unread, 30*time.Second),
		Beat:        cmp.Or(l.Beat, 15*time.Second),
		Streams:     cmp.Or(l.Streams, 256),
		UserStreams: cmp.Or(l.UserStreams, 16),
		States:      cmp.Or(l.States, 16),
		UserStates:  cmp.Or(l.UserStates, 4),
		StateBytes:  cmp.Or(l.StateBytes, 2<<30),
		Seat:        cmp.Or(l.Seat, 10*time.Second),
		Upload:      cmp.Or(l.Upload, 1<<30),
		File:        cmp.Or(l.File, 64<<20),
	}
}

// New returns the handler of all routes.
func New(o Options) (http.Handler, error) {
	engine, err := build(o)
	if err != nil {
		return nil, err
	}
	return engine, nil
}

func build(o Options) (*gin.Engine, error) {
	if o.Stacks == nil || o.Auth == nil || len(o.Hosts) == 0 {
		return nil, errors.New("a server needs Stacks, Auth and Hosts")
	}
	s, err := newServer(o.filled())
	if err != nil {
		return nil, err
	}
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.HandleMethodNotAllowed = true
	engine.RedirectTrailingSlash = false
	engine.ForwardedByClientIP = false
	engine.UseRawPath = true
	if err := engine.SetTrustedProxies(nil); err != nil {
		return nil, err
	}
	engine.Use(s.replies.recovered, s.guard.logged, s.guard.arriving, hardened, s.guard.called, s.guard.sameOrigin)
	for _, r := range s.routes() {
		if o.Replicas != nil && answeredBy(r.path) == unassigned {
			return nil, fmt.Errorf("no rule says which replica answers %s", r.path)
		}
		engine.Handle(r.method, r.path, s.guard.bounded(r), s.guard.named(r), s.guard.elsewhere(r), s.guard.allowed(r), s.guard.seated(r), r.handle)
	}
	engine.NoRoute(s.guard.callers.unknownAddress, func(c *gin.Context) { s.replies.refuse(c, errNoRoute) })
	engine.NoMethod(s.guard.callers.unknownAddress, func(c *gin.Context) { s.replies.refuse(c, errNoMethod) })
	return engine, nil
}

// Server returns an HTTP server for h with limits before a
// handler is called: slow headers, large headers, idle connections.
func Server(h http.Handler, config *tls.Config, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, TLSConfig: config,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}
