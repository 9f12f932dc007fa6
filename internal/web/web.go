// Package web is Terrier's HTTP server: the API that the command line reads
// logs and plans through, and the places at which artifacts and the registry
// are mounted. Kubernetes is the only authority on who may do what: each
// request carries the token of whoever makes it, and each route says in one
// row of the table what right it takes.
//
// It refuses hosts that it was not told of, requests of other origins, and
// every route that has no row. It believes no header about who somebody is,
// changes nothing on a GET, and lets nobody keep an answer.
//
// Start reading at Options, then routes.go.
package web

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/web/pages"
)

// Stacks is what is asked about stacks.
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

// Auth says who somebody is and what they may do.
type Auth interface {
	Authenticate(context.Context, secret.Text) (access.User, error)
	Authorize(context.Context, access.User, access.Request) error
}

// Options are what the server is made of.
type Options struct {
	Stacks  Stacks             // answers by itself: whoever asks has been checked before
	Tenants query.TenantReader // likewise
	Board   Board              // likewise
	Details query.StackDetails // likewise
	Sources query.SourceReader // likewise
	Estate  query.TenantEstate // likewise
	Queue   query.Queue        // who waits for a run, in all namespaces; nil if nobody here knows
	Notices query.Notices      // what was sent to people; nil if nothing is

	Retained command.RetainedStacks // what stacks left that are gone; nil if nobody here knows

	Platform pages.Platform // what runs here, for those who ask about it

	People  func(access.User) (command.Person, error)
	Scopes  func(context.Context, access.User) (access.Scope, error) // the namespaces whose stacks somebody may list
	SoFar   func(context.Context, access.User) (access.Scope, error) // what is known of these after a moment, for pages; Scopes if nil
	Auth    Auth
	Recent  Auth // Auth whose answers may be some seconds old, for what pages ask often; Auth if nil
	Version string
	Ready   func(context.Context) error // nil is always ready
	Hosts   []string                    // by which it may be called, without ports
	Log     *slog.Logger
	Now     func() time.Time

	Journal query.Journal // who did what, to read; nil if none is kept
	Audit   Audit         // and to write; nil if none is kept

	Artifacts http.Handler // at ArtifactsPrefix; its paths cannot be guessed, and who knows one may have it
	Registry  http.Handler // at /v2/

	Admission map[string]http.Handler // by path; they take what an API server POSTs, which shows no token, and tell nothing that it did not send but at paths that cannot be guessed

	Sessions SessionOptions
	Issuer   *Issuer // to sign in with; nil if there is none

	Limits    Limits
	Following func(streams int) // is told how many streams are open whenever that changes; may be nil
}

// ArtifactsPrefix is where artifacts are mounted; the prefix is taken off.
const ArtifactsPrefix = "/artifacts"

// Limits bound what one request, and all of them, may take. Zero means the
// default.
type Limits struct {
	Request     time.Duration // an API request: 30s
	Transfer    time.Duration // an artifact or a request to the registry: 15m
	Stream      time.Duration // a log that is followed: 6h; whoever wants more asks again
	Recheck     time.Duration // how often the right to a stream is asked for again: 30s
	Stall       time.Duration // how long a reader may take nothing: 30s
	Beat        time.Duration // how often a stream of events says that it is alive: 15s
	Streams     int           // at once: 256
	UserStreams int           // of one user at once: 16
	Upload      int64         // bytes of one request to the registry: 1 GiB
	File        int64         // bytes of a form that brings a file: 64 MiB
}

func (l Limits) filled() Limits {
	return Limits{
		Request:     cmp.Or(l.Request, 30*time.Second),
		Transfer:    cmp.Or(l.Transfer, 15*time.Minute),
		Stream:      cmp.Or(l.Stream, 6*time.Hour),
		Recheck:     cmp.Or(l.Recheck, 30*time.Second),
		Stall:       cmp.Or(l.Stall, 30*time.Second),
		Beat:        cmp.Or(l.Beat, 15*time.Second),
		Streams:     cmp.Or(l.Streams, 256),
		UserStreams: cmp.Or(l.UserStreams, 16),
		Upload:      cmp.Or(l.Upload, 1<<30),
		File:        cmp.Or(l.File, 64<<20),
	}
}

// server is what the handlers share.
type server struct {
	Options
	entrance
	streams  streams
	tails    tails
	refusals refusals
	renderer *pages.Renderer
	house    pages.House
}

// New returns the handler of everything.
func New(o Options) (http.Handler, error) {
	engine, err := build(o)
	if err != nil {
		return nil, err
	}
	return engine, nil
}

func build(o Options) (*gin.Engine, error) {
	if o.Stacks == nil || o.Auth == nil || len(o.Hosts) == 0 {
		return nil, errors.New("a server needs stacks, somebody who knows people, and a name to be called by")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Limits = o.Limits.filled()
	if o.Recent == nil {
		o.Recent = o.Auth
	}
	s := &server{Options: o, streams: streams{total: o.Limits.Streams, each: o.Limits.UserStreams, tell: o.Following}}
	var err error
	if s.entrance, err = newEntrance(o); err != nil {
		return nil, err
	}
	renderer, err := pages.NewRenderer(o.Version)
	if err != nil {
		return nil, err
	}
	s.renderer = renderer
	s.tails.follow = func(ctx context.Context, key query.Key, run string) (io.ReadCloser, error) {
		return s.Stacks.Log(ctx, key, run, true)
	}
	s.house = pages.House{Stacks: o.Stacks, Tenants: o.Tenants, Board: o.Board, Details: o.Details, Sources: o.Sources, Journal: o.Journal, Estate: o.Estate, Queue: o.Queue, Notices: o.Notices, Retained: o.Retained, Platform: o.Platform, Checked: &pages.JournalCheck{}, API: document, Version: o.Version}
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.HandleMethodNotAllowed = true
	engine.RedirectTrailingSlash = false
	engine.ForwardedByClientIP = false
	engine.UseRawPath = true
	if err := engine.SetTrustedProxies(nil); err != nil {
		return nil, err
	}
	engine.Use(s.recovered, s.logged, s.hardened, s.called, s.sameOrigin)
	for _, r := range s.routes() {
		engine.Handle(r.method, r.path, s.bounded(r), s.allowed(r), r.handle)
	}
	engine.NoRoute(s.astray, func(c *gin.Context) { s.refuse(c, errNoRoute) })
	engine.NoMethod(s.astray, func(c *gin.Context) { s.refuse(c, errNoMethod) })
	return engine, nil
}

// Server returns an HTTP server for h with limits on what comes before a
// handler is asked: slow headers, large headers, idle connections.
func Server(h http.Handler, config *tls.Config, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, TLSConfig: config,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}
