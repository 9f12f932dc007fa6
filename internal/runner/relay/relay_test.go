package relay_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/terrier-iac/terrier/internal/runner/relay"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "token-canary-4711"

// lab is a registry, and a relay in front of it.
type lab struct {
	*relay.Relay
	registry string // its address
	at       string // that of the relay

	mu   sync.Mutex
	seen []*http.Request
}

// newLab starts both. The registry answers with serve.
func newLab(t *testing.T, serve http.HandlerFunc) *lab {
	t.Helper()
	l := &lab{}
	certificate, authority := runnertest.Certificate(t, "127.0.0.1")
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		l.mu.Lock()
		l.seen = append(l.seen, q.Clone(t.Context()))
		l.mu.Unlock()
		serve(w, q)
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	l.registry = server.URL
	var err error
	l.Relay, err = relay.New(relay.Upstream{URL: server.URL, Authority: authority, Token: func() (string, error) { return token, nil }}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	l.listen(t, nil)
	return l
}

func (l *lab) listen(t *testing.T, state http.Handler) {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.at = listener.Addr().String()
	t.Cleanup(l.Serve(listener, state))
}

// requests are those that the registry has got.
func (l *lab) requests() []*http.Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]*http.Request(nil), l.seen...)
}

// client trusts what a run does.
func (l *lab) client(t *testing.T) *http.Client {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(l.Authority()) {
		t.Fatal("the authority is no certificate")
	}
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// get asks the relay.
func (l *lab) get(t *testing.T, path string, header ...string) (*http.Response, string) {
	t.Helper()
	return l.do(t, http.MethodGet, path, header...)
}

func (l *lab) do(t *testing.T, method, path string, header ...string) (*http.Response, string) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, "https://"+l.at+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		q.Header.Set(name, value)
	}
	resp, err := l.client(t).Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func (l *lab) bearer() string { return "Authorization: Bearer " + l.Secret() }

func document(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, text)
}

// The token of the run goes to the registry, and the secret of the relay does not (LQ-24).
func TestTheRegistrySeesTheTokenOfTheRun(t *testing.T) {
	l := newLab(t, func(w http.ResponseWriter, q *http.Request) { document(w, `{"versions":{}}`) })
	resp, body := l.get(t, "/v1/mirror/registry.opentofu.org/hashicorp/random/index.json?a=b", l.bearer(), "X-Terraform-Version: 1.12.6", "Cookie: c=d")
	if resp.StatusCode != http.StatusOK || body != `{"versions":{}}` || resp.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("the relay answered %d %q", resp.StatusCode, body)
	}
	q := l.requests()[0]
	got := []string{q.Method, q.URL.String(), q.Header.Get("Authorization"), q.Header.Get("X-Terraform-Version"), q.Header.Get("Cookie")}
	want := []string{"GET", "/v1/mirror/registry.opentofu.org/hashicorp/random/index.json?a=b", "Bearer " + token, "1.12.6", ""}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the registry was asked (-want +got):\n%s", diff)
	}
}

// Without the secret of this run nothing is asked in its name, also with that of another one.
func TestTheSecretOfAnotherRunIsRefused(t *testing.T) {
	l := newLab(t, func(w http.ResponseWriter, q *http.Request) { document(w, "{}") })
	other := newLab(t, nil)
	for name, header := range map[string]string{
		"none": "Accept: */*", "of another run": other.bearer(), "the token itself": "Authorization: Bearer " + token,
		"longer": l.bearer() + "0", "of another scheme": "Authorization: Basic " + l.Secret(),
	} {
		resp, body := l.get(t, "/v1/modules/team/network/aws/versions", header)
		if resp.StatusCode != http.StatusUnauthorized || !strings.Contains(body, "not the secret of this run") {
			t.Errorf("%s: the relay answered %d %s", name, resp.StatusCode, body)
		}
	}
	if got := l.requests(); len(got) > 0 {
		t.Errorf("the registry was asked for %s", got[0].URL)
	}
}

