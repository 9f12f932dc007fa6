package peers

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/shard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const name = "terrier.test"

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return authority{c, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

func (a authority) sign(t *testing.T, host string) tls.Certificate {
	t.Helper()
	c := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{host}}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.key}
}

// replica is one of them, with what it serves beside calls.
type replica struct {
	*Peers
	member shard.Member
	server *httptest.Server
}

type settings struct {
	ca   authority
	key  string
	host string
	next http.HandlerFunc

	alive time.Duration
}

func start(t *testing.T, id string, s settings) *replica {
	t.Helper()
	r := &replica{member: shard.Member{ID: id}}
	var err error
	r.Peers, err = New(Config{Me: func() shard.Member { return r.member }, Key: []byte(strings.Repeat(s.key+"k", 32)), CA: s.ca.pem, ServerName: name, alive: s.alive})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(Prefix, r.Handler())
	if s.next != nil {
		mux.Handle("/", s.next)
	}
	if s.host == "" {
		s.host = name
	}
	r.server = httptest.NewUnstartedServer(r.Receive(mux))
	r.server.EnableHTTP2 = true
	r.server.TLS = &tls.Config{Certificates: []tls.Certificate{s.ca.sign(t, s.host)}}
	r.server.StartTLS()
	r.member.URL = r.server.URL
	t.Cleanup(func() { r.Close(); r.server.Close() })
	return r
}

type greeting struct{ Text string }

// A call arrives, and so does its answer; errors keep their kind, reason and time.
func TestCall(t *testing.T) {
	ca := newAuthority(t)
	a, b := start(t, "a", settings{ca: ca}), start(t, "b", settings{ca: ca})
	b.Handle("greet", func(_ context.Context, in json.RawMessage) (any, error) {
		var g greeting
		if err := json.Unmarshal(in, &g); err != nil {
			return nil, err
		}
		return greeting{g.Text + ", too"}, nil
	})
	b.Handle("wait", func(context.Context, json.RawMessage) (any, error) {
		return nil, fault.Wait(7*time.Second, "Full", errors.New("there is no slot"))
	})
	b.Handle("break", func(context.Context, json.RawMessage) (any, error) { return nil, errors.New("a bug") })
	var got greeting
	if err := a.Call(t.Context(), b.member, "greet", greeting{"hello"}, &got); err != nil || got.Text != "hello, too" {
		t.Errorf("Call() = %q, %v", got.Text, err)
	}
	err := a.Call(t.Context(), b.member, "wait", nil, nil)
	if f, ok := errors.AsType[*fault.Fault](err); !ok || f.Kind != fault.Later || f.Reason != "Full" || f.After != 7*time.Second || f.Error() != "there is no slot" {
		t.Errorf("Call() = %#v, want the same fault", err)
	}
	if err := a.Call(t.Context(), b.member, "break", nil, nil); fault.Of(err) != fault.Broken || err.Error() != "a bug" {
		t.Errorf("Call() = %v, want it broken", err)
	}
	if err := a.Call(t.Context(), b.member, "future", nil, nil); fault.Of(err) != fault.Later || fault.Reason(err, "") != ReasonUnknown {
		t.Errorf("an unknown call = %v, want Later: the replica is of another version", err)
	}
	moved := b.member
	moved.ID = "earlier"
	if err := a.Call(t.Context(), moved, "greet", greeting{"hello"}, nil); fault.Of(err) != fault.Later || fault.Reason(err, "") != ReasonMoved {
		t.Errorf("a call for an earlier member at the same address = %v, want Later", err)
	}
}

// What is too large is neither sent nor read.
func TestCallIsBounded(t *testing.T) {
	ca := newAuthority(t)
	a, b := start(t, "a", settings{ca: ca}), start(t, "b", settings{ca: ca})
	large := strings.Repeat("x", MaxMessage)
	b.Handle("flood", func(context.Context, json.RawMessage) (any, error) { return large, nil })
	if err := a.Call(t.Context(), b.member, "flood", large, nil); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("a large call = %v, want it refused before it is sent", err)
	}
	var got string
	if err := a.Call(t.Context(), b.member, "flood", nil, &got); err == nil || got != "" {
		t.Errorf("a large answer = %v with %d bytes, want an error", err, len(got))
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.member.URL+Prefix+"flood", strings.NewReader(`"`+large+`"`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+a.token)
	req.Header.Set(headerTo, "b")
	resp, err := a.forwards.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("a large call of another program has status %d, want 422", resp.StatusCode)
	}
}

