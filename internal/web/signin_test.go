package web

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
)

var _ = addDoors(map[string]string{
	"GET /sign-in":               "open",
	"POST /sign-in":              "open",
	"POST /sign-out":             "open",
	"GET /sign-in/issuer":        "open",
	"GET /sign-in/callback":      "open",
	"POST /api/v1/sign-in-links": "known",
})

// From a page that requires a session, over the form, and back to it.
func TestSignIn(t *testing.T) {
	b := newBrowser(t)
	got := b.get("/about?x=1&y=%2F")
	if got.StatusCode != http.StatusSeeOther || got.location() != "/sign-in?to=%2Fabout%3Fx%3D1%26y%3D%252F" {
		t.Fatalf("a stranger gets %s to %q, want the way to sign in", got.Status, got.location())
	}
	got = b.get(got.location())
	if got.StatusCode != http.StatusOK || !strings.Contains(got.body, `name="to" value="/about?x=1&amp;y=%2F"`) {
		t.Fatalf("the page to sign in is %s: %s", got.Status, got.body)
	}
	got = b.post("/sign-in", url.Values{"token": {" " + token + "\n"}, "to": {"/about?x=1&y=%2F"}})
	if got.StatusCode != http.StatusSeeOther || got.location() != "/about?x=1&y=%2F" {
		t.Fatalf("signing in is %s to %q, want back", got.Status, got.location())
	}
	if got := b.get("/about"); got.StatusCode != http.StatusOK || !strings.Contains(got.body, "ann") {
		t.Errorf("the page is %s: %s", got.Status, got.body)
	}
	if got := b.get("/api/v1/version"); got.StatusCode != http.StatusOK {
		t.Errorf("the API is %s to a browser that is signed in", got.Status)
	}
	if got := b.get("/sign-in?to=/about"); got.StatusCode != http.StatusSeeOther || got.location() != "/about" {
		t.Errorf("whoever is signed in gets %s to %q, want on", got.Status, got.location())
	}
}

func TestTokensThatDoNotSignIn(t *testing.T) {
	b := newBrowser(t)
	long := strings.Repeat("x", 3100)
	b.auth.set("pull", access.OwnUsers+"pull:apps")
	b.auth.set(long, "ann")
	for name, tt := range map[string]struct{ token, says string }{
		"one that nobody has":            {"other", "The cluster does not know the token"},
		"none":                           {"", "The cluster does not know the token"},
		"one of a program of the server": {"pull", "This token belongs to a part of this server"},
		"one that fits into no cookie":   {long, "The token is too long: a cookie has"},
	} {
		got := b.post("/sign-in", url.Values{"token": {tt.token}})
		if got.StatusCode != http.StatusForbidden || !strings.Contains(got.body, tt.says) || b.cookie() != nil {
			t.Errorf("%s: %s with cookie %v, want a page that says %q: %s", name, got.Status, b.cookie(), tt.says, got.body)
		}
	}
}

// Repeated tries are delayed.
func TestTriesAreBounded(t *testing.T) {
	b := newBrowser(t)
	for range triesFrom {
		if got := b.post("/sign-in", url.Values{"token": {"guess"}}); got.StatusCode != http.StatusForbidden {
			t.Fatalf("a guess is %s", got.Status)
		}
	}
	got := b.post("/sign-in", url.Values{"token": {token}})
	if got.StatusCode != http.StatusTooManyRequests || got.Header.Get("Retry-After") == "" {
		t.Errorf("after %d guesses: %s, want 429 and how long", triesFrom, got.Status)
	}
	// The command line's way in stays open.
	if got := b.post("/sign-in", url.Values{"code": {codeOf(t, b.link())}}); got.StatusCode != http.StatusSeeOther {
		t.Errorf("a link after %d guesses: %s, want it to let in", triesFrom, got.Status)
	}
	b.forgetAll()
	b.clock.pass(time.Minute)
	b.signIn(token)
}

// Links that any page can open in a browser do not lock out users of the same
// address.
func TestUnknownLinksLockNoUserOut(t *testing.T) {
	b := newBrowser(t)
	for range triesAll + 1 {
		b.get("/sign-in?code=never", fromIssuer)
		b.get(callbackPath+"?state=never&code=x", fromIssuer)
		b.post("/sign-in", url.Values{"code": {"never"}})
	}
	b.signIn(token)
}

// A thousand guesses at once are no more than a thousand in turn, and a successful
// sign-in does not count against others.
func TestTriesAreTakenBeforeTheyAreMade(t *testing.T) {
	x := newTries(time.Now)
	from := &http.Request{RemoteAddr: "192.0.2.1:1"}
	for range 3 * triesFrom {
		succeeded, err := x.begin(from)
		if err != nil {
			t.Fatalf("after tries that succeeded: %v", err)
		}
		succeeded()
	}
	under := 0
	for range 10 * triesFrom {
		if _, err := x.begin(from); err == nil {
			under++
		}
	}
	if under != triesFrom {
		t.Errorf("%d tries are under way at once, want %d", under, triesFrom)
	}
	if _, err := x.begin(&http.Request{RemoteAddr: "192.0.2.2:1"}); err != nil {
		t.Errorf("from elsewhere: %v", err)
	}
}

