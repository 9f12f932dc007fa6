package outbound

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/secret"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server counts what reaches it, and what of that carries credentials.
type server struct {
	*httptest.Server
	hits, secrets atomic.Int32
}

func serve(t *testing.T, handle http.HandlerFunc) *server {
	t.Helper()
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.hits.Add(1)
		for _, values := range r.Header {
			if strings.Contains(strings.Join(values, " "), "canary") {
				s.secrets.Add(1)
			}
		}
		if user, password, ok := r.BasicAuth(); ok && user+password != "" {
			s.secrets.Add(1)
		}
		if handle != nil {
			handle(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) hostPort() string { return strings.TrimPrefix(s.URL, "http://") }

func (s *server) port() string { _, port, _ := net.SplitHostPort(s.hostPort()); return port }

// names is a resolver made of a table; each lookup takes the next answer of its name
// and stays at the last.
type names map[string][]string

func (n names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	answers := n[host]
	if len(answers) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	if len(answers) > 1 {
		n[host] = answers[1:]
	}
	return []netip.Addr{netip.MustParseAddr(answers[0])}, nil
}

// client returns an http.Client that may speak http.
func client(t *testing.T, p Policy, o Options) *http.Client {
	t.Helper()
	c := New(p)
	t.Cleanup(c.Close)
	o.PlainHTTP = true
	h, err := c.HTTP(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.CloseIdleConnections)
	return h
}

func allow(t *testing.T, entries ...string) Allow {
	t.Helper()
	a, err := ParseAllow(entries...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// get fetches target and returns its body.
func get(h *http.Client, target string) (string, error) {
	resp, err := h.Get(target)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", resp.StatusCode)
	}
	return string(body), err
}

func TestNothingLeadsToThisMachine(t *testing.T) {
	target := serve(t, nil)
	resolver := names{
		"loopback.example": {"127.0.0.1"},
		"mapped.example":   {"::ffff:127.0.0.1"},
		"zero.example":     {"0.0.0.0"},
		"metadata.example": {"169.254.169.254"},
		// What a C library makes of numbers that are no dotted quad.
		"2130706433": {"127.0.0.1"}, "0177.0.0.1": {"127.0.0.1"}, "0x7f000001": {"127.0.0.1"}, "127.1": {"127.0.0.1"},
		"localhost": {"127.0.0.1"},
	}
	h := client(t, Policy{Resolver: resolver}, Options{})
	for _, host := range []string{
		"127.0.0.1", "127.1", "2130706433", "0177.0.0.1", "0x7f000001", "0.0.0.0", "[::1]", "[::]",
		"[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "169.254.169.254", "[fd00:ec2::254]",
		"localhost", "loopback.example", "LOOPBACK.example.", "mapped.example", "zero.example", "metadata.example",
	} {
		resolver["LOOPBACK.example."] = []string{"127.0.0.1"}
		_, err := get(h, "http://"+host+":"+target.port()+"/")
		if got := fault.Of(err); got != fault.Denied {
			t.Errorf("get(%s) = %v, of kind %q, want Denied", host, err, got)
		}
	}
	if got := target.hits.Load(); got != 0 {
		t.Errorf("%d requests arrived, want 0", got)
	}
}

func TestOwnAddressesAreDenied(t *testing.T) {
	own, err := ownAddresses()
	if err != nil {
		t.Fatal(err)
	}
	h := client(t, Policy{}, Options{})
	for _, p := range own {
		_, err := get(h, "http://"+net.JoinHostPort(p.Addr().String(), "1")+"/")
		if got := fault.Of(err); got != fault.Denied {
			t.Errorf("get(%v) = %v, of kind %q, want Denied", p.Addr(), err, got)
		}
	}
}

func TestRebindingGainsNothing(t *testing.T) {
	// 127.0.0.2 stands for a public address: the operator allows it here.
	inner := serve(t, nil)
	listener, err := net.Listen("tcp", "127.0.0.2:"+inner.port())
	if err != nil {
		t.Fatal(err)
	}
	public := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		io.WriteString(w, "public")
	})}
	go public.Serve(listener)
	t.Cleanup(func() { public.Close() })

	resolver := names{"rebinding.example": {"127.0.0.2", "127.0.0.1"}}
	h := client(t, Policy{Resolver: resolver, Allow: allow(t, "127.0.0.2")}, Options{})
	if got, err := get(h, "http://rebinding.example:"+inner.port()+"/"); err != nil || got != "public" {
		t.Fatalf("get() = %q, %v, want the public page", got, err)
	}
	if _, err := get(h, "http://rebinding.example:"+inner.port()+"/"); fault.Of(err) != fault.Denied {
		t.Errorf("get() after rebinding = %v, want Denied", err)
	}
	if got := inner.hits.Load(); got != 0 {
		t.Errorf("%d requests arrived, want 0", got)
	}
}

