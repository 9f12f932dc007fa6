package issuer_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/identity"
	"github.com/terrier-iac/terrier/internal/issuer"
	"github.com/terrier-iac/terrier/internal/secret"
)

// site is an issuer behind a real server, and a clock.
type site struct {
	*issuer.Issuer
	url string
	now time.Time
	to  blob.Store
}

func open(t *testing.T) *site {
	t.Helper()
	s := &site{now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	files, err := blob.OpenFiles(t.TempDir(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	s.to = files
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.ServeHTTP(w, r) }))
	t.Cleanup(server.Close)
	s.url = server.URL
	s.Issuer = s.replica()
	return s
}

// replica is another controller of the same installation, or the same one after a restart.
func (s *site) replica() *issuer.Issuer {
	return issuer.New(issuer.Options{URL: s.url, Store: s.to, Life: 15 * time.Minute, Now: func() time.Time { return s.now }})
}

func (s *site) rotate(t *testing.T) time.Time {
	t.Helper()
	next, err := s.Rotate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return next
}

var run = identity.Run{
	ID: "apply-1", RunKind: "apply", Phase: identity.Apply, Namespace: "team-a", NamespaceUID: "n", Tenant: "a", Stack: "net", StackKind: "terraform.infra.contrib.fluxcd.io", StackUID: "u",
	SourceURL: "https://git.example.com/net", SourceRevision: "main@sha1:abc",
}

var uses = []identity.Use{{Name: "x", Audience: "verifier"}}

func issue(t *testing.T, i *issuer.Issuer) issuer.Token {
	t.Helper()
	tokens, err := i.Issue(t.Context(), run, uses)
	if err != nil {
		t.Fatal(err)
	}
	return tokens[0]
}

// verify is what any verifier does: discovery, keys, signature, issuer, audience, expiry.
func (s *site) verify(t *testing.T, token, audience string) (*oidc.IDToken, error) {
	t.Helper()
	p, err := oidc.NewProvider(t.Context(), s.url)
	if err != nil {
		t.Fatal(err)
	}
	return p.Verifier(&oidc.Config{ClientID: audience, Now: func() time.Time { return s.now }}).Verify(t.Context(), token)
}

func TestAVerifierTakesATokenAndItsClaims(t *testing.T) {
	s := open(t)
	s.rotate(t)
	token := issue(t, s.Issuer)
	got, err := s.verify(t, token.Text.Reveal(), "verifier")
	if err != nil {
		t.Fatal(err)
	}
	var claims map[string]any
	if err := got.Claims(&claims); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{
		"sub": "namespace:team-a:kind:terraform.infra.contrib.fluxcd.io:stack:net:phase:apply", "aud": "verifier", "jti": token.ID,
		"namespace": "team-a", "namespace_uid": "n", "tenant": "a", "stack": "net", "stack_uid": "u", "phase": "apply", "run_kind": "apply", "run_id": "apply-1",
		"source_url": "https://git.example.com/net", "source_revision": "main@sha1:abc", "exp": float64(s.now.Add(15 * time.Minute).Unix()),
	} {
		if claims[name] != want {
			t.Errorf("the claim %s is %v, want %v", name, claims[name], want)
		}
	}
	if second := issue(t, s.Issuer); second.ID == token.ID {
		t.Error("two tokens have the same ID")
	}
	if _, err := s.verify(t, token.Text.Reveal(), "another"); err == nil {
		t.Error("another audience takes the token")
	}
	s.now = s.now.Add(15*time.Minute + time.Second)
	if _, err := s.verify(t, token.Text.Reveal(), "verifier"); err == nil {
		t.Error("an expired token is taken")
	}
}