// Only replicas of the installation call, and only them are called.
func TestStrangers(t *testing.T) {
	ca := newAuthority(t)
	b := start(t, "b", settings{ca: ca})
	b.Handle("greet", func(context.Context, json.RawMessage) (any, error) { return "hello", nil })

	other := start(t, "a", settings{ca: ca, key: "other"})
	if err := other.Call(t.Context(), b.member, "greet", nil, nil); fault.Of(err) != fault.Denied {
		t.Errorf("a call with another key = %v, want Denied", err)
	}
	client := *b.server.Client()
	client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool(ca), ServerName: name}}
	defer client.CloseIdleConnections()
	for _, path := range []string{"greet", "future", ""} {
		resp, err := client.Post(b.member.URL+Prefix+path, "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusForbidden || strings.Contains(string(text), path+"\"") && path != "" {
			t.Errorf("a call of %q without a token has status %d and says %s, %v", path, resp.StatusCode, text, err)
		}
	}

	a := start(t, "a", settings{ca: ca})
	for why, s := range map[string]settings{"another authority": {ca: newAuthority(t)}, "another name": {ca: ca, host: "else.test"}} {
		called := false
		fake := start(t, "b", settings{ca: s.ca, host: s.host, next: func(http.ResponseWriter, *http.Request) { called = true }})
		if err := a.Call(t.Context(), fake.member, "greet", nil, nil); fault.Of(err) != fault.Later || called {
			t.Errorf("%s: Call() = %v, called %v", why, err, called)
		}
	}
}

func pool(ca authority) *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(ca.cert)
	return p
}

// A replica that is gone, or that answers nothing, is an error in a bounded time: of the
// caller, or of the connection.
func TestDeadPeer(t *testing.T) {
	ca := newAuthority(t)
	a := start(t, "a", settings{ca: ca})
	gone := start(t, "gone", settings{ca: ca})
	gone.server.Close()
	if err := a.Call(t.Context(), gone.member, "greet", nil, nil); fault.Of(err) != fault.Later || fault.Reason(err, "") != ReasonUnreachable {
		t.Errorf("Call() = %v, want Later", err)
	}
	rec := httptest.NewRecorder()
	a.Forward(gone.member).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/stacks", nil))
	if rec.Code != http.StatusServiceUnavailable || rec.Header().Get("Retry-After") == "" {
		t.Errorf("Forward() = %d %v, want 503 with Retry-After", rec.Code, rec.Header())
	}

	// The kernel of a stopped process accepts connections, and nothing reads them.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	stopped := shard.Member{ID: "stopped", URL: "https://" + l.Addr().String()}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := a.Call(ctx, stopped, "greet", nil, nil); fault.Of(err) != fault.Later || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Call() = %v, want Later at the caller's deadline", err)
	}
}

// A connection that goes silent while an answer streams is given up, although the other
// side never closes it.
func TestSilentPeer(t *testing.T) {
	ca := newAuthority(t)
	b := start(t, "b", settings{ca: ca, next: func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "first")
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}})
	// A relay that stops to pass anything on stands for a node that lost its network.
	silent := make(chan struct{})
	relay := relayTo(t, strings.TrimPrefix(b.server.URL, "https://"), silent)
	a := start(t, "a", settings{ca: ca, alive: 2 * time.Second})
	front := httptest.NewServer(a.Forward(shard.Member{ID: "b", URL: "https://" + relay}))
	defer front.Close()
	resp, err := http.Get(front.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	first := make([]byte, 5)
	if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != "first" {
		t.Fatalf("the answer begins with %q, %v", first, err)
	}
	close(silent)
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("the answer looks complete")
	}
}

// relayTo passes bytes on to an address until silent is closed.
func relayTo(t *testing.T, to string, silent <-chan struct{}) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	pass := func(dst, src net.Conn) {
		buf := make([]byte, 32<<10)
		for {
			n, err := src.Read(buf)
			if err != nil {
				return
			}
			select {
			case <-silent:
				continue
			default:
			}
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
	}
	work.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				return
			}
			mu.Lock()
			open = append(open, in, out)
			mu.Unlock()
			work.Go(func() { pass(out, in) })
			work.Go(func() { pass(in, out) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range open {
			c.Close()
		}
		mu.Unlock()
		work.Wait()
	})
	return l.Addr().String()
}

