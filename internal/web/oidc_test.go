package web

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/secret"
)

// guest is a browser in front of a server that has an issuer.
type guest struct {
	*browser
	issuer *provider
	seen   []access.User // whom the server asked a right for
}

func newGuest(t *testing.T, change ...func(*Issuer)) *guest {
	t.Helper()
	g := &guest{}
	g.browser = newBrowser(t, func(o *Options) {
		clock := &handClock{now: time.Now()}
		g.issuer = newProvider(t, clock)
		i := Issuer{URL: g.issuer.srv.URL, ClientID: clientID, ClientSecret: secret.New(g.issuer.secret), Name: "Example",
			Scopes: []string{"email"}, GroupsClaim: "groups", HTTP: g.issuer.srv.Client()}
		for _, c := range change {
			c(&i)
		}
		o.Now, o.Issuer, o.Sessions.Key = clock.Now, &i, secret.New("the key of this server")
		o.Scopes = nil
		o.People = func(u access.User) (command.Person, error) {
			g.seen = append(g.seen, u)
			return command.Person{User: u}, nil
		}
	})
	g.clock = g.issuer.clock
	return g
}

// toIssuer begins to sign in, and returns where the issuer sends the browser.
func (g *guest) toIssuer(path string) string {
	g.t.Helper()
	got := g.get(path)
	if got.StatusCode != http.StatusSeeOther || !strings.HasPrefix(got.location(), g.issuer.srv.URL+"/authorize?") {
		g.t.Fatalf("%s is %s to %q, want the issuer: %s", path, got.Status, got.location(), got.body)
	}
	c, err := http.ParseSetCookie(got.Header.Get("Set-Cookie"))
	if err != nil || c.SameSite != http.SameSiteLaxMode || !c.HttpOnly || !c.Secure || !strings.HasPrefix(c.Name, "__Host-") {
		g.t.Errorf("the cookie of the errand is %v, %v", c, err)
	}
	client := g.issuer.srv.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Get(got.location())
	if err != nil {
		g.t.Fatal(err)
	}
	resp.Body.Close()
	back, err := url.Parse(resp.Header.Get("Location"))
	if err != nil || back.Host != g.base.Host {
		g.t.Fatalf("the issuer answers %s and leads to %v, %v", resp.Status, back, err)
	}
	return back.RequestURI()
}

// fromIssuer follows the issuer's page back.
func fromIssuer(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }

func (g *guest) signInWithIssuer() shown {
	g.t.Helper()
	return g.get(g.toIssuer("/sign-in/issuer?to=/about"), fromIssuer)
}

func TestSignInWithIssuer(t *testing.T) {
	g := newGuest(t)
	if got := g.get("/sign-in?to=/about"); !strings.Contains(got.body, "Sign in with <bdi>Example</bdi>") || !strings.Contains(got.body, `href="/sign-in/issuer?to=%2fabout"`) && !strings.Contains(got.body, `href="/sign-in/issuer?to=%2Fabout"`) {
		t.Errorf("the page has no way to the issuer: %s", got.body)
	}
	got := g.signInWithIssuer()
	if got.StatusCode != http.StatusOK || got.Header.Get("Refresh") != "0; url=/about" || !strings.Contains(got.body, `href="/about"`) {
		t.Fatalf("coming back is %s, Refresh %q, want a page that goes on: %s", got.Status, got.Header.Get("Refresh"), got.body)
	}
	if !g.known() {
		t.Fatal("nobody is signed in")
	}
	want := access.User{Name: g.issuer.srv.URL + "#8f14e45f", Groups: []string{"system:authenticated", "net", "ops"}}
	if diff := cmp.Diff(g.seen[len(g.seen)-1], want); diff != "" {
		t.Errorf("who is signed in (-got +want):\n%s", diff)
	}
	for _, x := range []string{"a secret of the client", "code=", g.cookie().Value} {
		if strings.Contains(g.log.String(), x) {
			t.Errorf("%q is logged:\n%s", x, g.log)
		}
	}
}

