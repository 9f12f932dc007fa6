package prerequisites

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/prerequisite"
)

// proberOf is a prober that runs, and may reach these addresses besides.
func proberOf(t *testing.T, plain bool, now func() time.Time, allow ...string) *Prober {
	t.Helper()
	allowed, err := outbound.ParseAllow(allow...)
	if err != nil {
		t.Fatal(err)
	}
	out := outbound.New(outbound.Policy{Allow: allowed, PlainHTTP: plain})
	p := NewProber(out, now)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		out.Close()
	})
	return p
}

// answerOf asks, and waits for the answer.
func answerOf(t *testing.T, p *Prober, of prerequisite.Prerequisite) prerequisite.Result {
	t.Helper()
	woken := make(chan struct{}, 1)
	s := Stack{ID: t.Name(), Namespace: "a", Wake: func() { woken <- struct{}{} }}
	if r := p.Ask(s, of); r.Reason != prerequisite.Checking && !r.Stale {
		return r
	}
	<-woken
	return p.Ask(s, of)
}

// Systems are asked beside the reconciles, and what they say has the same words each time.
func TestOtherSystems(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/gone":
			w.WriteHeader(http.StatusGone)
		case "/elsewhere":
			http.Redirect(w, r, "/ready", http.StatusFound)
		case "/" + r.Method:
			_, _ = w.Write([]byte("all scopes are served")) // the client may be gone
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(server.Close)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	none := closed.Addr().String()
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	tcp := func(address string) prerequisite.Prerequisite {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(port)
		if err != nil {
			t.Fatal(err)
		}
		return prerequisite.Prerequisite{TCP: &prerequisite.TCP{Host: host, Port: n}}
	}
	ask := func(h prerequisite.HTTP) prerequisite.Prerequisite {
		h.URL = server.URL + h.URL
		return prerequisite.Prerequisite{HTTP: &h}
	}
	at := server.Listener.Addr().String()
	p := proberOf(t, true, time.Now, at, none)
	for name, tt := range map[string]struct {
		of   prerequisite.Prerequisite
		want prerequisite.Reason
		says string
	}{
		"a port that is open":            {tcp(at), prerequisite.Met, at + " takes connections"},
		"a port that is closed":          {tcp(none), prerequisite.NoAnswer, none + ": connection refused"},
		"an address that is not allowed": {tcp("127.0.0.1:1"), prerequisite.Denied, "127.0.0.1:1 may not be asked: "},
		"the metadata service":           {tcp("169.254.169.254:80"), prerequisite.Denied, "169.254.169.254:80 may not be asked: "},
		"an answer":                      {ask(prerequisite.HTTP{URL: "/GET"}), prerequisite.Met, server.URL + "/GET answers with 200"},
		"an answer to HEAD":              {ask(prerequisite.HTTP{URL: "/HEAD", Method: "HEAD"}), prerequisite.Met, server.URL + "/HEAD answers with 200"},
		"another status":                 {ask(prerequisite.HTTP{URL: "/gone"}), prerequisite.NoAnswer, server.URL + "/gone answers with 410, and must answer with 200"},
		"the status that is asked for":   {ask(prerequisite.HTTP{URL: "/gone", Status: 410}), prerequisite.Met, server.URL + "/gone answers with 410"},
		"a redirect is an answer":        {ask(prerequisite.HTTP{URL: "/elsewhere", Status: 302}), prerequisite.Met, server.URL + "/elsewhere answers with 302"},
		"a text in the answer":           {ask(prerequisite.HTTP{URL: "/GET", BodyContains: "scopes are"}), prerequisite.Met, "contains"},
		"no such text in the answer":     {ask(prerequisite.HTTP{URL: "/GET", BodyContains: "none"}), prerequisite.Different, "does not contain"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := answerOf(t, p, tt.of); got.Reason != tt.want || !strings.Contains(got.Message, tt.says) {
				t.Errorf("Ask() = %+v, want %s with %q", got, tt.want, tt.says)
			}
		})
	}
	strict := proberOf(t, false, time.Now, at)
	if got := answerOf(t, strict, ask(prerequisite.HTTP{URL: "/GET"})); got.Reason != prerequisite.Denied || !strings.Contains(got.Message, "--allow-plain-http") {
		t.Errorf("without encryption Ask() = %+v, want to be refused, with the way out", got)
	}
	if got := (*Prober)(nil).Ask(Stack{}, tcp(at)); got.Reason != prerequisite.Denied {
		t.Errorf("without a client Ask() = %+v, want to be refused", got)
	}
}

// An answer counts for a while. After that the system is asked again, and what it said last
// is shown until it answers.
func TestAnswersAge(t *testing.T) {
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	t.Cleanup(server.Close)
	now := time.Unix(1e9, 0)
	p := proberOf(t, true, func() time.Time { return now }, server.Listener.Addr().String())
	of := prerequisite.Prerequisite{HTTP: &prerequisite.HTTP{URL: server.URL}}
	woken := make(chan struct{}, 1)
	s := Stack{ID: "s", Namespace: "a", Wake: func() { woken <- struct{}{} }}
	if r := p.Ask(s, of); r.Reason != prerequisite.Checking {
		t.Errorf("at first Ask() = %+v, want that it is being asked", r)
	}
	<-woken
	status = http.StatusServiceUnavailable
	now = now.Add(metFor - time.Second)
	if r := p.Ask(s, of); !r.OK() || r.Stale {
		t.Errorf("soon after that Ask() = %+v, want the answer", r)
	}
	now = now.Add(2 * time.Second)
	if r := p.Ask(s, of); !r.OK() || !r.Stale {
		t.Errorf("later Ask() = %+v, want the answer of before, and that it is asked again", r)
	}
	<-woken
	if r := p.Ask(s, of); r.Reason != prerequisite.NoAnswer || r.Stale {
		t.Errorf("then Ask() = %+v, want the newest answer", r)
	}
	status = http.StatusOK
	now = now.Add(unmetFor)
	if r := p.Ask(s, of); r.Reason != prerequisite.NoAnswer || !r.Stale {
		t.Errorf("after a pause Ask() = %+v, want that it is asked again", r)
	}
	<-woken
	if r := p.Ask(s, of); !r.OK() {
		t.Errorf("at last Ask() = %+v, want that it is met", r)
	}
}

// A namespace whose systems are silent takes its own places and leaves those of others.
func TestSilentSystems(t *testing.T) {
	p := NewProber(nil, time.Now)
	for i := range 2 * questionsPerNamespace {
		p.Ask(Stack{ID: strconv.Itoa(i), Namespace: "loud"}, prerequisite.Prerequisite{TCP: &prerequisite.TCP{Host: "a", Port: 1}})
	}
	p.Ask(Stack{ID: "other", Namespace: "quiet"}, prerequisite.Prerequisite{TCP: &prerequisite.TCP{Host: "a", Port: 1}})
	begun := map[string]int{}
	for q, ok := p.begin(); ok; q, ok = p.begin() {
		begun[q.namespace]++
	}
	if begun["loud"] != questionsPerNamespace || begun["quiet"] != 1 {
		t.Errorf("%v questions begin, want %d of the loud namespace, and the one of the quiet", begun, questionsPerNamespace)
	}
}
