package web

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/secret"
)

var noForm = url.Values{}

// What a browser is told about the cookie, and what it is not told.
func TestCookie(t *testing.T) {
	b := newBrowser(t)
	got := b.post("/sign-in", url.Values{"token": {token}})
	c, err := http.ParseSetCookie(got.Header.Get("Set-Cookie"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(c.Name, "__Host-terrier-") || !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" || c.MaxAge != 0 || !c.Expires.IsZero() {
		t.Errorf("the cookie is %v, want one of this host only, for this site only, hidden from scripts, until the browser is closed", c)
	}
	raw, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil || strings.Contains(string(raw), token) || strings.Contains(c.Value, token) {
		t.Errorf("the cookie shows the token, or is not what it is to be: %v", err)
	}
	if len(got.Header.Get("Set-Cookie")) > cookieBytes+200 {
		t.Errorf("the cookie has %d bytes", len(got.Header.Get("Set-Cookie")))
	}
}

// Every cookie that is not one of ours, whole, for this purpose, leads to the
// page to sign in and to nothing else.
func TestCookiesThatAreNotGood(t *testing.T) {
	b := newBrowser(t, func(o *Options) { o.Sessions.Key = secret.New("the key of this server") })
	good := b.signIn(token)
	b.forgetAll()
	if !b.known(with(good)) {
		t.Fatal("a good cookie is not taken")
	}
	other, err := newSessions(SessionOptions{Key: secret.New("another key")}, b.clock.Now)
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := other.cookie(other.begin(session{Token: token}))
	if err != nil {
		t.Fatal(err)
	}
	errands, err := newSealer(secret.New("the key of this server"), issuerPurpose)
	if err != nil {
		t.Fatal(err)
	}
	purpose, err := errands.seal(session{ID: "x", Token: token, Until: b.clock.Now().Add(time.Hour).Unix(), Seen: b.clock.Now().Unix()})
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"empty": "", "no base64": "%%%", "short": "AAAA", "cut": good.Value[:len(good.Value)-4], "longer": good.Value + "AAAA",
		"another server's": foreign.Value, "sealed for another purpose": purpose, "plain": `{"i":"x","t":"good-token"}`,
	} {
		if b.known(with(&http.Cookie{Name: good.Name, Value: value})) {
			t.Errorf("a cookie that is %s is taken", name)
		}
	}
	raw, err := sealedText.DecodeString(good.Value)
	if err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		bad := append([]byte{}, raw...)
		bad[i] ^= 1
		if b.known(with(&http.Cookie{Name: good.Name, Value: sealedText.EncodeToString(bad)})) {
			t.Fatalf("a cookie whose byte %d was changed is taken", i)
		}
	}
}

func TestSessionsEnd(t *testing.T) {
	b := newBrowser(t, func(o *Options) { o.Sessions.Life, o.Sessions.Idle = 12*time.Hour, 2*time.Hour })
	first := b.signIn(token)
	b.clock.pass(2 * time.Hour)
	if b.known() {
		t.Error("a session that was not used for two hours is good")
	}
	b.signIn(token)
	for range 7 { // a page every hour and a half
		b.clock.pass(100 * time.Minute)
		if !b.known() {
			t.Fatal("a session that is used has ended")
		}
	}
	last := b.cookie()
	b.clock.pass(20 * time.Minute)
	if b.known() || b.known(with(last)) || b.known(with(first)) {
		t.Error("a session is good after twelve hours")
	}
}