// What a program of a run keeps of its secret is worth nothing after the run: nothing listens
// there, and the relay of the next run has another secret.
func TestTheSecretDiesWithTheRun(t *testing.T) {
	answers := func(w http.ResponseWriter, q *http.Request) { document(w, "{}") }
	l := newLab(t, answers)
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stop := l.Serve(listener, nil)
	l.at = listener.Addr().String()
	kept, client := l.bearer(), l.client(t)
	if resp, body := l.get(t, "/v1/modules/team/network/aws/versions", kept); resp.StatusCode != http.StatusOK {
		stop()
		t.Fatalf("during the run the relay answered %d %s", resp.StatusCode, body)
	}
	stop()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+l.at+"/v1/modules/team/network/aws/versions", nil)
	if err != nil {
		t.Fatal(err)
	}
	name, value, _ := strings.Cut(kept, ": ")
	q.Header.Set(name, value)
	if resp, err := client.Do(q); err == nil {
		resp.Body.Close()
		t.Errorf("after the run the relay answered %s", resp.Status)
	}
	next := newLab(t, answers)
	if resp, _ := next.get(t, "/v1/modules/team/network/aws/versions", kept); resp.StatusCode != http.StatusUnauthorized || len(next.requests()) > 0 {
		t.Errorf("the relay of the next run answered %d, and asked %d times", resp.StatusCode, len(next.requests()))
	}
}

// A run reads the protocols, and nothing else of the server behind the registry.
func TestOnlyReadsOfTheProtocolsPass(t *testing.T) {
	l := newLab(t, func(w http.ResponseWriter, q *http.Request) { document(w, "{}") })
	for _, tt := range []struct {
		method, path string
		status       int
	}{
		{http.MethodPut, "/v1/modules/team/network/aws/1.0.0", http.StatusMethodNotAllowed},
		{http.MethodPost, "/v1/modules/team/network/aws/1.0.0/retract", http.StatusMethodNotAllowed},
		{http.MethodDelete, "/v1/providers/team/signing-keys/a", http.StatusMethodNotAllowed},
		{http.MethodGet, "/api/v1/stacks", http.StatusNotFound},
		{http.MethodGet, "/v1/modules/%2e%2e/%2e%2e/api/v1/stacks", http.StatusNotFound},
		{http.MethodGet, "/v1/archives/..%2f..%2fapi", http.StatusNotFound},
		{http.MethodGet, "/v1/", http.StatusNotFound},
	} {
		if resp, _ := l.do(t, tt.method, tt.path, l.bearer()); resp.StatusCode != tt.status {
			t.Errorf("%s %s: the relay answered %d, want %d", tt.method, tt.path, resp.StatusCode, tt.status)
		}
	}
	if got := l.requests(); len(got) > 0 {
		t.Errorf("the registry was asked for %s", got[0].URL)
	}
}

// Clients fetch packages without credentials: the signature of the address is enough, and the
// token of the run is not sent along (RG-10).
func TestPackagesNeedNoCredentials(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
	l := newLab(t, func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Etag", `"sum"`)
		http.ServeContent(w, q, "a.zip", time.Time{}, bytes.NewReader(content))
	})
	const at = "/v1/archives/mirror/a.zip?expires=1&signature=s"
	resp, body := l.get(t, at)
	if resp.StatusCode != http.StatusOK || body != string(content) || resp.ContentLength != int64(len(content)) || resp.Header.Get("Etag") != `"sum"` {
		t.Errorf("the package arrived as %d with %d bytes", resp.StatusCode, len(body))
	}
	resp, body = l.get(t, at, "Range: bytes=16-31", l.bearer())
	if resp.StatusCode != http.StatusPartialContent || body != "0123456789abcdef" || resp.Header.Get("Content-Range") == "" {
		t.Errorf("a range arrived as %d %q", resp.StatusCode, body)
	}
	if resp, body = l.do(t, http.MethodHead, at); resp.ContentLength != int64(len(content)) || body != "" {
		t.Errorf("HEAD says %d bytes", resp.ContentLength)
	}
	if got := l.requests()[0].Header.Get("Authorization"); got != "" {
		t.Errorf("the registry got %q with a signed address", got)
	}
}

// A package that the registry cuts off is no whole one for the client.
func TestAPackageThatIsCutOff(t *testing.T) {
	l := newLab(t, func(w http.ResponseWriter, q *http.Request) {
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, "half of it")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	resp, err := l.client(t).Get("https://" + l.at + "/v1/archives/a.zip")
	if err != nil {
		return // before the first byte
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("the client takes %q for the package", got)
	}
}

// Addresses of the registry lead through the relay, and all others stay.
func TestAddressesLeadThroughTheRelay(t *testing.T) {
	var l *lab
	l = newLab(t, func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("X-Terraform-Get", l.registry+"/v1/archives/a.tar.gz?archive=tar.gz")
		w.Header().Set("Etag", `"of other bytes"`)
		document(w, fmt.Sprintf(`{"location":"%[1]s/v1/archives/a.tar.gz","same":"/v1/archives/b","git":"git::https://example.com/m?x=%[1]s/y"}`, l.registry))
	})
	resp, body := l.get(t, "/v1/modules/team/network/aws/1.0.0/download", l.bearer())
	want := fmt.Sprintf(`{"location":"/v1/archives/a.tar.gz","same":"/v1/archives/b","git":"git::https://example.com/m?x=%s/y"}`, l.registry)
	if diff := cmp.Diff(want, body); diff != "" {
		t.Errorf("the document (-want +got):\n%s", diff)
	}
	if got := resp.Header.Get("X-Terraform-Get"); got != "/v1/archives/a.tar.gz?archive=tar.gz" {
		t.Errorf("X-Terraform-Get is %q", got)
	}
	if resp.Header.Get("Etag") != "" || resp.ContentLength != int64(len(body)) {
		t.Errorf("the headers are those of the other bytes: %v", resp.Header)
	}
}