// A forwarded request is the one of its client: host, method, address, headers, query and
// body; so is its answer. It is forwarded once.
func TestForward(t *testing.T) {
	ca := newAuthority(t)
	var from *replica
	b := start(t, "b", settings{ca: ca, next: func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/again" {
			from.Forward(from.member).ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		var seen bytes.Buffer
		fmt.Fprintln(&seen, r.Method, r.Host, r.URL.RequestURI(), r.RemoteAddr, r.UserAgent(), r.Header.Get("Cookie"), r.Header.Get("X-Forwarded-For"), string(body), Forwarded(r.Context()))
		for h := range r.Header {
			if strings.HasPrefix(h, "Terrier-Replica") {
				fmt.Fprintln(&seen, h)
			}
		}
		w.Header().Set("Set-Cookie", "x=y")
		w.WriteHeader(http.StatusTeapot)
		w.Write(seen.Bytes())
	}})
	from = b
	var client string
	a := start(t, "a", settings{ca: ca, next: func(w http.ResponseWriter, r *http.Request) {
		client = r.RemoteAddr
		from.Forward(b.member).ServeHTTP(w, r)
	}})
	from = a
	outsider := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool(ca), ServerName: name}}}
	defer outsider.CloseIdleConnections()
	send := func(path string) (*http.Response, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, a.member.URL+path, strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "terrier.example:1234"
		req.Header.Set("User-Agent", "terrier/1")
		req.Header.Set("Cookie", "s=1")
		req.Header.Set(headerHop, "guess")
		req.Header.Set(headerClient, "9.9.9.9:9")
		resp, err := outsider.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(text)
	}
	resp, text := send("/a%2Fb?x=1;y&z=%zz")
	want := fmt.Sprintln("PUT terrier.example:1234 /a%2Fb?x=1;y&z=%zz", client, "terrier/1 s=1  body true")
	if text != want || resp.StatusCode != http.StatusTeapot || resp.Header.Get("Set-Cookie") != "x=y" {
		t.Errorf("the other replica sees\n%s and answers %d %v, want\n%s", text, resp.StatusCode, resp.Header, want)
	}
	if resp, text := send("/again"); resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("a second forward answers %d %q, want 503 with Retry-After", resp.StatusCode, text)
	}
}

// An answer arrives as it is written, and its writer learns that the reader is gone.
func TestForwardStreams(t *testing.T) {
	ca := newAuthority(t)
	lines, ended := make(chan string), make(chan struct{})
	b := start(t, "b", settings{ca: ca, next: func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		w.Header().Set("Content-Type", "text/plain")
		for {
			select {
			case line := <-lines:
				io.WriteString(w, line)
				http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}})
	a := start(t, "a", settings{ca: ca})
	front := httptest.NewServer(a.Forward(b.member))
	defer front.Close()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, front.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() { lines <- "one\n" }()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	buf := make([]byte, 4)
	for _, want := range []string{"one\n", "two\n"} {
		if want != "one\n" {
			lines <- want
		}
		if _, err := io.ReadFull(resp.Body, buf); err != nil || string(buf) != want {
			t.Fatalf("read %q, %v, want %q", buf, err, want)
		}
	}
	cancel()
	<-ended
}

// An answer that breaks off does not look complete.
func TestForwardOfAnAnswerThatBreaksOff(t *testing.T) {
	ca := newAuthority(t)
	b := start(t, "b", settings{ca: ca, next: func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "half")
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}})
	a := start(t, "a", settings{ca: ca})
	front := httptest.NewServer(a.Forward(b.member))
	defer front.Close()
	resp, err := http.Get(front.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("the answer %q looks complete", text)
	}
}

func TestNewRefuses(t *testing.T) {
	ca := newAuthority(t)
	me := func() shard.Member { return shard.Member{} }
	for why, c := range map[string]Config{
		"no key":         {Me: me, CA: ca.pem, ServerName: name},
		"no authority":   {Me: me, Key: make([]byte, 32), ServerName: name},
		"no server name": {Me: me, Key: make([]byte, 32), CA: ca.pem},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%s: New() succeeds", why)
		}
	}
}

// A request that is forwarded to a replica is not answered by the one that came to its
// address, as after a restart of its container.
func TestForwardToAnAddressWithANewOwner(t *testing.T) {
	ca := newAuthority(t)
	served := 0
	b := start(t, "b", settings{ca: ca, next: func(w http.ResponseWriter, r *http.Request) {
		served++
		fmt.Fprint(w, "served", r.Header.Get(headerTo))
	}})
	a := start(t, "a", settings{ca: ca})
	for id, want := range map[string]string{"b": "served", "former": ""} {
		var refused error
		w := httptest.NewRecorder()
		a.Send(shard.Member{ID: id, URL: b.member.URL}, w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/stacks", nil), func(err error) { refused = err })
		if got := w.Body.String(); got != want || (fault.Of(refused) == fault.Later) != (want == "") {
			t.Errorf("the request for %s is answered %q, %v, want %q", id, got, refused, want)
		}
	}
	if served != 1 {
		t.Errorf("%d requests were served, want the one for b", served)
	}
}
