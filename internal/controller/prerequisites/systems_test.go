package prerequisites

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/prerequisite"
	testport "github.com/terrier-iac/terrier/internal/testkit/port"
)

// systemsOf asks by a policy with these exceptions.
func systemsOf(t *testing.T, p outbound.Policy, h Hosts) *Systems {
	t.Helper()
	s, err := NewSystems(p, h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.asked.Close()
		s.bodies.Close()
	})
	return s
}

// tcpTo is a prerequisite of a port.
func tcpTo(t *testing.T, address string) prerequisite.Prerequisite {
	t.Helper()
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

// Systems answer, and what is said of the answers has the same words each time.
func TestOtherSystems(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/gone":
			w.WriteHeader(http.StatusGone)
		case "/elsewhere":
			http.Redirect(w, r, "/ready", http.StatusFound)
		case "/large":
			_, _ = w.Write([]byte("begins" + strings.Repeat(" ", answerBytes) + "ends")) // the client may be gone
		case "/" + r.Method:
			_, _ = w.Write([]byte("all scopes are served")) // as above
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(server.Close)
	none := testport.Address(t)
	ask := func(h prerequisite.HTTP) prerequisite.Prerequisite {
		h.URL = server.URL + h.URL
		return prerequisite.Prerequisite{HTTP: &h}
	}
	at := server.Listener.Addr().String()
	s := systemsOf(t, outbound.Policy{PlainHTTP: true}, Hosts{Asked: []string{none}, Bodies: []string{at}})
	for name, tt := range map[string]struct {
		of   prerequisite.Prerequisite
		want prerequisite.Reason
		says string
	}{
		"a port that is open":            {tcpTo(t, at), prerequisite.Met, at + " takes connections"},
		"a port that is closed":          {tcpTo(t, none), prerequisite.NoAnswer, none + ": connection refused"},
		"an address that is not allowed": {tcpTo(t, "127.0.0.1:1"), prerequisite.Denied, "127.0.0.1:1 may not be asked: "},
		"the metadata service":           {tcpTo(t, "169.254.169.254:80"), prerequisite.Denied, "169.254.169.254:80 may not be asked: "},
		"an answer":                      {ask(prerequisite.HTTP{URL: "/GET"}), prerequisite.Met, server.URL + "/GET answers with 200"},
		"an answer to HEAD":              {ask(prerequisite.HTTP{URL: "/HEAD", Method: "HEAD"}), prerequisite.Met, server.URL + "/HEAD answers with 200"},
		"another status":                 {ask(prerequisite.HTTP{URL: "/gone"}), prerequisite.NoAnswer, server.URL + "/gone answers with 410, and must answer with 200"},
		"the status that is asked for":   {ask(prerequisite.HTTP{URL: "/gone", Status: 410}), prerequisite.Met, server.URL + "/gone answers with 410"},
		"a redirect is an answer":        {ask(prerequisite.HTTP{URL: "/elsewhere", Status: 302}), prerequisite.Met, server.URL + "/elsewhere answers with 302"},
		"a text in the answer":           {ask(prerequisite.HTTP{URL: "/GET", BodyContains: "scopes are"}), prerequisite.Met, "contains"},
		"no such text in the answer":     {ask(prerequisite.HTTP{URL: "/GET", BodyContains: "none"}), prerequisite.Different, "does not contain"},
		"a large answer":                 {ask(prerequisite.HTTP{URL: "/large", BodyContains: "begins"}), prerequisite.Met, "contains"},
		"a text behind the first MiB":    {ask(prerequisite.HTTP{URL: "/large", BodyContains: "ends"}), prerequisite.Different, "does not contain"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := s.Ask(t.Context(), tt.of); got.Reason != tt.want || !strings.Contains(got.Message, tt.says) {
				t.Errorf("Ask() = %+v, want %s with %q", got, tt.want, tt.says)
			}
		})
	}
	strict := systemsOf(t, outbound.Policy{}, Hosts{Asked: []string{at}})
	if got := strict.Ask(t.Context(), ask(prerequisite.HTTP{URL: "/GET"})); got.Reason != prerequisite.Denied || !strings.Contains(got.Message, "--allow-plain-http") {
		t.Errorf("without encryption Ask() = %+v, want to be refused, with the way out", got)
	}
}

