package notify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/secret"
)

// soon is how long a test waits for what has to come, on a machine that may
// be busy.
const soon = 5 * time.Minute

// canary is a secret that must not turn up where people look.
const canary = "canary-7f3a"

// receiver is a real server that answers what a test says.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	answer func(n int, w http.ResponseWriter, r *http.Request) // n counts from 1
	got    []request
	came   chan struct{}
}

type request struct {
	header http.Header
	body   []byte
}

func receive(t *testing.T, answer func(n int, w http.ResponseWriter, r *http.Request)) *receiver {
	t.Helper()
	r := &receiver{answer: answer, came: make(chan struct{}, 10_000)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		r.got = append(r.got, request{req.Header.Clone(), body})
		n := len(r.got)
		r.mu.Unlock()
		r.came <- struct{}{}
		if r.answer != nil {
			r.answer(n, w, req)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func status(code int) func(int, http.ResponseWriter, *http.Request) {
	return func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func (r *receiver) requests() []request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]request(nil), r.got...)
}

// await returns the requests once there are n.
func (r *receiver) await(t *testing.T, n int) []request {
	t.Helper()
	limit := time.After(soon)
	for {
		if got := r.requests(); len(got) >= n {
			return got
		}
		select {
		case <-r.came:
		case <-limit:
			t.Fatalf("%d requests came, want %d", len(r.requests()), n)
		}
	}
}

// lab is a dispatcher with one provider, hook, in the namespace team.
type lab struct {
	*Dispatcher
	store  blob.Store
	to     Destination
	toErr  error
	routes []Route
}

func (l *lab) Routes(context.Context, Event) ([]Route, error) { return l.routes, nil }

func (l *lab) Destination(context.Context, string, string) (Destination, error) {
	return l.to, l.toErr
}

func newLab(t *testing.T, to Destination, allow ...string) *lab {
	t.Helper()
	files, err := blob.OpenFiles(t.TempDir(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = files.Close() })
	key, err := blob.NewKey(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{store: blob.Seal(files, key), to: to, routes: []Route{{Namespace: "team", Provider: "hook"}}}
	l.Dispatcher = l.dispatcher(t, allow...)
	return l
}

// dispatcher makes a dispatcher on the store of the lab, as a start of the program does.
func (l *lab) dispatcher(t *testing.T, allow ...string) *Dispatcher {
	t.Helper()
	allowed, err := outbound.ParseAllow(allow...)
	if err != nil {
		t.Fatal(err)
	}
	out := outbound.New(outbound.Policy{Allow: allowed, PlainHTTP: true})
	t.Cleanup(out.Close)
	return New(Options{
		Store: l.store, Damage: blob.Damaged, Directory: l, Send: Sender{Out: out}.Send, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Pause: func(int) time.Duration { return time.Millisecond },
	})
}

// run runs a dispatcher until the test, or stop, ends it.
func run(t *testing.T, d *Dispatcher) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	once := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run() = %v", err)
		}
	})
	t.Cleanup(once)
	return once
}

// to is a destination of a type at a server that is allowed.
func to(kind string, r *receiver) Destination {
	return Destination{Type: kind, Address: secret.New(r.URL + "/services/" + canary), Token: secret.New(canary + "-token"), PlainHTTP: true, Timeout: soon}
}

func host(r *receiver) string { return strings.TrimPrefix(r.URL, "http://") }

// awaitOutcome waits until the history says so of n messages.
func awaitOutcome(t *testing.T, d *Dispatcher, outcome Outcome, n int) []Delivery {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(soon)
	for {
		var found []Delivery
		for _, x := range d.Deliveries() {
			if x.Outcome == outcome {
				found = append(found, x)
			}
		}
		if len(found) >= n {
			return found
		}
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("the history is %+v, want %d %s", d.Deliveries(), n, outcome)
		}
	}
}

// outbox are the messages that are kept.
func (l *lab) outbox(t *testing.T) []string {
	t.Helper()
	keys, err := l.store.List(context.Background(), record.Outbox())
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func event(n int) Event {
	return Event{
		InvolvedObject: Object{Kind: "Terraform", Namespace: "team", Name: "network", UID: "u-1", APIVersion: "infra.contrib.fluxcd.io/v1alpha2"},
		Severity:       Info, Timestamp: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Reason: "TerraformPlanSucceed",
		Message:             fmt.Sprintf("Plan pending: plan-main-%d waits for approval: 1 to add, 0 to change, 0 to destroy", n),
		Metadata:            map[string]string{"infra.contrib.fluxcd.io/plan": fmt.Sprintf("plan-main-%d", n), "event.toolkit.fluxcd.io/commit": "sha1:abc", "other.example/x": "y"},
		ReportingController: "terrier",
	}
}

var errNoProvider = fault.New(fault.Missing, "ProviderMissing", errors.New("there is no Provider hook in team"))
