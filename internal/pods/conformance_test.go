package pods

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/remote"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// podRunner is a runner under test whose places are pods.
type podRunner struct {
	*remote.Runner
	host *runnertest.Host
}

func (r podRunner) Host() *runnertest.Host { return r.host }

// openRunner opens a runner of its own, which is closed at the end of the test.
func openRunner(t testing.TB, c *testkit.Cluster, image string) podRunner {
	t.Helper()
	var handler atomic.Pointer[http.Handler]
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*handler.Load()).ServeHTTP(w, r) }))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	id := make([]byte, 8)
	_, _ = rand.Read(id) // it never fails
	p, err := New(Config{
		API: c.Config, Installation: hex.EncodeToString(id), Namespaces: []string{c.Namespace}, Audience: "terrier-run",
		Settings: Settings{Image: image, PullPolicy: corev1.PullIfNotPresent, Account: "default"},
		Server:   func() (string, []byte) { return server.URL, authority },
		Now:      time.Now, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	r := podRunner{host: runnertest.NewHost()}
	r.Runner, err = remote.New(t.Context(), remote.Config{
		Dir: t.TempDir(), Launcher: p, Identify: p.Identify, Contents: r.host, Key: bytes.Repeat([]byte{7}, 32), Log: slog.New(slog.DiscardHandler),
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

// Pods keep the contract of a runner: those of a simulated kubelet on a real API server.
func TestConformance(t *testing.T) {
	c := testkit.Kube(t)
	bin := filepath.Join(testkit.Repository(t), "bin")
	k := testkit.StartKubelet(t, c, map[string]string{"terrier-runner": filepath.Join(bin, "terrier-runner")})
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(k.Log())
		}
	})
	runnertest.Run(t, runnertest.Fixture{
		New:    func(t testing.TB) runnertest.Runner { return openRunner(t, c, "terrier-runner") },
		Engine: engine.Engine{Path: filepath.Join(bin, "tofu"), Name: "tofu", Version: "1.12.6"},
		Mirror: filepath.Join(bin, "mirror"),
		Adapt: func(j *runner.Job) {
			j.Name, j.Pod = c.Namespace+"/net", &runner.Pod{Namespace: c.Namespace}
		},
		Fresh: true, Parallel: true,
	})
}