func TestRedirectChainToThisMachine(t *testing.T) {
	inner := serve(t, nil)
	second := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://127.0.0.1:"+inner.port()+"/latest/meta-data", http.StatusFound)
	})
	first := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, second.URL, http.StatusFound)
	})
	h := client(t, Policy{Allow: allow(t, first.hostPort(), second.hostPort())}, Options{})
	if _, err := get(h, first.URL); fault.Of(err) != fault.Denied {
		t.Errorf("get() = %v, want Denied", err)
	}
	if got := inner.hits.Load(); got != 0 {
		t.Errorf("%d requests arrived, want 0", got)
	}
}

func TestAllowListNamesOnePort(t *testing.T) {
	yes, no := serve(t, nil), serve(t, nil)
	h := client(t, Policy{Allow: allow(t, yes.hostPort())}, Options{})
	if _, err := get(h, yes.URL); err != nil {
		t.Errorf("get() of the listed port: %v", err)
	}
	if _, err := get(h, no.URL); fault.Of(err) != fault.Denied {
		t.Errorf("get() of another port = %v, want Denied", err)
	}
}

func TestCredentialsStayAtTheirOrigin(t *testing.T) {
	for name, creds := range map[string]Credentials{
		"basic":  {User: "u", Password: secret.New("canary")},
		"bearer": {Bearer: secret.New("canary")},
	} {
		t.Run(name, func(t *testing.T) {
			other := serve(t, nil)
			var home *server
			home = serve(t, func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/away":
					http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
				case "/near":
					http.Redirect(w, r, home.URL+"/here", http.StatusFound)
				}
			})
			creds.Origin, _ = url.Parse(home.URL)
			h := client(t, Policy{Allow: allow(t, "127.0.0.0/8")}, Options{Credentials: creds})

			if _, err := get(h, home.URL+"/near"); err != nil {
				t.Fatal(err)
			}
			if got := home.secrets.Load(); got != 2 {
				t.Errorf("the origin got credentials %d times, want at both requests", got)
			}
			req, _ := http.NewRequest(http.MethodGet, home.URL+"/away", nil)
			req.Header.Set("Private-Token", "canary")
			req.Header.Set("Cookie", "session=canary")
			resp, err := h.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if _, err := get(h, other.URL); err != nil {
				t.Fatal(err)
			}
			if hits, secrets := other.hits.Load(), other.secrets.Load(); hits != 2 || secrets != 0 {
				t.Errorf("the other origin got %d requests and %d secrets, want 2 and 0", hits, secrets)
			}
		})
	}
}

func TestComingBackDoesNotBringCredentials(t *testing.T) {
	var home *server
	other := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, home.URL+"/chosen-by-the-other", http.StatusFound)
	})
	home = serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			http.Redirect(w, r, other.URL, http.StatusFound)
		}
	})
	at, _ := url.Parse(home.URL)
	h := client(t, Policy{Allow: allow(t, "127.0.0.0/8")}, Options{Credentials: Credentials{Origin: at, Bearer: secret.New("canary")}})
	if _, err := get(h, home.URL+"/"); err != nil {
		t.Fatal(err)
	}
	if hits, secrets := home.hits.Load(), home.secrets.Load(); hits != 2 || secrets != 1 {
		t.Errorf("home got %d requests, %d with credentials, want 2 and 1", hits, secrets)
	}
}

// A client certificate is shown to the origin of the credentials alone, and
// follows no redirect to another origin, nor on the way back from there.
func TestCertificatesStayAtTheirOrigin(t *testing.T) {
	var mu sync.Mutex
	var got []string
	serveTLS := func(name string, to func(path string) string) *httptest.Server {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, fmt.Sprintf("%s%s: %d", name, r.URL.Path, len(r.TLS.PeerCertificates)))
			if target := to(r.URL.Path); target != "" {
				http.Redirect(w, r, target, http.StatusFound)
			}
		}))
		s.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert}
		s.StartTLS()
		t.Cleanup(s.Close)
		return s
	}
	var home, other *httptest.Server
	home = serveTLS("home", func(path string) string {
		return map[string]string{"/near": home.URL + "/here", "/away": other.URL + "/back"}[path]
	})
	other = serveTLS("other", func(path string) string {
		return map[string]string{"/back": home.URL + "/again"}[path]
	})
	pair := home.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(home.URL)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{
		CA: pemOf(home.Certificate().Raw), Cert: pemOf(pair.Certificate[0]),
		Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
	}
	for direct, bound := range map[string]*url.URL{"other/direct: 0": at, "other/direct: 1": nil} {
		got, o.Credentials.Origin = nil, bound
		h := client(t, Policy{Allow: allow(t, "127.0.0.0/8")}, o)
		for _, address := range []string{home.URL + "/near", home.URL + "/away", other.URL + "/direct"} {
			if _, err := get(h, address); err != nil {
				t.Fatal(err)
			}
		}
		want := []string{"home/near: 1", "home/here: 1", "home/away: 1", "other/back: 0", "home/again: 0", direct}
		if !slices.Equal(got, want) {
			t.Errorf("with the origin %v client certificates are shown: %q, want %q", bound, got, want)
		}
	}
}

