// Package relay serves the registry of the platform to the engine of one run, from inside
// the network of its sandbox.
//
//	engine ──https, a secret of the relay──▶ Relay, in the supervisor ──the token of the run──▶ registry
//	   in its sandbox, which may have no network                       package outbound
//
// So a run without a network installs providers and modules, and no program of a run has
// a credential of the registry: the secret opens nothing but this listener, and dies with
// the supervisor.
//
// A Relay reads: it forwards GET and HEAD of the protocols, and nothing else. It follows no
// redirect, stores nothing, and has no bound on the time of a transfer that makes progress.
//
// Start reading at New and Relay.ServeHTTP.
package relay

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Upstream is where a Relay asks.
type Upstream struct {
	URL       string                 // of the registry, without a slash at its end; the paths of the protocols are below it
	Authority []byte                 // certificates in PEM that its certificate is signed with; the system's if there are none
	Token     func() (string, error) // the bearer token of the run, asked for with each request
	Header    map[string]string      // of every request
}

// Relay serves the registry to one run. Its methods may be called from any goroutine.
type Relay struct {
	upstream    *upstream
	secret      string
	certificate tls.Certificate
	authority   []byte

	mu      sync.Mutex
	problem *Problem
	hashes  map[Package][]string
}

// Package is one version of a provider.
type Package struct {
	Address string // registry.opentofu.org/hashicorp/random
	Version string
}

// Problem is why the registry did not serve a request.
type Problem struct {
	Status  int    // of its answer; 0 if there was none
	Message string // what it said, or why it could not be asked
	Path    string // of the request
}

// Away reports whether the registry did not answer, or cannot now: the same request may
// succeed later. Every other Problem is a refusal. So is a bad gateway with a reason: the
// registry answered, and does not hand on what its upstream has. A proxy that does not reach
// the registry gives no reason.
func (p Problem) Away() bool {
	switch p.Status {
	case 0, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	case http.StatusBadGateway:
		return p.Message == ""
	default:
		return false
	}
}

// New returns a Relay with a certificate and a secret of its own, which are valid from now.
func New(u Upstream, now time.Time) (*Relay, error) {
	up, err := newUpstream(u)
	if err != nil {
		return nil, err
	}
	r := &Relay{upstream: up, hashes: map[Package][]string{}}
	if r.certificate, r.authority, err = newCertificate(now); err != nil {
		return nil, fmt.Errorf("making the certificate of the relay: %w", err)
	}
	var b [32]byte
	if _, err := rand.Read(b[:]); err != nil {
		return nil, err
	}
	r.secret = hex.EncodeToString(b[:])
	return r, nil
}

// Authority is the certificate in PEM that a client has to trust. It has signed one
// certificate, and may sign none but those of 127.0.0.1; its key is gone.
func (r *Relay) Authority() []byte { return r.authority }

// Secret is the bearer token that a client has to show.
func (r *Relay) Secret() string { return r.secret }

// Problem is the last request that the registry refused since Forget, else the last one for
// which it was away; nil if there is none.
func (r *Relay) Problem() *Problem {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.problem
}

// Forget forgets the Problem.
func (r *Relay) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problem = nil
}

// Hashes are those of the packages for all platforms, as the mirror has said them, of each
// version that a client asked for.
func (r *Relay) Hashes() map[Package][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := make(map[Package][]string, len(r.hashes))
	for p, h := range r.hashes {
		known[p] = append([]string(nil), h...)
	}
	return known
}

// Serve answers on l until the returned function is called. Connections with TLS and without
// are both taken: the first byte tells. Requests below /state go to state, if it is not nil.
func (r *Relay) Serve(l net.Listener, state http.Handler) (stop func()) {
	mux := http.NewServeMux()
	mux.Handle("/", r)
	if state != nil {
		mux.HandleFunc("/state", func(w http.ResponseWriter, q *http.Request) {
			if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(readLimit)); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			state.ServeHTTP(w, q)
		})
	}
	// Without a time for the whole request: it would end the answer as well.
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(&either{l, &tls.Config{Certificates: []tls.Certificate{r.certificate}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}})
	}()
	return func() {
		_ = server.Close()
		<-done
		r.upstream.client.CloseIdleConnections()
	}
}

// readLimit is how long a state may take to arrive.
const readLimit = 5 * time.Minute

// archives is where packages are. Their addresses are signed, and clients ask for them
// without credentials.
const archives = "/v1/archives/"

// served are the paths that a run may read.
var served = []string{"/v1/modules/", "/v1/providers/", "/v1/mirror/", archives}

// ServeHTTP forwards a request of the engine.
func (r *Relay) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	at := q.URL.EscapedPath()
	var below string
	for _, prefix := range served {
		if strings.HasPrefix(at, prefix) {
			below = prefix
		}
	}
	ours := r.shows(q)
	switch {
	case q.Method != http.MethodGet && q.Method != http.MethodHead:
		refuse(w, http.StatusMethodNotAllowed, "a run reads from the registry, and writes nothing there")
	case below == "" || !plain(at):
		refuse(w, http.StatusNotFound, "the registry of a run serves modules, providers and their mirror only")
	case !ours && below != archives:
		refuse(w, http.StatusUnauthorized, "this is not the secret of this run")
	default:
		r.forward(w, q, at, ours)
	}
}

// shows reports whether a request has the secret of this relay.
func (r *Relay) shows(q *http.Request) bool {
	got, _ := strings.CutPrefix(q.Header.Get("Authorization"), "Bearer ")
	x, y := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(r.secret))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// plain reports whether a path means the same to every server.
func plain(at string) bool {
	for part := range strings.SplitSeq(strings.ToLower(at), "/") {
		if dots, err := url.PathUnescape(part); err != nil || dots == "." || dots == ".." || strings.ContainsAny(dots, "/\\\x00") {
			return false
		}
	}
	return true
}

// refuse answers as a registry does.
func refuse(w http.ResponseWriter, status int, message string) {
	body, err := json.Marshal(map[string][]string{"errors": {message}})
	if err != nil {
		body = []byte("{}")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that is gone asks again
}