// The way back leads nowhere else, however it is written.
func TestTheWayBackIsOurs(t *testing.T) {
	b := newBrowser(t)
	for _, to := range []string{
		"https://evil.example/", "//evil.example", "///evil.example", `/\evil.example`, `\\evil.example`, "/\t/evil.example", "/\n/evil.example",
		"javascript:alert(1)", "http:/about", "evil.example", "/about\x00", "", " /about", "/..//evil.example\\", "/sign-in?to=/", "/" + strings.Repeat("x", 3000),
		"https:evil.example", "//user@evil.example/about", "data:text/html,x",
	} {
		b.forgetAll()
		got := b.post("/sign-in", url.Values{"token": {token}, "to": {to}})
		if got.StatusCode != http.StatusSeeOther || got.location() != homePath {
			t.Errorf("to=%q leads to %q, want %s", to, got.location(), homePath)
		}
	}
	for _, to := range []string{"/stacks", "/stacks/apps/net/plan?digest=sha256%3Aab", "/about?q=a+b", "/stacks/a%2Fb/c"} {
		if got := localPath(to); got != to {
			t.Errorf("localPath(%q) = %q, want it as it is", to, got)
		}
	}
}

func FuzzLocalPath(f *testing.F) {
	for _, s := range []string{"/stacks", "//evil", "/\\evil", "https://evil", "/a?b#c", "/%2f/evil"} {
		f.Add(s)
	}
	base := &url.URL{Scheme: "https", Host: "terrier.example"}
	f.Fuzz(func(t *testing.T, s string) {
		got := localPath(s)
		u, err := base.Parse(got)
		if err != nil || u.Host != base.Host || u.Scheme != "https" || strings.HasPrefix(got, "//") || strings.ContainsAny(got, "\\\r\n\t") {
			t.Errorf("localPath(%q) = %q, which leads to %v, %v", s, got, u, err)
		}
	})
}

// A form that a stranger sends does nothing, and is not done later either.
func TestAFormOfAStrangerIsLost(t *testing.T) {
	b := newBrowser(t)
	for name, door := range doors {
		method, path, _ := strings.Cut(name, " ")
		hook := path == "/sync" || path == "/finalize" || path == "/customize" // metacontroller's, which signs in nowhere
		if method != http.MethodPost || strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/v1/") || strings.HasPrefix(path, "/v2/") || door == "open" || hook {
			continue
		}
		if got := b.post(place(path), url.Values{}); got.StatusCode != http.StatusSeeOther || got.location() != "/sign-in?lost=1" {
			t.Errorf("%s is %s to %q, want to sign in", name, got.Status, got.location())
		}
	}
	if got := b.get("/sign-in?lost=1"); !strings.Contains(got.body, "was not carried out") {
		t.Errorf("the page does not say that the request was lost: %s", got.body)
	}
}

// A page of others leads here without the cookie; asked again by a page of
// ours, the browser shows it.
func TestALinkOfOthersLeadsToThePage(t *testing.T) {
	b := newBrowser(t)
	got := b.get("/about?x=%22", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") })
	if got.StatusCode != http.StatusOK || got.Header.Get("Refresh") != "0; url=/about?x=%22" || !strings.Contains(got.body, `href="/about?x=%22"`) {
		t.Errorf("%s, Refresh %q, want a page that goes on: %s", got.Status, got.Header.Get("Refresh"), got.body)
	}
	if got := b.get("/about"); got.location() != "/sign-in?to=%2Fabout" {
		t.Errorf("the second time: %s to %q, want to sign in", got.Status, got.location())
	}
}

// What opens a session is in no log, whatever is logged.
func TestNoTokenIsLogged(t *testing.T) {
	b := newBrowser(t)
	cookie := b.signIn(token)
	code := codeOf(t, b.link())
	b.get("/sign-in?code=" + code)
	b.post("/sign-in", url.Values{"code": {code}})
	b.post("/sign-in", url.Values{"token": {"wrong-token"}})
	b.get("/about")
	for what, text := range map[string]string{"the token": token, "a wrong token": "wrong-token", "the cookie": cookie.Value, "the code": code} {
		if strings.Contains(b.log.String(), text) {
			t.Errorf("%s is logged:\n%s", what, b.log)
		}
	}
	if !strings.Contains(b.log.String(), "signed in") {
		t.Error("nothing is logged of who signed in")
	}
}