func TestBodiesAreNotSentOn(t *testing.T) {
	other := serve(t, nil)
	home := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	})
	h := client(t, Policy{Allow: allow(t, "127.0.0.0/8")}, Options{})
	_, err := h.Post(home.URL, "text/plain", strings.NewReader("canary"))
	if fault.Reason(err, "") != ReasonRedirect {
		t.Errorf("Post() = %v, want it to be denied", err)
	}
	if got := other.hits.Load(); got != 0 {
		t.Errorf("%d requests arrived, want 0", got)
	}
}

func TestSchemes(t *testing.T) {
	plain := serve(t, nil)
	encrypted := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/down" {
			http.Redirect(w, r, plain.URL, http.StatusFound)
		}
	}))
	t.Cleanup(encrypted.Close)
	pem := pemOf(encrypted.Certificate().Raw)
	c := New(Policy{Allow: allow(t, "127.0.0.0/8")})
	t.Cleanup(c.Close)

	for name, tt := range map[string]struct {
		options Options
		url     string
		reason  string // "" means success
	}{
		"https with the server's authority":       {Options{CA: pem}, encrypted.URL, ""},
		"http where it is not allowed":            {Options{}, plain.URL, ReasonInsecure},
		"a redirect to http where that is denied": {Options{CA: pem}, encrypted.URL + "/down", ReasonInsecure},
		"a redirect to http where http is fine":   {Options{CA: pem, PlainHTTP: true}, encrypted.URL + "/down", ReasonRedirect},
		"file":                                    {Options{PlainHTTP: true}, "file:///etc/passwd", ReasonInsecure},
		"credentials in the URL":                  {Options{PlainHTTP: true}, strings.Replace(plain.URL, "//", "//u:p@", 1), ReasonInsecure},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := c.HTTP(tt.options)
			if err != nil {
				t.Fatal(err)
			}
			defer h.CloseIdleConnections()
			if _, err = get(h, tt.url); fault.Reason(err, "") != tt.reason || (err == nil) != (tt.reason == "") {
				t.Errorf("get() = %v, want reason %q", err, tt.reason)
			}
		})
	}
	if got := plain.hits.Load(); got != 0 {
		t.Errorf("%d requests arrived unencrypted, want 0", got)
	}
	h, err := c.HTTP(Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := get(h, encrypted.URL); err == nil {
		t.Error("a certificate of an unknown authority is accepted")
	}
}

func TestAnswersAreBounded(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body := strings.Repeat("x", 101)
		if r.URL.Path == "/stream" {
			io.WriteString(w, body[:50])
			w.(http.Flusher).Flush()
			body = body[50:]
		}
		io.WriteString(w, body)
	})
	h := client(t, Policy{Allow: allow(t, "127.0.0.0/8")}, Options{MaxBytes: 100})
	for _, path := range []string{"/declared", "/stream"} {
		if _, err := get(h, s.URL+path); fault.Reason(err, "") != ReasonTooLarge {
			t.Errorf("get(%s) = %v, want it refused as too large", path, err)
		}
	}
}

func TestRequestsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Policy{Timeout: time.Minute})
		mute, _ := net.Pipe() // never answers
		c.shared.DialContext = func(context.Context, string, string) (net.Conn, error) { return mute, nil }
		h, err := c.HTTP(Options{PlainHTTP: true})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if _, err := get(h, "http://mute.example/"); !errors.Is(err, context.DeadlineExceeded) && !errors.As(err, new(net.Error)) {
			t.Errorf("get() = %v, want a timeout", err)
		}
		if took := time.Since(start); took > time.Minute {
			t.Errorf("get() took %v, want at most a minute", took)
		}
	})
}

func TestInvalidTLS(t *testing.T) {
	for name, o := range map[string]Options{
		"no certificate in the authority": {CA: []byte("nothing")},
		"a certificate without its key":   {Cert: []byte("x")},
	} {
		if _, err := New(Policy{}).HTTP(o); fault.Of(err) != fault.Invalid {
			t.Errorf("%s: HTTP() = %v, want an Invalid fault", name, err)
		}
	}
}
