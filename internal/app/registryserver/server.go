package registryserver

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/registry/origin"
	"github.com/terrier-iac/terrier/internal/registry/rights"
)

// Options are what Run needs besides its Config.
type Options struct {
	Config  Config
	Program string
	Version string
	Stdout  io.Writer // for Ready
	Stderr  io.Writer // for progress and logs
	Now     func() time.Time
	Environ func(string) string
}

// Ready is printed once requests are answered.
type Ready struct {
	Ready   bool   `json:"ready"`
	URL     string `json:"url"`
	CA      string `json:"ca,omitempty"`    // the file with the authority of the certificate
	Token   string `json:"token,omitempty"` // the file with the first token
	Rights  string `json:"rights"`
	Storage string `json:"storage"`
	Metrics string `json:"metrics,omitempty"`
}

// server is a registry that runs.
type server struct {
	Options
	log      *slog.Logger
	meters   *meters
	book     *rights.Book
	store    blob.Versions
	draining atomic.Bool
}

// Run serves until ctx ends, and then until the requests that go on have ended, or --drain
// is over.
func Run(ctx context.Context, o Options) (err error) {
	if err := o.Config.check(o.Environ); err != nil {
		return err
	}
	s := &server{Options: o}
	if s.Config.DataDir, err = filepath.Abs(o.Config.DataDir); err != nil {
		return err
	}
	if err := os.MkdirAll(s.Config.dir("scratch"), 0o700); err != nil {
		return err
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.Config.LogLevel)); err != nil {
		return err
	}
	s.log = slog.New(slog.NewTextHandler(o.Stderr, &slog.HandlerOptions{Level: level}))
	s.meters = newMeters(o.Version)
	ready, err := s.openRights()
	if err != nil {
		return err
	}
	s.meters.rights(s.book)
	place := Storage{Bucket: s.Config.Storage, Scratch: s.Config.dir("scratch"), Allow: s.Config.AllowHosts, Environ: o.Environ, Flag: "--storage"}
	if s.Config.inFiles() {
		if place.Dir, err = filepath.Abs(s.Config.storageDir()); err != nil {
			return err
		}
		place.Bucket = ""
	}
	store, closer, err := place.Open(ctx)
	if err != nil {
		return fmt.Errorf("--storage: %w", err)
	}
	defer func() { err = errors.Join(err, closer.Close()) }()
	s.store = store
	key, err := s.signingKey(ctx, store)
	if err != nil {
		return err
	}
	services, err := s.Config.services()
	if err != nil {
		return err
	}
	repositories, out, err := s.repositories()
	if err != nil {
		return err
	}
	if out != nil {
		defer out.Close()
	}
	entries, err := openAudit(ctx, s.Config.auditDir(), o.Version, s.Now)
	if entries != nil {
		defer func() { err = errors.Join(err, entries.Close()) }()
	}
	if err != nil {
		return err
	}
	audited, err := Counting(entries, s.meters.Registry)
	if err != nil {
		return err
	}
	r, err := Wire(Wiring{
		Services: services, Repositories: repositories, Out: out, Alone: true,
		Store: store, Rights: s.book, Signer: rights.NewSigner(key, s.Now), Settings: s.Config.Settings, Scratch: s.Config.dir("scratch"),
		Allow: s.Config.AllowHosts, Registerer: s.meters.Registry, Quota: s.Config.quota, Audit: audited, Stall: s.Config.Stall, Log: s.log, Now: s.Now,
	})
	if err != nil {
		return err
	}
	defer r.Close()
	swept, followed, watched := make(chan error, 1), make(chan error, 1), make(chan struct{})
	running, stop := context.WithCancel(ctx)
	go func() { swept <- r.Run(running) }()
	go func() { followed <- r.Follow(running) }()
	go func() {
		defer close(watched)
		s.book.Watch(running)
	}()
	defer func() {
		stop()
		<-watched
		err = errors.Join(err, <-swept, <-followed)
	}()
	ready.Storage = shown(place)
	return s.serve(ctx, r, ready)
}

