package protocol

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry"
	"github.com/terrier-iac/terrier/internal/registry/inspect"
	"github.com/terrier-iac/terrier/internal/registry/mirror"
)

// Options are what a handler serves, and how.
type Options struct {
	Registry *registry.Registry
	Rights   Rights
	Signer   Signer        // of the addresses of archives
	Life     time.Duration // of such an address; 15 minutes if zero

	// Documents makes the documentation of modules; nil if it is not served.
	Documents *inspect.Reader
	// Openers open archives whose keys begin with these prefixes, besides those of the
	// registry: "mirror/".
	Openers map[string]Opener
	// Services are what discovery names besides modules and providers: login.v1.
	Services map[string]any
	// Served is called with what a tenant got of an archive; it may be nil.
	Served func(tenant, key string, bytes int64)

	// Stall is how long a client may take for a part of a body, of some kilobytes. A
	// transfer that makes progress has no other limit. One minute if zero.
	Stall time.Duration
	Now   func() time.Time // time.Now if nil
	Log   *slog.Logger
}

// prefix is where all but discovery is.
const prefix = "/v1/"

// Server is the handler of a registry.
type Server struct {
	Options
	mux   *http.ServeMux
	lists *lists
}

// New returns a handler for /.well-known/terraform.json and for all that is below /v1/.
// Requests of the engine and of users come to it as they are: a handler around it may
// log them, and must not limit their time.
func New(o Options) (*Server, error) {
	if o.Registry == nil || o.Rights == nil || o.Signer == nil {
		return nil, errors.New("a registry over HTTP needs its content, rights and a signer")
	}
	o.Life, o.Stall = cmp.Or(o.Life, 15*time.Minute), cmp.Or(o.Stall, time.Minute)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{o, http.NewServeMux(), newLists(listsWeight, o.Now)}
	s.mux.HandleFunc("GET /.well-known/terraform.json", s.discovery)
	s.mux.HandleFunc("GET "+prefix+"archives/{key...}", s.archive)
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.answer(w, r, fault.New(fault.Missing, "NoRoute", errors.New("the registry has nothing at this address")))
	})
	modules{s}.routes()
	providers{s}.routes()
	s.Handle("GET", "usage/{namespace}", Read, func(w http.ResponseWriter, r *http.Request, _ Caller) error {
		used, err := s.Registry.Usage(r.Context(), r.PathValue("namespace"))
		if err == nil {
			s.JSON(w, r, used)
		}
		return err
	})
	return s, nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mux.ServeHTTP(Transfer(w, r, s.Stall, s.Now), r)
}

// Action answers a request of a caller that may do it.
type Action func(w http.ResponseWriter, r *http.Request, c Caller) error

// Handle adds a route below /v1/ for callers with a right in the namespace that the
// pattern calls {namespace}.
func (s *Server) Handle(method, pattern string, v Verb, do Action) {
	s.mux.HandleFunc(method+" "+prefix+pattern, func(w http.ResponseWriter, r *http.Request) {
		err := s.allowed(w, r, v, do)
		if err != nil {
			s.answer(w, r, err)
		}
	})
}

func (s *Server) allowed(w http.ResponseWriter, r *http.Request, v Verb, do Action) error {
	c, err := s.Rights.Caller(r)
	if err != nil {
		return err
	}
	if err := s.Rights.May(r.Context(), c, v, namespaceOf(r)); err != nil {
		return err
	}
	return do(w, r, c)
}

// HandleList adds a route below /v1/ about all namespaces in which a caller may read. Sees
// reports which ones these are.
func (s *Server) HandleList(pattern string, do func(w http.ResponseWriter, r *http.Request, sees func(namespace string) bool) error) {
	answer := func(w http.ResponseWriter, r *http.Request) {
		c, err := s.Rights.Caller(r)
		if err == nil {
			err = do(w, r, func(namespace string) bool { return s.Rights.May(r.Context(), c, Read, namespace) == nil })
		}
		if err != nil {
			s.answer(w, r, err)
		}
	}
	s.mux.HandleFunc("GET "+prefix+pattern, answer)
	s.mux.HandleFunc("GET "+prefix+pattern+"/{$}", answer) // the base of a service ends with a slash
}

// namespaceOf is the namespace that a request is about, in the spelling of its kind.
func namespaceOf(r *http.Request) string {
	kind, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, prefix), "/")
	return registry.Kind(kind).Namespace(r.PathValue("namespace"))
}

