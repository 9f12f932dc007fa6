package web

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/secret"
)

// handClock is a clock that a test moves.
type handClock struct {
	mu  sync.Mutex
	now time.Time
}

func (h *handClock) Now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

func (h *handClock) pass(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now = h.now.Add(d)
}

// forgetful is an Auth of several users whose tokens can be revoked.
type forgetful struct {
	*roles
	mu    sync.Mutex
	known map[string]string // tokens, and who they are of
}

func (f *forgetful) Authenticate(_ context.Context, t secret.Text) (access.User, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if name, ok := f.known[t.Reveal()]; ok {
		return access.User{Name: name}, nil
	}
	return access.User{}, fault.New(fault.Denied, access.ReasonUnknownUser, errors.New("the cluster does not know the token"))
}

func (f *forgetful) set(token, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known[token] = name
	if name == "" {
		delete(f.known, token)
	}
}

// said is a log that can be read while it is written.
type said struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

// browser is one in front of a server of its own, where it has never been.
type browser struct {
	t     *testing.T
	auth  *forgetful
	clock *handClock
	log   *said
	base  *url.URL
	http  *http.Client
}

func newBrowser(t *testing.T, change ...func(*Options)) *browser {
	t.Helper()
	b := &browser{t: t, clock: &handClock{now: time.Now()}, log: &said{},
		auth: &forgetful{roles: newRoles(), known: map[string]string{token: "ann", "bobs-token": "bob"}}}
	o := options(b.auth)
	o.Now, o.Log = b.clock.Now, slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	for _, c := range change {
		c(&o)
	}
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewTLSServer(withoutDeadlines(h))
	t.Cleanup(srv.Close)
	if b.base, err = url.Parse(srv.URL); err != nil {
		t.Fatal(err)
	}
	b.http = srv.Client()
	b.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	b.forgetAll()
	return b
}

// withoutDeadlines hides that a connection can have deadlines: those are of the
// real clock, and the one of the test is moved by hours.
func withoutDeadlines(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(struct {
			http.ResponseWriter
			http.Flusher
		}{w, w.(http.Flusher)}, r)
	})
}

func (b *browser) forgetAll() {
	jar, err := cookiejar.New(nil)
	if err != nil {
		b.t.Fatal(err)
	}
	b.http.Jar = jar
}

// shown is what a browser gets.
type shown struct {
	*http.Response
	body string
}

func (s shown) location() string { return s.Header.Get("Location") }

func (b *browser) do(method, path string, form url.Values, edit ...func(*http.Request)) shown {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.base.String()+path, strings.NewReader(form.Encode()))
	if err != nil {
		b.t.Fatal(err)
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	// What a browser says of a link or a form of the page that it shows.
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	req.Header.Set("Sec-Fetch-Mode", "navigate")
	req.Header.Set("Sec-Fetch-Dest", "document")
	for _, e := range edit {
		e(req)
	}
	resp, err := b.http.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return shown{resp, string(text)}
}

func (b *browser) get(path string, edit ...func(*http.Request)) shown {
	b.t.Helper()
	return b.do(http.MethodGet, path, nil, edit...)
}

func (b *browser) post(path string, form url.Values, edit ...func(*http.Request)) shown {
	b.t.Helper()
	return b.do(http.MethodPost, path, form, edit...)
}

// signIn signs in with a token and returns the cookie.
func (b *browser) signIn(token string) *http.Cookie {
	b.t.Helper()
	got := b.post("/sign-in", url.Values{"token": {token}, "to": {"/about"}})
	if got.StatusCode != http.StatusSeeOther || got.location() != "/about" {
		b.t.Fatalf("signing in is %s to %q: %s", got.Status, got.location(), got.body)
	}
	return b.cookie()
}

// cookie is that of the session, nil if the browser holds none.
func (b *browser) cookie() *http.Cookie {
	for _, c := range b.http.Jar.Cookies(b.base) {
		if strings.HasPrefix(c.Name, "__Host-terrier-") && !strings.HasPrefix(c.Name, "__Host-terrier-issuer-") {
			return c
		}
	}
	return nil
}

// with shows another cookie than the one that the browser holds.
func with(c *http.Cookie) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Cookie", c.Name+"="+c.Value) }
}

// program takes off what only a browser says.
func program(r *http.Request) {
	for _, h := range []string{"Sec-Fetch-Site", "Sec-Fetch-Mode", "Sec-Fetch-Dest"} {
		r.Header.Del(h)
	}
}

// known reports whether a page is shown, or the way to sign in.
func (b *browser) known(edit ...func(*http.Request)) bool {
	b.t.Helper()
	got := b.get("/about", edit...)
	if got.StatusCode != http.StatusOK && (got.StatusCode != http.StatusSeeOther || got.location() != "/sign-in?to=%2Fabout") {
		b.t.Fatalf("the page is %s to %q, want it to be shown or to sign in: %s", got.Status, got.location(), got.body)
	}
	return got.StatusCode == http.StatusOK
}