// repositories are those of the file of --repositories, and how to reach their servers.
func (s *server) repositories() (origin.Source, *outbound.Client, error) {
	if s.Config.Repositories == "" {
		return nil, nil, nil
	}
	allow, err := outbound.ParseAllow(s.Config.AllowHosts...)
	if err != nil {
		return nil, nil, err
	}
	path, err := filepath.Abs(s.Config.Repositories)
	if err != nil {
		return nil, nil, err
	}
	f, err := origin.OpenFile(origin.FileOptions{Path: path, KnownHosts: s.Config.KnownHosts, Now: s.Now, Log: s.log})
	if err != nil {
		return nil, nil, usage("--repositories: %w", err)
	}
	return f, outbound.New(outbound.Policy{Allow: allow, Proxy: true}), nil
}

// shown is the place of a storage without what may be secret in its URL.
func shown(s Storage) string {
	if s.Bucket == "" {
		return s.Dir
	}
	at, _, _ := strings.Cut(s.Bucket, "?")
	return at
}

// openRights opens the file of rights. Without --rights the first start makes one.
func (s *server) openRights() (Ready, error) {
	r := Ready{Ready: true, Rights: s.Config.Rights}
	if r.Rights == "" {
		r.Rights = s.Config.dir("rights.yaml")
		token, err := firstRights(r.Rights, s.Config.dir(adminToken))
		if err != nil {
			return r, fmt.Errorf("making the first rights: %w", err)
		}
		r.Token = token
	}
	var err error
	s.book, err = rights.Open(rights.Options{File: r.Rights, Anonymous: s.Config.Anonymous, Allow: s.Config.AllowHosts, Log: s.log, Now: s.Now})
	return r, err
}

// serve listens, says that it is ready, and serves.
func (s *server) serve(ctx context.Context, r *Registry, ready Ready) error {
	l, err := net.Listen("tcp", s.Config.Listen)
	if err != nil {
		return usage("--listen-address: %w", err)
	}
	scheme := "http"
	if !s.Config.PlainHTTP {
		config, ca, err := s.certificates(ctx)
		if err != nil {
			return errors.Join(err, l.Close())
		}
		config.NextProtos = []string{"h2", "http/1.1"}
		scheme, ready.CA = "https", ca
		l = tls.NewListener(l, config)
	}
	handler, err := s.around(r, ready.CA)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	ready.URL = scheme + "://" + s.address(l.Addr())
	stopMetrics, at, err := s.meters.serve(s.Config.Metrics)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	ready.Metrics = at
	srv := &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	err = s.say(ready)
	if err == nil {
		select {
		case <-ctx.Done():
		case err = <-ended:
			return errors.Join(fmt.Errorf("serving: %w", err), stopMetrics())
		}
	}
	return errors.Join(err, s.drain(ctx, srv, ended), stopMetrics())
}

// drain ends the server after the requests that go on.
func (s *server) drain(ctx context.Context, srv *http.Server, ended <-chan error) error {
	s.draining.Store(true)
	fmt.Fprintf(s.Stderr, "terrier: stopping as soon as the requests that go on have ended, within %s\n", s.Config.Drain)
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.Config.Drain)
	defer cancel()
	err := srv.Shutdown(within)
	if errors.Is(err, context.DeadlineExceeded) {
		s.log.Warn("requests interrupted: they did not end within --drain")
		err = srv.Close()
	}
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("serving: %w", served))
	}
	return err
}

// address is how clients reach the server.
func (s *server) address(at net.Addr) string {
	h, port, err := net.SplitHostPort(at.String())
	if err != nil {
		return at.String()
	}
	if ip := net.ParseIP(h); len(s.Config.Hosts) > 0 {
		h = s.Config.Hosts[0]
	} else if ip != nil && ip.IsUnspecified() {
		h = "localhost"
	}
	if port == "443" && !s.Config.PlainHTTP {
		return h
	}
	return net.JoinHostPort(h, port)
}