// admitted refuses what would publish in a namespace that does not exist, before the body of
// the request is read, and names those in which the caller may publish.
func (s *Server) admitted(do Action) Action {
	return func(w http.ResponseWriter, r *http.Request, c Caller) error {
		err := s.Registry.Admits(r.Context(), namespaceOf(r))
		if fault.Reason(err, "") == registry.NamespaceMissing {
			err = fault.New(fault.Invalid, registry.NamespaceMissing, fmt.Errorf("%w%s", err, s.publishes(r.Context(), c)))
		}
		if err != nil {
			return err
		}
		return do(w, r, c)
	}
}

// Bounds of the namespaces that an error names.
const (
	mostAsked = 100 // of which the rights are asked for
	mostNamed = 5
)

// publishes names namespaces in which a caller may publish, of those that have something.
func (s *Server) publishes(ctx context.Context, c Caller) string {
	var named []string
	for _, k := range []registry.Kind{registry.Modules, registry.Providers} {
		all, err := s.Registry.Namespaces(ctx, k)
		if err != nil {
			s.Log.Warn("namespaces not read", "err", err) // the error says enough without them
		}
		for _, ns := range all[:min(len(all), mostAsked)] {
			if len(named) < mostNamed && !slices.Contains(named, ns) && s.Rights.May(ctx, c, Write, ns) == nil {
				named = append(named, ns)
			}
		}
	}
	if len(named) == 0 {
		return ""
	}
	return ". You may publish in: " + strings.Join(named, ", ")
}

// discovery says which services a host has. Clients accept exactly this media type.
func (s *Server) discovery(w http.ResponseWriter, r *http.Request) {
	services := map[string]any{"modules.v1": prefix + "modules/", "providers.v1": prefix + "providers/"}
	maps.Copy(services, s.Services)
	w.Header().Set("Cache-Control", "public, max-age=300")
	s.json(w, r, http.StatusOK, services)
}

// json sends an answer. Clients accept exactly this media type.
func (s *Server) json(w http.ResponseWriter, r *http.Request, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		s.answer(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	b = encoded(w, r, b, packed)
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if w.Header().Get("Cache-Control") == "" {
		w.Header().Set("Cache-Control", "no-store") // addresses in answers expire
	}
	w.WriteHeader(status)
	if _, err := w.Write(b); err != nil {
		s.Log.Debug("answer not sent", "path", r.URL.Path, "err", err)
	}
}

// JSON sends an answer of status 200 for a route that Handle added.
func (s *Server) JSON(w http.ResponseWriter, r *http.Request, v any) { s.json(w, r, http.StatusOK, v) }

// answer sends an error in the form that clients of registries show.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, err error) {
	kind := fault.Of(err)
	status := kind.Meaning().HTTP
	var large *http.MaxBytesError
	switch reason := fault.Reason(err, ""); {
	case IsUnauthenticated(err):
		status = http.StatusUnauthorized
		w.Header().Set("WWW-Authenticate", `Bearer realm="registry"`)
	case reason == registry.VersionRetracted && kind == fault.Missing:
		status = http.StatusGone
	case reason == bodyStalled:
		status = http.StatusRequestTimeout
	case reason == blob.TooLarge, errors.As(err, &large):
		status = http.StatusRequestEntityTooLarge
	case mirror.OfUpstream(err): // the caller learns what is wrong with it
		kind, status = fault.Later, http.StatusBadGateway
		s.Log.Warn("upstream is wrong", "path", r.URL.Path, "err", err)
	case errors.Is(err, context.DeadlineExceeded):
		kind, status = fault.Later, http.StatusServiceUnavailable
	}
	text := err.Error()
	if kind == fault.Broken {
		if r.Context().Err() != nil {
			s.Log.Debug("client left", "path", r.URL.Path, "err", err)
		} else {
			s.Log.Error("request failed", "method", r.Method, "path", r.URL.Path, "err", err)
		}
		text = "internal error of the registry: its log has details"
	}
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "5")
	}
	s.json(w, r, status, map[string][]string{"errors": {fault.Shorten(text, 2<<10)}})
}

// mostBody bounds the bodies of requests that are no uploads.
const mostBody = 64 << 10

// body reads the JSON of a request.
func body(r *http.Request, into any) error {
	d := json.NewDecoder(http.MaxBytesReader(nil, r.Body, mostBody))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if errors.Is(err, io.EOF) {
		return nil // nothing is said
	}
	if fault.Reason(err, "") == bodyStalled {
		return err
	}
	if err == nil && d.More() {
		err = errors.New("there is more than one value")
	}
	if err != nil {
		return fault.New(fault.Invalid, "BodyInvalid", fmt.Errorf("reading the body of the request: %w", err))
	}
	return nil
}

// missing is the error of a request to a name that nothing can have. Clients show no
// text of an error, and know 404 as that of an unknown name.
func missing(err error) error {
	return fault.New(fault.Missing, fault.Reason(err, ""), err)
}