// The keys change in the middle of everything, and every token that is valid can be verified
// with the keys that a verifier has fetched within the last hour.
func TestKeysRotateWithoutAGap(t *testing.T) {
	s := open(t)
	begin := s.now
	keys := func() map[string]bool {
		data, err := s.Document(t.Context(), identity.PathKeys)
		if err != nil {
			t.Fatal(err)
		}
		var set struct {
			Keys []struct{ Kid, Alg, Use, D string }
		}
		if err := json.Unmarshal(data, &set); err != nil {
			t.Fatal(err)
		}
		ids := map[string]bool{}
		for _, k := range set.Keys {
			if k.Alg != "RS256" || k.Use != "sig" || k.D != "" {
				t.Errorf("a key is published as %+v", k)
			}
			ids[k.Kid] = true
		}
		return ids
	}
	signed := map[string]bool{} // keys that ever signed
	for s.now.Before(begin.Add(200 * 24 * time.Hour)) {
		next := s.rotate(t)
		s.now = s.now.Add(time.Minute) // other controllers read the keys again
		cached, token := keys(), issue(t, s.replica())
		s.now = s.now.Add(time.Hour - time.Minute)
		late := issue(t, s.Issuer)
		for _, text := range []string{token.Text.Reveal(), late.Text.Reveal()} {
			head, err := jwtHead(text)
			if err != nil {
				t.Fatal(err)
			}
			signed[head] = true
			if !cached[head] {
				t.Fatalf("on %s a token is signed with the key %s, which was not published an hour before", s.now, head)
			}
		}
		if _, err := s.verify(t, late.Text.Reveal(), "verifier"); err != nil {
			t.Fatal(err)
		}
		if next.After(s.now) {
			s.now = next
		}
	}
	if len(signed) != 3 {
		t.Errorf("%d keys have signed within 200 days, want 3", len(signed))
	}
	if n := len(keys()); n > 2 {
		t.Errorf("%d keys are published at the end", n)
	}
}

func jwtHead(token string) (kid string, err error) {
	first, _, _ := strings.Cut(token, ".")
	data, err := decode(first)
	if err != nil {
		return "", err
	}
	var head struct{ Kid string }
	err = json.Unmarshal(data, &head)
	return head.Kid, err
}

// A restart, and another controller, sign with the same key; records that cannot be read stop
// nothing while the keys are in memory, and make no new key.
func TestKeysSurvive(t *testing.T) {
	s := open(t)
	s.rotate(t)
	first, err := jwtHead(issue(t, s.Issuer).Text.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	other := s.replica()
	if _, err := other.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if again, err := jwtHead(issue(t, other).Text.Reveal()); err != nil || again != first {
		t.Errorf("another controller signs with %s, want %s (%v)", again, first, err)
	}
	broken := &away{Store: s.to}
	b := issuer.New(issuer.Options{URL: s.url, Store: broken, Now: func() time.Time { return s.now }})
	issue(t, b)
	broken.down = true
	s.now = s.now.Add(time.Hour)
	if again, err := jwtHead(issue(t, b).Text.Reveal()); err != nil || again != first {
		t.Errorf("without its records a controller signs with %s, want %s (%v)", again, first, err)
	}
	if _, err := b.Rotate(t.Context()); err == nil {
		t.Error("keys are rotated while they cannot be read")
	}
}

// A store that does not answer is waited for once in half a minute, and not for long: each run that
// asks for tokens would wait otherwise, until those that it has expire.
func TestAStoreThatDoesNotAnswer(t *testing.T) {
	s := open(t)
	s.rotate(t)
	silent := &away{Store: s.to}
	i := issuer.New(issuer.Options{URL: s.url, Store: silent, Wait: time.Millisecond, Now: func() time.Time { return s.now }})
	issue(t, i)
	silent.hangs, silent.asked = true, 0
	for _, want := range []int{1, 1, 2} { // times that it was asked by then
		s.now = s.now.Add(20 * time.Second)
		if want == 1 && silent.asked == 0 {
			s.now = s.now.Add(time.Minute)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		tokens, err := i.Issue(ctx, run, uses)
		if err != nil || len(tokens) != 1 || ctx.Err() != nil || silent.asked != want {
			t.Errorf("Issue() = %d tokens, %v, the caller's time: %v, and the store was asked %d times, want %d", len(tokens), err, ctx.Err(), silent.asked, want)
		}
		cancel()
	}
}

type away struct {
	issuer.Store
	down  bool
	hangs bool
	asked int
}

func (a *away) List(ctx context.Context, prefix string) ([]string, error) {
	a.asked++
	if a.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if a.down {
		return nil, errors.New("the bucket is away")
	}
	return a.Store.List(ctx, prefix)
}

func TestNoKeyYet(t *testing.T) {
	s := open(t)
	if _, err := s.Issue(t.Context(), run, uses); fault.Of(err) != fault.Later {
		t.Errorf("Issue() = %v, want that it has to wait", err)
	}
	resp, err := http.Get(s.url + identity.PathKeys)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Cache-Control") != "" {
		t.Errorf("without keys the list of keys is %s, kept %q, want 503, which nothing keeps", resp.Status, resp.Header.Get("Cache-Control"))
	}
}

func TestDocumentsMayBeCached(t *testing.T) {
	s := open(t)
	s.rotate(t)
	for _, path := range identity.Documents() {
		resp, err := http.Get(s.url + path)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Fatal(err)
		}
		if got := resp.Header.Get("Cache-Control"); resp.StatusCode != http.StatusOK || got != "public, max-age=3600" {
			t.Errorf("%s is %s with Cache-Control %q", path, resp.Status, got)
		}
	}
	if resp, err := http.Get(s.url + "/.well-known/other"); err != nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("another path is %v, %v", resp.Status, err)
	}
}