// around is what every request passes: figures, the log, probes, and pages.
// Browsers send the token of their user also if a page of another site has them send a
// request, so such a request may only read. CA is the file with the authority of the
// certificate, if that is its own.
func (s *server) around(r *Registry, ca string) (http.Handler, error) {
	o := pageOptions{version: s.Version, logins: s.Config.LoginClient != ""}
	if ca != "" {
		var err error
		if o.authority, err = os.ReadFile(ca); err != nil {
			return nil, err
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("/", r)
	err := newBrowsing(mux, r, s.book, o, s.log, s.Now)
	return s.logged(s.arriving(http.NewCrossOriginProtection().Handler(mux))), err
}

// arriving bounds the time of a body until a handler reads it, for a caller that may send
// it: net/http waits for the body before it sends an answer, also to a caller without a
// token. Half of --stall-timeout leaves the other half for the answer. A request without a
// body gets no deadline, since that would end its context.
func (s *server) arriving(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			if err := http.NewResponseController(w).SetReadDeadline(s.Now().Add(s.Config.Stall / 2)); err != nil {
				s.log.Error("request without a deadline", "path", r.URL.Path, "err", err)
				panic(http.ErrAbortHandler)
			}
		}
		h.ServeHTTP(w, r)
	})
}

// readyTime bounds the question whether the storage answers.
const readyTime = 5 * time.Second

var errDraining = errors.New("the registry is stopping")

func (s *server) readyz(w http.ResponseWriter, r *http.Request) {
	err := errDraining
	if !s.draining.Load() {
		ctx, cancel := context.WithTimeout(r.Context(), readyTime)
		defer cancel()
		var v io.ReadCloser
		if v, err = s.store.Get(ctx, archiveKey); err == nil {
			err = v.Close()
		} else if fault.Of(err) == fault.Missing {
			err = nil // the storage answers
		}
	}
	if err != nil {
		s.log.Warn("not ready", "err", err)
		http.Error(w, "the registry is stopping, or its storage does not answer: see the log", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// logged counts and logs each request, without its parameters and headers: these have
// tokens and signatures.
func (s *server) logged(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		r = via(r)
		began := s.Now()
		c := &counted{ResponseWriter: w, status: http.StatusOK}
		defer func() {
			p := recover()
			if p != nil && p != http.ErrAbortHandler {
				s.log.Error("request panicked", "method", r.Method, "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
			}
			if p != nil && !c.wrote {
				http.Error(c, `{"errors":["internal error of the registry: its log has more"]}`, http.StatusInternalServerError)
			} else if p != nil {
				s.meters.request(r, http.StatusInternalServerError, c.bytes, s.Now().Sub(began))
				panic(http.ErrAbortHandler) // the answer must not look complete
			}
			took := s.Now().Sub(began)
			s.meters.request(r, c.status, c.bytes, took)
			level := slog.LevelDebug
			if c.status >= http.StatusInternalServerError {
				level = slog.LevelWarn
			}
			s.log.Log(r.Context(), level, "request served", "method", r.Method, "path", r.URL.Path, "status", c.status, "bytes", c.bytes, "took", took, "from", r.RemoteAddr)
		}()
		h.ServeHTTP(c, r)
	})
}

// counted notes the status and the size of an answer.
type counted struct {
	http.ResponseWriter
	status int
	bytes  int64
	wrote  bool
}

func (c *counted) WriteHeader(status int) {
	if !c.wrote && status >= http.StatusOK {
		c.status, c.wrote = status, true
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *counted) Write(p []byte) (int, error) {
	c.wrote = true
	n, err := c.ResponseWriter.Write(p)
	c.bytes += int64(n)
	return n, err
}

// Unwrap serves http.ResponseController.
func (c *counted) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// say prints that the registry is ready, and what a client needs.
func (s *server) say(r Ready) error {
	if s.Config.Output == "json" {
		return json.NewEncoder(s.Stdout).Encode(r)
	}
	_, err := io.WriteString(s.Stdout, welcome(r, s.Program))
	return err
}
