// Package podstest is a runner under test whose runs are pods of a cluster. What the pods
// are it leaves to package pods, and their node to the test.
//
// Start reading at Site.Open.
package podstest

import (
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/terrier-iac/terrier/internal/pods"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/remote"
	"github.com/terrier-iac/terrier/internal/runner/remote/remotetest"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
)

// Site is where the pods of runs are.
type Site struct {
	API       *rest.Config
	Namespace string
	Image     string
	Address   string // of the test, as pods reach it
	Log       *slog.Logger
}

// Runner is a runner under test.
type Runner struct {
	*remote.Runner
	host     *runnertest.Host
	registry *remotetest.Registry
	issuer   *remotetest.Issuer
}

// Reach makes runs reach a registry of the platform by way of their controller.
func Reach(_ *testing.T, r runnertest.Runner, registry http.Handler) *runner.Registry {
	return r.(Runner).registry.Use(registry, runnertest.PlatformToken)
}

// ReachIssuer makes runs get their tokens in the same way.
func ReachIssuer(_ *testing.T, r runnertest.Runner, issuer http.Handler) *runner.Identity {
	return r.(Runner).issuer.Use(issuer)
}

// Host is what the runner has.
func (r Runner) Host() *runnertest.Host { return r.host }

// Open opens a runner of an installation of its own, which ends with the test.
func (s Site) Open(t testing.TB) Runner {
	t.Helper()
	certificate, authority := runnertest.Certificate(t, s.Address)
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it never fails
	listener, err := net.Listen("tcp", net.JoinHostPort(s.Address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	var handler atomic.Pointer[http.Handler]
	server := &httptest.Server{
		Listener: listener, TLS: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
		Config: &http.Server{
			ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
			Handler:  http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*handler.Load()).ServeHTTP(w, r) }),
		},
	}
	server.StartTLS()
	p, err := pods.New(pods.Config{
		API: s.API, Installation: hex.EncodeToString(key[:8]), Namespaces: []string{s.Namespace}, Audience: "terrier-run",
		Settings: pods.Settings{Image: s.Image, PullPolicy: corev1.PullIfNotPresent, Account: "default"},
		Server:   func() (string, []byte) { return server.URL, authority },
		Now:      time.Now, Log: s.Log,
	})
	if err != nil {
		t.Fatal(err)
	}
	r := Runner{host: runnertest.NewHost(), registry: &remotetest.Registry{}, issuer: &remotetest.Issuer{}}
	r.Runner, err = remote.New(t.Context(), remote.Config{
		Dir: t.TempDir(), Launcher: p, Identify: p.Identify, Contents: r.host, Key: key, Log: s.Log, Registry: r.registry.Serve, Tokens: r.issuer.Serve,
	})
	if err != nil {
		t.Fatal(errors.Join(err, p.Close()))
	}
	h := r.Handler()
	handler.Store(&h)
	t.Cleanup(func() {
		if err := errors.Join(r.Close(), p.Close()); err != nil {
			t.Error(err)
		}
		server.CloseClientConnections()
		server.Close()
	})
	return r
}
