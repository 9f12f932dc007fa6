package web

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/command"
)

// link asks for a link as a command line does, and returns its path.
func (b *browser) link() string {
	b.t.Helper()
	got := b.post("/api/v1/sign-in-links", nil, program, bearer)
	var link command.SignInLink
	if err := json.Unmarshal([]byte(got.body), &link); err != nil || got.StatusCode != http.StatusCreated {
		b.t.Fatalf("asking for a link is %s %s, %b", got.Status, got.body, err)
	}
	if link.Name != "ann" || link.Until.Sub(b.clock.Now()) != linkLife {
		b.t.Errorf("the link is %+v, want one of ann's for %s", link, linkLife)
	}
	return link.Path
}

func codeOf(t *testing.T, path string) string {
	t.Helper()
	u, err := url.Parse(path)
	if err != nil || u.Query().Get("code") == "" {
		t.Fatalf("%q is no link: %v", path, err)
	}
	return u.Query().Get("code")
}

// A link lets one browser in, once, and only when a person agrees.
func TestLink(t *testing.T) {
	b := newBrowser(t)
	link := b.link()
	for range 3 { // what fetches every address that it sees changes nothing
		got := b.get(link)
		if got.StatusCode != http.StatusOK || !strings.Contains(got.body, "Continue as ann") || b.cookie() != nil {
			t.Fatalf("the link shows %s with cookie %v: %s", got.Status, b.cookie(), got.body)
		}
	}
	use := func() shown { return b.post("/sign-in", url.Values{"code": {codeOf(t, link)}}) }
	if got := use(); got.StatusCode != http.StatusSeeOther || got.location() != homePath || !b.known() {
		t.Fatalf("using the link is %s to %q", got.Status, got.location())
	}
	if got := use(); got.StatusCode != http.StatusForbidden || !strings.Contains(got.body, "terrier ui") {
		t.Errorf("using it again is %s, want a page that says how to get another: %s", got.Status, got.body)
	}
}

func TestLinksDoNotLast(t *testing.T) {
	b := newBrowser(t)
	link := b.link()
	b.clock.pass(linkLife)
	if got := b.get(link); !strings.Contains(got.body, "or it has expired") {
		t.Errorf("a link that is over shows %s", got.body)
	}
	if got := b.post("/sign-in", url.Values{"code": {codeOf(t, link)}}); got.StatusCode != http.StatusForbidden || b.cookie() != nil {
		t.Errorf("a link that is over is %s", got.Status)
	}
	for range linksOf {
		b.link()
	}
	if got := b.post("/api/v1/sign-in-links", nil, program, bearer); got.StatusCode != http.StatusTooManyRequests {
		t.Errorf("one link more than may wait is %s, want 429", got.Status)
	}
	b.clock.pass(linkLife)
	b.link()
}

// A link requires a token: a signed-in browser cannot create one, so a page in it
// cannot either.
func TestABrowserMakesNoLink(t *testing.T) {
	b := newBrowser(t)
	b.signIn(token)
	if got := b.post("/api/v1/sign-in-links", url.Values{}); got.StatusCode != http.StatusForbidden {
		t.Errorf("a browser gets %s %s, want 403", got.Status, got.body)
	}
	b.forgetAll()
	if got := b.post("/api/v1/sign-in-links", nil, program); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("a stranger gets %s %s, want 401", got.Status, got.body)
	}
}

// A link that lures a user into another account names that account, also to a user
// who is signed in.
func TestALinkSaysWhoseItIs(t *testing.T) {
	b := newBrowser(t)
	b.signIn("bobs-token")
	if got := b.get(b.link()); got.StatusCode != http.StatusOK || !strings.Contains(got.body, "Continue as ann") {
		t.Errorf("bob is shown %s: %s", got.Status, got.body)
	}
}