// The mirror says the hashes of all platforms, and the relay remembers them.
func TestHashesOfAllPlatforms(t *testing.T) {
	l := newLab(t, func(w http.ResponseWriter, q *http.Request) {
		switch {
		case strings.HasSuffix(q.URL.Path, "/index.json"):
			document(w, `{"versions":{"1.0.0":{}}}`)
		case strings.HasSuffix(q.URL.Path, "/1.0.0.json"):
			document(w, `{"archives":{"linux_amd64":{"url":"/v1/archives/a","hashes":["zh:aa","h1:xx="]},"linux_arm64":{"url":"/v1/archives/b","hashes":["zh:bb","zh:aa"]}}}`)
		default:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"archives":{"linux_amd64":{"hashes":["zh:cc"]}}}`)
		}
	})
	for _, file := range []string{"index.json", "1.0.0.json", "2.0.0.json"} {
		l.get(t, "/v1/mirror/registry.opentofu.org/hashicorp/random/"+file, l.bearer())
	}
	want := map[relay.Package][]string{{Address: "registry.opentofu.org/hashicorp/random", Version: "1.0.0"}: {"h1:xx=", "zh:aa", "zh:bb"}}
	if diff := cmp.Diff(want, l.Hashes()); diff != "" {
		t.Errorf("Hashes() (-want +got):\n%s", diff)
	}
}

// What the registry says about a failure reaches the client and the supervisor.
func TestProblems(t *testing.T) {
	for name, tt := range map[string]struct {
		serve   http.HandlerFunc
		status  int
		message string // for the client
		problem string // for the supervisor; empty for none
		away    bool
	}{
		"refused":                        {refusing(http.StatusForbidden, `{"errors":["team-a may not read hashicorp/evil"]}`), http.StatusForbidden, "may not read", "may not read", false},
		"not allowed":                    {refusing(http.StatusUnauthorized, `{"errors":["the token expired"]}`), http.StatusUnauthorized, "expired", "expired", false},
		"broken":                         {refusing(http.StatusInternalServerError, "<html>"), http.StatusInternalServerError, "Internal Server Error", "500", false},
		"not verified":                   {refusing(http.StatusBadGateway, `{"errors":["the upstream has another release than the one that was verified first"]}`), http.StatusBadGateway, "verified first", "verified first", false},
		"a proxy that does not reach it": {refusing(http.StatusBadGateway, "<html>"), http.StatusBadGateway, "Bad Gateway", "502", true},
		"a refusal that is cut off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			refusing(http.StatusBadGateway, `{"errors":["the upstream`)(w, nil)
		}, http.StatusBadGateway, "not whole", "not whole", false},
		"waiting helps":     {refusing(http.StatusServiceUnavailable, `{"errors":["the upstream does not answer"]}`), http.StatusServiceUnavailable, "upstream", "upstream", true},
		"no answer in time": {refusing(http.StatusGatewayTimeout, ""), http.StatusGatewayTimeout, "Timeout", "504", true},
		"too many":          {refusing(http.StatusTooManyRequests, ""), http.StatusTooManyRequests, "Too Many", "429", true},
		"no such":           {refusing(http.StatusNotFound, `{"errors":["no such provider"]}`), http.StatusNotFound, "no such provider", "", false},
		"no address":        {refusing(http.StatusUnprocessableEntity, `{"errors":["a host cannot have a port"]}`), http.StatusUnprocessableEntity, "cannot have a port", "", false},
		"a redirect": {func(w http.ResponseWriter, q *http.Request) {
			http.Redirect(w, q, "https://example.com/", http.StatusFound)
		}, http.StatusBadGateway, "redirect", "redirect", false},
		"cut off": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, http.StatusBadGateway, "does not answer", "0", true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, tt.serve)
			resp, body := l.get(t, "/v1/mirror/a/b/c/index.json", l.bearer())
			if resp.StatusCode != tt.status || !strings.Contains(body, tt.message) || !strings.Contains(body, `"errors"`) {
				t.Errorf("the relay answered %d %s, want %d with %q", resp.StatusCode, body, tt.status, tt.message)
			}
			p := l.Problem()
			if (p != nil) != (tt.problem != "") {
				t.Fatalf("Problem() = %+v, want %q", p, tt.problem)
			}
			if p == nil {
				return
			}
			if text := fmt.Sprint(p.Status, p.Message); !strings.Contains(text, tt.problem) || p.Away() != tt.away || p.Path != "/v1/mirror/a/b/c/index.json" {
				t.Errorf("Problem() = %+v, Away() = %t", p, p.Away())
			}
			if strings.Contains(p.Message, token) || strings.Contains(p.Message, l.Secret()) {
				t.Errorf("the message has a secret: %s", p.Message)
			}
			l.Forget()
			if l.Problem() != nil {
				t.Error("Problem() is there after Forget()")
			}
		})
	}
}

