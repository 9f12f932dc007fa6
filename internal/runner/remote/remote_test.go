package remote_test

import (
	"bytes"
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/remote"
	"github.com/terrier-iac/terrier/internal/runner/remote/remotetest"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
)

// tofu returns the engine that `make build` makes.
func tofu(t testing.TB) engine.Engine {
	t.Helper()
	path, err := filepath.Abs("../../../bin/tofu")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("no engine to test with, `make build` makes it: %v", err)
	}
	return engine.Engine{Path: path, Name: "tofu", Version: "1.12.6"}
}

// site is a controller that can be replaced, and the places of its runs.
type site struct {
	t        testing.TB
	launcher *remotetest.Launcher
	server   *httptest.Server
	serve    atomic.Pointer[http.Handler] // what the address of the controller leads to now; nil is nothing
}

// newSite makes a site without a controller.
func newSite(t testing.TB) *site {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := s.serve.Load()
		if h == nil {
			panic(http.ErrAbortHandler) // as if nothing were there
		}
		(*h).ServeHTTP(w, r)
	}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	s.server = server
	s.launcher = &remotetest.Launcher{Dir: t.TempDir(), Binary: self, URL: server.URL,
		Authority: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})}
	t.Cleanup(func() {
		if t.Failed() {
			s.tell()
		}
		if err := s.launcher.Close(); err != nil {
			t.Errorf("ending the places: %v", err)
		}
		server.CloseClientConnections()
		server.Close()
	})
	return s
}

// tell logs what the agents said.
func (s *site) tell() {
	logs, err := filepath.Glob(filepath.Join(s.launcher.Dir, "*", "agent.log"))
	for _, path := range logs {
		data, err := os.ReadFile(path)
		s.t.Logf("%s: %s %v", filepath.Base(filepath.Dir(path)), data, err)
	}
	if err != nil {
		s.t.Log(err)
	}
}

// controller is a runner under test.
type controller struct {
	*remote.Runner
	host     *runnertest.Host
	registry remotetest.Registry
	issuer   remotetest.Issuer
}

// reach makes runs reach a registry by way of their controller.
func reach(_ *testing.T, r runnertest.Runner, registry http.Handler) *runner.Registry {
	return r.(*controller).registry.Use(registry, runnertest.PlatformToken)
}

// reachIssuer makes runs get their tokens in the same way.
func reachIssuer(_ *testing.T, r runnertest.Runner, issuer http.Handler) *runner.Identity {
	return r.(*controller).issuer.Use(issuer)
}

func (c *controller) Host() *runnertest.Host { return c.host }

// open starts a controller on a directory.
func (s *site) open(dir string, change ...func(*remote.Config)) *controller {
	s.t.Helper()
	c := &controller{host: runnertest.NewHost()}
	config := remote.Config{Registry: c.registry.Serve, Tokens: c.issuer.Serve, Dir: dir, Launcher: s.launcher, Identify: s.launcher.Identify, Contents: c.host, Key: bytes.Repeat([]byte{7}, 32),
		Log: slog.New(slog.DiscardHandler)}
	for _, f := range change {
		f(&config)
	}
	var err error
	if c.Runner, err = remote.New(s.t.Context(), config); err != nil {
		s.t.Fatal(err)
	}
	h := c.Handler()
	s.serve.Store(&h)
	s.t.Cleanup(func() { s.close(c) })
	return c
}

// held starts a run whose agent the test plays.
func (s *site) held(dir string, change ...func(*remote.Config)) (c *controller, token string) {
	s.t.Helper()
	s.launcher.Hold = true
	c = s.open(dir, change...)
	if err := c.Start(s.t.Context(), bare("a", "run")); err != nil {
		s.t.Fatal(err)
	}
	return c, s.token(c.PlaceOf("a", "run"))
}

// token is what the agent of a place says to be known by.
func (s *site) token(p remote.Place) string {
	s.t.Helper()
	data, err := os.ReadFile(filepath.Join(s.launcher.PlaceDir(p), "token"))
	if err != nil {
		s.t.Fatal(err)
	}
	return "Bearer " + string(data)
}

// close ends a controller. It can be repeated.
func (s *site) close(c *controller) {
	s.t.Helper()
	s.serve.Store(nil)
	if err := c.Close(); err != nil {
		s.t.Errorf("Close() = %v", err)
	}
}

func TestConformance(t *testing.T) {
	mirror, err := filepath.Abs("../../../bin/mirror")
	if err != nil {
		t.Fatal(err)
	}
	runnertest.Run(t, runnertest.Fixture{
		New:    func(t testing.TB) runnertest.Runner { return newSite(t).open(t.TempDir()) },
		Engine: tofu(t),
		Mirror: mirror,
		Fresh:  true,

		Registry: reach, Identity: reachIssuer,
	})
}

// within bounds every wait of a test.
const within = 5 * time.Minute