// Ending many sessions looks at all others now and then, and not each time: requests that ask
// about a session wait meanwhile. Those that have expired are dropped.
func TestManySessionsEnd(t *testing.T) {
	const sessions = 2000
	now, asked := time.Now(), 0
	s := NewEndedSessions(func() time.Time { asked++; return now })
	for i := range sessions {
		if err := s.End(t.Context(), fmt.Sprint(i), now.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	if asked > 2*sessions {
		t.Errorf("ending %d sessions looks at %d", sessions, asked)
	}
	if !s.Ended("7") || s.Ended("none") {
		t.Error("a session that was ended is good, or another one is not")
	}
	now = now.Add(time.Hour)
	if err := s.End(t.Context(), "new", now.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if len(s.until) != 1 || s.Ended("7") {
		t.Errorf("%d sessions are kept, want the one that has not expired", len(s.until))
	}
}

// The page of an address that does not exist keeps the menu of its user.
func TestAnUnknownAddressKeepsTheMenu(t *testing.T) {
	b := newBrowser(t, func(*Options) {})
	page := func() string {
		_, body := ask(t, b.http, http.MethodGet, b.base.String()+"/nowhere", func(r *http.Request) { r.Header.Set("Accept", "text/html") })
		return body
	}
	if strings.Contains(page(), "Sign out") {
		t.Error("the page has a menu of a user, and none is signed in")
	}
	b.signIn(token)
	if !strings.Contains(page(), "Sign out") {
		t.Error("the page has lost the menu of the user")
	}
}

// The requests that a page makes by itself do not prolong a session.
func TestAPageKeepsNoSessionAlive(t *testing.T) {
	b := newBrowser(t, func(o *Options) { o.Sessions.Idle = 2 * time.Hour })
	b.signIn(token)
	byItself := func(r *http.Request) {
		r.Header.Set("Sec-Fetch-Mode", "cors")
		r.Header.Set("Sec-Fetch-Dest", "empty")
	}
	for range 3 {
		b.clock.pass(35 * time.Minute)
		if !b.known(byItself) {
			t.Fatal("a page cannot look again")
		}
	}
	b.clock.pass(20 * time.Minute)
	if b.known(byItself) {
		t.Error("a page that nobody looks at keeps its visitor signed in")
	}
}

// Who signs out is out, with every copy of the cookie.
func TestSignOut(t *testing.T) {
	b := newBrowser(t)
	copied := b.signIn(token)
	got := b.post("/sign-out", noForm)
	if got.StatusCode != http.StatusSeeOther || got.location() != "/sign-in" || b.cookie() != nil {
		t.Fatalf("signing out is %s to %q, cookie %v", got.Status, got.location(), b.cookie())
	}
	if b.known(with(copied)) {
		t.Error("a copy of the cookie is good after signing out")
	}
	if got := b.get("/sign-out"); got.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("a link signs out: %s", got.Status)
	}
	// Signing in again ends what was before.
	first := b.signIn(token)
	b.signIn("bobs-token")
	if b.known(with(first)) {
		t.Error("a session goes on beside the one that took its place")
	}
	if got := b.get("/about"); !strings.Contains(got.body, "bob") {
		t.Errorf("the page is not bob's: %s", got.body)
	}
}

// A token that the cluster forgets ends its sessions.
func TestARevokedTokenEndsItsSessions(t *testing.T) {
	b := newBrowser(t)
	b.signIn(token)
	b.auth.set(token, "")
	if b.known() {
		t.Error("a session is good whose token is not")
	}
}

// A token that is shown goes before a cookie, even if it is not good.
func TestATokenGoesBeforeACookie(t *testing.T) {
	b := newBrowser(t)
	b.signIn("bobs-token")
	if got := b.get("/about", bearer); !strings.Contains(got.body, "ann") {
		t.Errorf("the page is not of whose token is shown: %s", got.body)
	}
	if got := b.get("/api/v1/version", func(r *http.Request) { r.Header.Set("Authorization", "Bearer other") }); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("a token that nobody has is %s, want 401", got.Status)
	}
	for _, path := range []string{"/v2/apps/x/tags/list", "/v1/modules/apps/net/aws/versions", "/v1/providers/apps/net/versions"} {
		if got := b.get(path); got.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s takes a cookie: %s", path, got.Status)
		}
	}
}

// T20, T21: what pages of others have a browser do is refused on every row,
// whether it changes something or is read.
func TestOtherSitesGetNothing(t *testing.T) {
	b := newBrowser(t)
	b.signIn(token)
	origin := "https://" + b.base.Host
	for name, tt := range map[string]struct {
		edit   func(*http.Request)
		reads  int // 0 for whatever it is for a page of ours
		writes bool
	}{
		"another site": {func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", "cross-site")
			r.Header.Set("Sec-Fetch-Mode", "cors")
		}, 403, false},
		"a sibling of the site": {func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", "same-site")
			r.Header.Set("Sec-Fetch-Mode", "cors")
		}, 403, false},
		"a frame of a sibling": {func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", "same-site")
			r.Header.Set("Sec-Fetch-Dest", "iframe")
		}, 403, false},
		"a link or form of another":   {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, 0, false},
		"a link or form of a sibling": {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }, 0, false},
		"an old browser elsewhere":    {func(r *http.Request) { program(r); r.Header.Set("Origin", "https://evil.example") }, 403, false},
		"a page without an origin":    {func(r *http.Request) { program(r); r.Header.Set("Origin", "null") }, 403, false},
		"our host without TLS":        {func(r *http.Request) { program(r); r.Header.Set("Origin", "http://"+b.base.Host) }, 403, false},
		"what does not say":           {program, 0, false},
		"an old browser here":         {func(r *http.Request) { program(r); r.Header.Set("Origin", origin) }, 0, true},
		"the person at the keyboard":  {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "none") }, 0, true},
	} {
		for row := range doors {
			method, path, _ := strings.Cut(row, " ")
			if strings.HasPrefix(path, "/v1/") || strings.HasPrefix(path, "/v2/") || path == "/sign-out" && tt.writes {
				continue // takes no cookie; would end the session
			}
			safe := method == http.MethodGet || method == http.MethodHead
			want := tt.reads
			if !safe && !tt.writes || path == "/api/v1/events" && strings.HasPrefix(name, "a link") { // a stream is no page to lead to
				want = http.StatusForbidden
			}
			got := b.do(method, place(path), nil, tt.edit)
			denied := got.StatusCode == http.StatusForbidden && (method == http.MethodHead || strings.Contains(got.body, "other origins"))
			if want != 0 && !denied || want == 0 && denied && method != http.MethodHead {
				t.Errorf("%s: %s is %s, want refused %t: %.200s", name, row, got.Status, want != 0, got.body)
			}
		}
	}
	if !b.known() {
		t.Error("the session has ended meanwhile")
	}
}

// The names by which a server may be called hold for browsers as well.
func TestACookieUnderAnotherName(t *testing.T) {
	b := newBrowser(t)
	b.signIn(token)
	for _, host := range []string{"evil.example", "localhost.evil.example", b.base.Hostname() + ".evil.example"} {
		for _, path := range []string{"/about", "/sign-in", "/api/v1/version"} {
			if got := b.get(path, func(r *http.Request) { r.Host = host }); got.StatusCode != http.StatusForbidden {
				t.Errorf("%s on %s is %s, want 403", path, host, got.Status)
			}
		}
	}
}
