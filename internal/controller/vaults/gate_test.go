package vaults

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/vault"
	"github.com/terrier-iac/terrier/internal/vault/vaulttest"
)

// wire counts requests, and answers none while it is cut.
type wire struct {
	mu   sync.Mutex
	cut  bool
	seen []string // METHOD path
	to   http.RoundTripper
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	w.seen = append(w.seen, r.Method+" "+strings.TrimPrefix(r.URL.Path, "/v1/"))
	cut := w.cut
	w.mu.Unlock()
	if cut {
		return nil, errors.New("i/o timeout")
	}
	return w.to.RoundTrip(r)
}

// take returns the requests since the last call.
func (w *wire) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := w.seen
	w.seen = nil
	return seen
}

func (w *wire) set(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
}

// A server that does not answer is asked by one pass every ten seconds, and not by each pass
// over each stack. Once it answers, all go on.
func TestAServerThatDoesNotAnswerIsNotAskedByEachPass(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, s vaulttest.Server) {
		w := newWorld(t, s)
		line := &wire{to: http.DefaultTransport}
		w.vaults.Config.Server.HTTP = &http.Client{Transport: line}
		line.set(true)
		fails := func(says string) {
			t.Helper()
			if _, err := w.read(t, appAccount, "vault://kyuubi/database"); fault.Of(err) != fault.Later || fault.Reason(err, "") != vault.ReasonUnreachable || !strings.Contains(err.Error(), says) {
				t.Errorf("Read() = %v, want %s that says %q", err, vault.ReasonUnreachable, says)
			}
		}
		fails("i/o timeout")
		for range 20 {
			fails("it was not asked again, since a moment ago")
		}
		if asked := line.take(); len(asked) != 1 {
			t.Errorf("asked were %v, want one request", asked)
		}
		if _, err := w.vaults.Begin(t.Context(), w.stack(appAccount), "apply-1", nil); fault.Reason(err, "") != vault.ReasonUnreachable || len(line.take()) != 0 {
			t.Errorf("Begin() = %v, want that the server is not asked", err)
		}
		w.Pass(rememberDown)
		fails("i/o timeout")
		fails("it was not asked again, since a moment ago")
		if asked := line.take(); len(asked) != 1 {
			t.Errorf("after ten seconds asked were %v, want one request", asked)
		}
		line.set(false)
		w.Pass(rememberDown)
		for range 2 {
			if _, err := w.read(t, appAccount, "vault://kyuubi/database"); err != nil {
				t.Errorf("once it answers: %v", err)
			}
		}
		// A server that answers with an error is there.
		if _, err := w.read(t, appAccount, "vault://kyuubi/other"); fault.Of(err) != fault.Denied {
			t.Errorf("a secret that may not be read: %v", err)
		}
		if _, err := w.read(t, types.NamespacedName{Namespace: "apps", Name: "plain"}, "vault://kyuubi/database"); fault.Of(err) != fault.Denied {
			t.Errorf("an account without a role: %v", err)
		}
	})
}

// While one caller asks whether the server answers again, the others do not wait for it; one
// that is cancelled tells nothing.
func TestOneCallerAsks(t *testing.T) {
	now, dead := time.Now(), (vault.Server{URL: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, HTTP: http.DefaultClient})
	_, silent := dead.SignIn(t.Context(), vault.SignIn{Method: vault.JWT, Role: "app"})
	g, clock := &gate{}, func() time.Time { return now }
	through := func(ctx context.Context, err error) (asked bool) {
		_ = g.through(ctx, clock, func() error { asked = true; return err })
		return asked
	}
	if !through(t.Context(), silent) || through(t.Context(), nil) {
		t.Fatal("a server that did not answer is asked again at once")
	}
	now = now.Add(rememberDown)
	if err := g.through(t.Context(), clock, func() error {
		if through(t.Context(), nil) {
			t.Error("a second caller asks beside the first")
		}
		return silent
	}); err == nil {
		t.Error("the first caller has no error")
	}
	now = now.Add(rememberDown)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if !through(gone, gone.Err()) || !through(t.Context(), nil) || !through(t.Context(), nil) {
		t.Error("a caller that was cancelled closes the way for the next one")
	}
}
