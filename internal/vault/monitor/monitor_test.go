package monitor_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/terrier-iac/terrier/internal/vault"
	"github.com/terrier-iac/terrier/internal/vault/monitor"
	"github.com/terrier-iac/terrier/internal/vault/vaulttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answering is a server that gives one answer at a time.
func answering(t *testing.T) (vault.Server, *atomic.Pointer[string]) {
	t.Helper()
	var says atomic.Pointer[string]
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/sys/health" || r.Header.Get("X-Vault-Token") != "" {
			t.Errorf("asked for %s with a token %q, want the health without one", r.URL.Path, r.Header.Get("X-Vault-Token"))
		}
		if _, err := w.Write([]byte(*says.Load())); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(h.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	at, err := url.Parse(h.URL)
	if err != nil {
		t.Fatal(err)
	}
	return vault.Server{URL: at, HTTP: http.DefaultClient}, &says
}

func TestEachStateIsTold(t *testing.T) {
	server, says := answering(t)
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var log bytes.Buffer
	m := monitor.New(func() time.Time { return now }, slog.New(slog.NewTextHandler(&log, nil)), monitor.Server{Server: server, Use: "secrets of stacks"}, monitor.Server{Server: server, Use: "keys of records"})
	if got := m.Statuses(); len(got) != 1 || got[0].State != monitor.Unknown || len(got[0].Uses) != 2 {
		t.Fatalf("before the first answer the statuses are %+v, want one server with two uses that is unknown", got)
	}
	var since time.Time
	for _, step := range []struct {
		answer string
		want   monitor.State
		next   string // a part of what to do
		lines  int    // of the log so far
	}{
		{`{"initialized":true,"sealed":false,"standby":false,"version":"2.4.0"}`, monitor.Active, "", 0},
		{`{"initialized":true,"sealed":true,"standby":true,"version":"2.4.0"}`, monitor.Sealed, "vault operator unseal", 1},
		{`{"initialized":true,"sealed":true,"standby":true,"version":"2.4.0"}`, monitor.Sealed, "vault operator unseal", 1},
		{`{"initialized":true,"sealed":false,"standby":true,"version":"2.4.0"}`, monitor.Standby, "", 2},
		{`{"initialized":false,"sealed":true,"standby":true}`, monitor.Uninitialized, "vault operator init", 3},
		{`<html>a proxy</html>`, monitor.Unreachable, "--vault", 4},
		{`{"initialized":true,"sealed":false,"standby":false,"version":"2.4.1"}`, monitor.Active, "", 5},
	} {
		now = now.Add(time.Minute)
		was := m.Statuses()[0].State
		says.Store(&step.answer)
		m.Check(t.Context())
		got := m.Statuses()[0]
		if was != step.want {
			since = now
		}
		if got.State != step.want || !strings.Contains(got.Next, step.next) || (got.Next == "") != (step.next == "") || !got.Since.Equal(since) || !got.Checked.Equal(now) {
			t.Errorf("after %s the status is %+v, want %s since %s, and to do %q", step.answer, got, step.want, since, step.next)
		}
		if n := strings.Count(log.String(), "\n"); n != step.lines {
			t.Errorf("after %s the log has %d lines, want %d:\n%s", step.answer, n, step.lines, log.String())
		}
	}
	if got := m.Statuses()[0].Version; got != "2.4.1" {
		t.Errorf("the version is %q, want the newest that was told", got)
	}
}

// A server that is gone is unreachable, and the next answer says that it is back.
func TestRunAsksUntilItEnds(t *testing.T) {
	server, says := answering(t)
	healthy := `{"initialized":true}`
	says.Store(&healthy)
	gone := vault.Server{URL: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, HTTP: http.DefaultClient}
	m := monitor.New(time.Now, slog.New(slog.DiscardHandler), monitor.Server{Server: server, Use: "a"}, monitor.Server{Server: gone, Use: "b"})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- m.Run(ctx) }()
	deadline := time.Now().Add(5 * time.Minute)
	states := func() []monitor.State { return []monitor.State{m.Statuses()[0].State, m.Statuses()[1].State} }
	for !cmp.Equal(states(), []monitor.State{monitor.Active, monitor.Unreachable}) {
		if time.Now().After(deadline) {
			t.Fatalf("the states are %v, want one active and one unreachable", states())
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the end is the error %v", err)
	}
	if (*monitor.Monitor)(nil).Statuses() != nil {
		t.Error("a nil monitor knows servers")
	}
}

// What the monitor reads of the stand-in, and of OpenBao itself where it was built.
func TestHealthOfServers(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, s vaulttest.Server) {
		m := monitor.New(time.Now, slog.New(slog.DiscardHandler), monitor.Server{Server: vault.Server{URL: s.URL, HTTP: http.DefaultClient}, Use: "a"})
		m.Check(t.Context())
		if got := m.Statuses()[0]; got.State != monitor.Active || got.Version == "" {
			t.Errorf("the status is %+v, want an active server with its version", got)
		}
		s.Ask(t, http.MethodPut, "sys/seal", nil)
		m.Check(t.Context())
		if got := m.Statuses()[0]; got.State != monitor.Sealed {
			t.Errorf("the status is %+v, want a sealed server", got)
		}
		http.DefaultClient.CloseIdleConnections()
	})
}