func TestGrants(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	g, err := issuer.NewGrants(secret.New("0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := g.Seal(issuer.Grant{Run: run, Key: "u", Uses: uses, Expires: now.Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	text := sealed.Reveal()
	if got, err := g.Open(text, now); err != nil || got.Run != run || got.Uses[0] != uses[0] {
		t.Fatalf("Open() = %+v, %v", got, err)
	}
	foreign, err := issuer.NewGrants(secret.New("fedcba9876543210"))
	if err != nil {
		t.Fatal(err)
	}
	said, mac, _ := strings.Cut(text, ".")
	changed := strings.Replace(said, said[20:24], "AAAA", 1)
	for name, open := range map[string]func() error{
		"after its end":           func() error { _, err := g.Open(text, now.Add(time.Hour)); return err },
		"of another installation": func() error { _, err := foreign.Open(text, now); return err },
		"changed":                 func() error { _, err := g.Open(changed+"."+mac, now); return err },
		"without a MAC":           func() error { _, err := g.Open(said, now); return err },
		"nothing":                 func() error { _, err := g.Open("", now); return err },
	} {
		if err := open(); fault.Of(err) != fault.Denied {
			t.Errorf("%s: %v, want that it is denied", name, err)
		}
	}
	for name, grant := range map[string]issuer.Grant{
		"no run": {Key: "u", Expires: now}, "no end": {Run: run, Key: "u"}, "no key": {Run: run, Expires: now},
	} {
		if _, err := g.Seal(grant); err == nil {
			t.Errorf("%s: a grant was sealed", name)
		}
	}
	if _, err := issuer.NewGrants(secret.New("short")); err == nil {
		t.Error("a short key is taken")
	}
}

func TestAddressesOfIssuers(t *testing.T) {
	for _, ok := range []string{"https://id.example.com", "https://bucket.s3.amazonaws.com/terrier", "https://id.example.com:8443"} {
		if err := issuer.CheckURL(ok); err != nil {
			t.Errorf("CheckURL(%q) = %v", ok, err)
		}
	}
	for _, bad := range []string{"", "id.example.com", "http://id.example.com", "https://id.example.com/", "https://u@id.example.com", "https://id.example.com?x", "https://ID.example.com"} {
		if issuer.CheckURL(bad) == nil {
			t.Errorf("CheckURL(%q) = nil", bad)
		}
	}
}

func decode(part string) ([]byte, error) { return base64.RawURLEncoding.DecodeString(part) }