func TestNamesOfAnIssuer(t *testing.T) {
	for name, tt := range map[string]struct {
		options func(*Issuer)
		claims  map[string]any // changed
		want    string         // who; empty for none
		groups  []string
	}{
		"an e-mail address that is verified":     {func(i *Issuer) { i.UsernameClaim = "email" }, nil, "ann@example.com", []string{"net", "ops"}},
		"one that is verified in quotes":         {func(i *Issuer) { i.UsernameClaim = "email" }, map[string]any{"email_verified": "true"}, "ann@example.com", []string{"net", "ops"}},
		"one that is not verified":               {func(i *Issuer) { i.UsernameClaim = "email" }, map[string]any{"email_verified": false}, "", nil},
		"one that nothing is said of":            {func(i *Issuer) { i.UsernameClaim = "email" }, map[string]any{"email_verified": nil}, "", nil},
		"another claim, with a prefix":           {func(i *Issuer) { i.UsernameClaim, i.UsernamePrefix = "upn", "corp:" }, map[string]any{"upn": "ann"}, "corp:ann", []string{"net", "ops"}},
		"without a prefix":                       {func(i *Issuer) { i.UsernamePrefix = "-" }, nil, "8f14e45f", []string{"net", "ops"}},
		"a claim that is not there":              {func(i *Issuer) { i.UsernameClaim = "upn" }, nil, "", nil},
		"a claim that is no text":                {func(i *Issuer) { i.UsernameClaim = "upn" }, map[string]any{"upn": 7}, "", nil},
		"a name of the system":                   {func(i *Issuer) { i.UsernamePrefix = "-" }, map[string]any{"sub": "system:admin"}, "", nil},
		"a name of the system by its prefix":     {func(i *Issuer) { i.UsernamePrefix = "system:" }, nil, "", nil},
		"a name with a line break":               {func(i *Issuer) { i.UsernamePrefix = "-" }, map[string]any{"sub": "ann\nadmin"}, "", nil},
		"a group of the system":                  {func(i *Issuer) { i.UsernamePrefix = "-" }, map[string]any{"groups": []string{"net", "system:masters"}}, "", nil},
		"a group of the system that is prefixed": {func(i *Issuer) { i.UsernamePrefix, i.GroupsPrefix = "-", "corp:" }, map[string]any{"groups": []string{"system:masters"}}, "8f14e45f", []string{"corp:system:masters"}},
		"one group that is no list":              {func(i *Issuer) { i.UsernamePrefix = "-" }, map[string]any{"groups": "net"}, "8f14e45f", []string{"net"}},
		"groups that are no text":                {func(i *Issuer) { i.UsernamePrefix = "-" }, map[string]any{"groups": []any{"net", 7}}, "", nil},
		"an empty group":                         {func(i *Issuer) { i.UsernamePrefix = "-" }, map[string]any{"groups": []string{""}}, "", nil},
		"no groups":                              {func(i *Issuer) { i.UsernamePrefix = "-" }, map[string]any{"groups": nil}, "8f14e45f", nil},
		"groups that nobody asked for":           {func(i *Issuer) { i.UsernamePrefix, i.GroupsClaim = "-", "" }, nil, "8f14e45f", nil},
		"more groups than fit into a cookie":     {func(i *Issuer) { i.UsernamePrefix = "-" }, map[string]any{"groups": strings.Split(strings.Repeat("a-group-of-many,", 300)+"x", ",")}, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuest(t, tt.options)
			for k, v := range tt.claims {
				g.issuer.claims[k] = v
			}
			got := g.signInWithIssuer()
			if tt.want == "" {
				if got.StatusCode != http.StatusForbidden || !strings.Contains(got.body, `role="alert"`) || g.cookie() != nil {
					t.Errorf("%s with cookie %v, want to be refused: %s", got.Status, g.cookie(), got.body)
				}
				return
			}
			if got.StatusCode != http.StatusOK || !g.known() {
				t.Fatalf("%s: %s", got.Status, got.body)
			}
			if diff := cmp.Diff(g.seen[len(g.seen)-1], access.User{Name: tt.want, Groups: append([]string{"system:authenticated"}, tt.groups...)}); diff != "" {
				t.Errorf("who is signed in (-got +want):\n%s", diff)
			}
		})
	}
}