// names resolve to one address each.
type names map[string]string

func (n names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	a, err := netip.ParseAddr(n[host])
	return []netip.Addr{a}, err
}

// What is in a private network is not asked unless the operator lists it, however it is
// named. Where a name leads is not told.
func TestPrivateSystemsAreListed(t *testing.T) {
	s := systemsOf(t, outbound.Policy{PlainHTTP: true, Resolver: names{"pve.example.com": "10.20.0.7"}}, Hosts{})
	for _, tt := range []struct {
		of   prerequisite.Prerequisite
		flag string
	}{
		{tcpTo(t, "10.20.0.7:8006"), "--prerequisite-host 10.20.0.7:8006"},
		{tcpTo(t, "192.168.1.1:22"), "--prerequisite-host 192.168.1.1:22"},
		{tcpTo(t, "[fd12:3456::1]:22"), "--prerequisite-host [fd12:3456::1]:22"},
		{tcpTo(t, "[::ffff:10.20.0.7]:8006"), "--prerequisite-host [::ffff:10.20.0.7]:8006"},
		{tcpTo(t, "pve.example.com:8006"), "--prerequisite-host pve.example.com:8006"},
		{prerequisite.Prerequisite{HTTP: &prerequisite.HTTP{URL: "https://pve.example.com/health"}}, "--prerequisite-host pve.example.com:443"},
		{prerequisite.Prerequisite{HTTP: &prerequisite.HTTP{URL: "http://pve.example.com/", BodyContains: "a"}}, "--prerequisite-body-host pve.example.com:80"},
	} {
		got := s.Ask(t.Context(), tt.of)
		if got.Reason != prerequisite.Denied || !strings.Contains(got.Message, "in a private network") || !strings.HasSuffix(got.Message, tt.flag) {
			t.Errorf("Ask() = %+v, want to be refused, and %s", got, tt.flag)
		}
		if named := tt.of.TCP == nil || tt.of.TCP.Host == "pve.example.com"; named && strings.Contains(got.Message, "10.20.0.7") {
			t.Errorf("Ask() = %+v, which tells the address of a name", got)
		}
	}
}

// An author of a stack could find out what a private answer holds, a letter at a time. It is
// searched only where the operator says so, and not because it may be asked.
func TestAnswersThatAreNotSearched(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		_, _ = w.Write([]byte("password=swordfish")) // the client may be gone
	}))
	t.Cleanup(server.Close)
	at := server.Listener.Addr().String()
	search := func(text string) prerequisite.Prerequisite {
		return prerequisite.Prerequisite{HTTP: &prerequisite.HTTP{URL: server.URL, BodyContains: text}}
	}
	listed := systemsOf(t, outbound.Policy{PlainHTTP: true}, Hosts{Asked: []string{at}})
	right, wrong := listed.Ask(t.Context(), search("password=s")), listed.Ask(t.Context(), search("password=t"))
	if right != wrong || right.Reason != prerequisite.Denied || !strings.Contains(right.Message, "--prerequisite-body-host "+at) || asked > 0 {
		t.Errorf("Ask() = %+v of a text that is there, and %+v of one that is not, after %d requests; want both refused alike, without a request", right, wrong, asked)
	}
	if got := listed.Ask(t.Context(), prerequisite.Prerequisite{HTTP: &prerequisite.HTTP{URL: server.URL}}); !got.OK() {
		t.Errorf("without a text Ask() = %+v, want the status", got)
	}
	bodies := systemsOf(t, outbound.Policy{PlainHTTP: true}, Hosts{Bodies: []string{at}})
	if got := bodies.Ask(t.Context(), search("password=s")); !got.OK() {
		t.Errorf("where the operator allows it Ask() = %+v, want the text found", got)
	}
}

// A mistake in a list is said with its flag.
func TestHostsThatCannotBeRead(t *testing.T) {
	for flag, h := range map[string]Hosts{
		"--prerequisite-host":      {Asked: []string{"pve.example.com"}},
		"--prerequisite-body-host": {Bodies: []string{"10.0.0.0/99"}},
	} {
		if _, err := NewSystems(outbound.Policy{}, h); err == nil || !strings.HasPrefix(err.Error(), flag+": ") {
			t.Errorf("NewSystems() = %v, want the flag %s", err, flag)
		}
	}
}