// A run asks for several providers at once. That the registry is away for one of them does
// not make the run forget that it refuses another one.
func TestARefusalIsKept(t *testing.T) {
	const refused, away = "/v1/mirror/a/b/refused/index.json", "/v1/mirror/a/b/away/index.json"
	l := newLab(t, func(w http.ResponseWriter, q *http.Request) {
		status := http.StatusServiceUnavailable
		if q.URL.Path == refused {
			status = http.StatusForbidden
		}
		refusing(status, `{"errors":["why"]}`)(w, q)
	})
	for _, order := range [][]string{{refused, away}, {away, refused}, {away, refused, away}} {
		l.Forget()
		for _, path := range order {
			l.get(t, path, l.bearer())
		}
		if p := l.Problem(); p == nil || p.Path != refused || p.Away() {
			t.Errorf("after %q Problem() = %+v, want the refusal", order, p)
		}
	}
}

func refusing(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// The state of the run is served on the same listener, without TLS, as before.
func TestTheStateIsServedBesideIt(t *testing.T) {
	l := newLab(t, func(w http.ResponseWriter, q *http.Request) { document(w, "{}") })
	l.listen(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { _, _ = io.Copy(w, q.Body) }))
	resp, err := http.Post("http://"+l.at+"/state", "text/plain", strings.NewReader("a state"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != "a state" {
		t.Errorf("the state is %q, %v", got, err)
	}
	http.DefaultClient.CloseIdleConnections()
	if resp, _ := l.get(t, "/v1/modules/a/b/c/versions", l.bearer()); resp.StatusCode != http.StatusOK {
		t.Errorf("the registry answered %d", resp.StatusCode)
	}
}

// The authority of a run signs nothing but its own address.
func TestTheAuthorityIsForLoopbackAlone(t *testing.T) {
	l := newLab(t, nil)
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+strings.Replace(l.at, "127.0.0.1", "localhost", 1)+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := l.client(t).Do(q); err == nil {
		resp.Body.Close()
		t.Error("the certificate is valid for another name")
	}
	other := newLab(t, nil)
	l.at = other.at
	q.URL.Host = other.at
	_, err = l.client(t).Do(q)
	if _, unknown := errors.AsType[x509.UnknownAuthorityError](err); !unknown {
		t.Errorf("the relay of another run is trusted: %v", err)
	}
}

// A registry whose way would show the token is refused before it is asked.
func TestAddressesOfTheRegistry(t *testing.T) {
	for _, at := range []string{"", "registry.example.com", "http://registry.example.com", "ftp://127.0.0.1", "https://user@host", "https://host?x=y"} {
		if _, err := relay.New(relay.Upstream{URL: at}, time.Now()); err == nil {
			t.Errorf("New() takes %q", at)
		}
	}
	if _, err := relay.New(relay.Upstream{URL: "https://host", Authority: []byte("none")}, time.Now()); err == nil {
		t.Error("New() takes an authority that is no certificate")
	}
}

// What a relay costs a run, also one that installs nothing.
func BenchmarkNew(b *testing.B) {
	_, authority := runnertest.Certificate(b, "127.0.0.1")
	for b.Loop() {
		if _, err := relay.New(relay.Upstream{URL: "https://127.0.0.1:1", Authority: authority}, time.Now()); err != nil {
			b.Fatal(err)
		}
	}
}