// An issuer's word counts only if it is signed by its key, for this client, for
// this errand, and now.
func TestWordsOfAnIssuerThatDoNotCount(t *testing.T) {
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, lie := range map[string]func(*provider) func(map[string]any){
		"another nonce":    func(*provider) func(map[string]any) { return func(c map[string]any) { c["nonce"] = "other" } },
		"no nonce":         func(*provider) func(map[string]any) { return func(c map[string]any) { delete(c, "nonce") } },
		"another audience": func(*provider) func(map[string]any) { return func(c map[string]any) { c["aud"] = "other" } },
		"several, and made for none": func(*provider) func(map[string]any) {
			return func(c map[string]any) { c["aud"] = []string{clientID, "other"} }
		},
		"several, made for another": func(*provider) func(map[string]any) {
			return func(c map[string]any) { c["aud"], c["azp"] = []string{clientID, "other"}, "other" }
		},
		"another issuer": func(*provider) func(map[string]any) {
			return func(c map[string]any) { c["iss"] = "https://other.example" }
		},
		"expired": func(p *provider) func(map[string]any) {
			return func(c map[string]any) { c["exp"] = p.clock.Now().Add(-time.Second).Unix() }
		},
		"another key": func(p *provider) func(map[string]any) {
			p.sign = other
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuest(t)
			g.issuer.lie = lie(g.issuer)
			got := g.signInWithIssuer()
			if got.StatusCode != http.StatusForbidden || g.cookie() != nil || g.known() {
				t.Errorf("%s with cookie %v, want to be refused: %s", got.Status, g.cookie(), got.body)
			}
		})
	}
}

// What comes back counts once, for the browser that was sent, while it is fresh.
func TestErrandsCountOnce(t *testing.T) {
	g := newGuest(t)
	back := g.toIssuer("/sign-in/issuer?to=//evil.example")
	errand := g.http.Jar.Cookies(g.base)[0]
	jar := g.http.Jar
	g.forgetAll()
	if got := g.get(back, fromIssuer); got.StatusCode != http.StatusForbidden || g.cookie() != nil {
		t.Errorf("in another browser: %s, want to be refused", got.Status)
	}
	g.http.Jar = jar
	if got := g.get(back, fromIssuer); got.StatusCode != http.StatusOK || got.Header.Get("Refresh") != "0; url=/stacks" {
		t.Fatalf("%s, Refresh %q, want to go on to a page of ours: %s", got.Status, got.Header.Get("Refresh"), got.body)
	}
	g.forgetAll()
	if got := g.get(back, fromIssuer, with(errand)); got.StatusCode != http.StatusForbidden || g.cookie() != nil {
		t.Errorf("the same again, with a copy of the cookie: %s, want to be refused", got.Status)
	}
	// The code alone is worth nothing: another errand does not take it.
	stolen, err := url.Parse(back)
	if err != nil {
		t.Fatal(err)
	}
	late := g.toIssuer("/sign-in/issuer")
	mixed, err := url.Parse(late)
	if err != nil {
		t.Fatal(err)
	}
	q := mixed.Query()
	q.Set("code", stolen.Query().Get("code"))
	mixed.RawQuery = q.Encode()
	if got := g.get(mixed.RequestURI(), fromIssuer); got.StatusCode != http.StatusForbidden || g.cookie() != nil {
		t.Errorf("a code of another errand: %s, want to be refused", got.Status)
	}
	late = g.toIssuer("/sign-in/issuer")
	g.clock.pass(issuerTime)
	if got := g.get(late, fromIssuer); got.StatusCode != http.StatusForbidden || g.cookie() != nil {
		t.Errorf("too late: %s, want to be refused", got.Status)
	}
	late = g.toIssuer("/sign-in/issuer")
	if got := g.get(strings.Replace(late, "iss=", "iss=x", 1), fromIssuer); got.StatusCode != http.StatusForbidden || g.cookie() != nil {
		t.Errorf("the answer of another issuer: %s, want to be refused", got.Status)
	}
}

// A code that was found on its way does not work with the verifier of another.
func TestAStolenCode(t *testing.T) {
	g := newGuest(t)
	thief := &guest{browser: &browser{t: t, auth: g.auth, clock: g.clock, log: g.log, base: g.base, http: &http.Client{Transport: g.http.Transport, CheckRedirect: g.http.CheckRedirect}}, issuer: g.issuer}
	thief.forgetAll()
	victims, err := url.Parse(g.toIssuer("/sign-in/issuer"))
	if err != nil {
		t.Fatal(err)
	}
	own, err := url.Parse(thief.toIssuer("/sign-in/issuer"))
	if err != nil {
		t.Fatal(err)
	}
	q := own.Query()
	q.Set("code", victims.Query().Get("code"))
	own.RawQuery = q.Encode()
	if got := thief.get(own.RequestURI(), fromIssuer); got.StatusCode != http.StatusForbidden || thief.cookie() != nil {
		t.Errorf("a stolen code is %s with cookie %v, want to be refused", got.Status, thief.cookie())
	}
}

// An issuer that does not answer stops nothing else; the button says so, and
// works again once it answers.
func TestAnIssuerThatIsDown(t *testing.T) {
	clock := &handClock{now: time.Now()}
	down := newProvider(t, clock)
	down.down = true
	b := newBrowser(t, func(o *Options) {
		o.Now = clock.Now
		o.Issuer = &Issuer{URL: down.srv.URL, ClientID: clientID, ClientSecret: secret.New(down.secret), Name: "Example", HTTP: down.srv.Client()}
	})
	if got := b.get("/sign-in"); got.StatusCode != http.StatusOK || !strings.Contains(got.body, "Example</bdi> does not answer") {
		t.Errorf("the page is %s and does not say that the issuer is down: %s", got.Status, got.body)
	}
	if got := b.get("/sign-in/issuer"); got.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("the way to the issuer is %s, want 503", got.Status)
	}
	b.signIn(token)
	b.forgetAll()
	down.change(func() { down.down = false })
	clock.pass(discoverAgain)
	if got := b.get("/sign-in"); strings.Contains(got.body, "does not answer") {
		t.Errorf("the page does not notice that the issuer answers: %s", got.body)
	}
	g := &guest{browser: b, issuer: down}
	back := g.toIssuer("/sign-in/issuer")
	down.change(func() { down.down = true })
	if got := g.get(back, fromIssuer); got.StatusCode != http.StatusServiceUnavailable || g.cookie() != nil {
		t.Errorf("an issuer that goes away meanwhile: %s, want 503", got.Status)
	}
}

func TestAServerWithoutIssuer(t *testing.T) {
	b := newBrowser(t)
	for _, path := range []string{"/sign-in/issuer", "/sign-in/callback?code=x&state=y"} {
		if got := b.get(path); got.StatusCode != http.StatusNotFound {
			t.Errorf("%s is %s, want 404", path, got.Status)
		}
	}
}

// An answer that has no try left is not taken as used: it counts once there are tries again,
// and browsers without a user do not fill the memory with errands.
func TestAnErrandWithoutATryIsNotUsed(t *testing.T) {
	g := newGuest(t)
	for range triesFrom {
		back := g.toIssuer("/sign-in/issuer")
		if got := g.get(strings.Replace(back, "iss=", "iss=x", 1), fromIssuer); got.StatusCode != http.StatusForbidden {
			t.Fatalf("the answer of another issuer: %s, want to be refused", got.Status)
		}
	}
	back := g.toIssuer("/sign-in/issuer")
	errand := g.http.Jar.Cookies(g.base)[0]
	if got := g.get(back, fromIssuer); got.StatusCode != http.StatusTooManyRequests || g.cookie() != nil {
		t.Fatalf("after %d failures: %s, want 429", triesFrom, got.Status)
	}
	g.forgetAll()
	g.clock.pass(2 * time.Minute)
	if got := g.get(back, fromIssuer, with(errand)); got.StatusCode != http.StatusOK || g.cookie() == nil {
		t.Errorf("the same answer when there are tries again: %s, want to be signed in: %s", got.Status, got.body)
	}
}
