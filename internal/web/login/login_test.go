package login

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
)

const (
	proof    = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk" // of RFC 7636, appendix B
	redirect = "http://localhost:10003/login"
)

var at = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func hashOf(verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

func request() Request { return Request{redirect, "a state", hashOf(proof)} }

func with(v url.Values, name string, values ...string) url.Values {
	v = maps.Clone(v)
	v[name] = values
	return v
}

func TestParse(t *testing.T) {
	good := Request{redirect, "a-state_~", hashOf(proof)}
	got, err := Parse(good.Values())
	if err != nil || got != good {
		t.Fatalf("Parse() = %+v, %v; want %+v", got, err, good)
	}
	if got.Answer("c&d") != redirect+"?code=c%26d&state=a-state_~" || got.Port() != "10003" || got.Origin() != "http://localhost:10003" {
		t.Errorf("the answer goes to %q, port %s of %s", got.Answer("c&d"), got.Port(), got.Origin())
	}
	if hashOf(proof) != "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM" {
		t.Error("the hash is not that of RFC 7636")
	}
	if _, err := Parse(with(good.Values(), "scope", "openid")); err != nil {
		t.Errorf("a parameter without meaning: %v", err)
	}
}

// No address but that of a command line on this computer ever gets a code.
func TestRedirects(t *testing.T) {
	for port := FirstPort; port <= LastPort; port++ {
		if _, err := Parse(with(requestValues(), "redirect_uri", fmt.Sprintf("http://localhost:%d/login", port))); err != nil {
			t.Errorf("port %d: %v", port, err)
		}
	}
	for _, to := range []string{
		"", "http://localhost:9999/login", "http://localhost:10011/login", "http://localhost/login", "http://localhost:010000/login", "http://localhost:10000/login/", "http://localhost:10000/", "http://localhost:10000/login?x=1",
		"http://localhost:10000/login#x", "https://localhost:10000/login", "http://127.0.0.1:10000/login", "http://[::1]:10000/login", "http://LOCALHOST:10000/login", "http://localhost.:10000/login",
		"http://localhost:10000@evil.example/login", "http://user:10000@localhost:10000/login", "http://evil.example:10000/login", "http://evil.example/?http://localhost:10000/login", "http://localhost.evil.example:10000/login",
		"http://localhost:10000/../login", "http://localhost:10000/%6cogin", "http://localhost:10000\\@evil.example/login", " http://localhost:10000/login", "http://localhost:10000/login\n", "//localhost:10000/login", "javascript:alert(1)", "urn:ietf:wg:oauth:2.0:oob",
	} {
		if _, err := Parse(with(requestValues(), "redirect_uri", to)); fault.Of(err) != fault.Invalid {
			t.Errorf("%q: Parse() = %v, want Invalid", to, err)
		}
	}
}

func requestValues() url.Values {
	r := request()
	r.State = "state"
	return r.Values()
}

func TestRequestsThatAreRefused(t *testing.T) {
	for name, q := range map[string]url.Values{
		"another client":    with(requestValues(), "client_id", "other"),
		"an implicit grant": with(requestValues(), "response_type", "token"),
		"no PKCE":           with(requestValues(), "code_challenge"),
		"a plain challenge": with(requestValues(), "code_challenge_method", "plain"),
		"a default method":  with(requestValues(), "code_challenge_method"),
		"a short challenge": with(requestValues(), "code_challenge", "abc"),
		"another alphabet":  with(requestValues(), "code_challenge", strings.Repeat("+", 43)),
		"no state":          with(requestValues(), "state"),
		"a long state":      with(requestValues(), "state", strings.Repeat("a", 513)),
		"a state of lines":  with(requestValues(), "state", "a\r\nSet-Cookie: a=b"),
		"two redirects":     with(requestValues(), "redirect_uri", redirect, "http://evil.example/"),
		"two states":        with(requestValues(), "state", "a", "b"),
		"two challenges":    with(requestValues(), "code_challenge", hashOf("a"), hashOf("b")),
		"nothing":           {},
	} {
		if _, err := Parse(q); fault.Of(err) != fault.Invalid || fault.Reason(err, "") != ReasonInvalid {
			t.Errorf("%s: Parse() = %v, want Invalid", name, err)
		}
	}
}

// world is codes, and the time.
func world() (*Codes, *atomic.Int64) {
	var passed atomic.Int64
	return NewCodes(func() time.Time { return at.Add(time.Duration(passed.Load())) }), &passed
}

func form(code string) url.Values {
	return url.Values{"grant_type": {"authorization_code"}, "client_id": {Client}, "code": {code}, "code_verifier": {proof}, "redirect_uri": {redirect}}
}

func made(t *testing.T, c *Codes) string {
	t.Helper()
	code, err := c.Make(request(), access.User{Name: "ann", Groups: []string{"dev"}})
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// RG-20: a code works once, for the client that asked for it, within a minute.
func TestExchange(t *testing.T) {
	c, _ := world()
	code := made(t, c)
	user, refusal := c.Exchange(form(code))
	if refusal != nil || user.Name != "ann" || len(user.Groups) != 1 {
		t.Fatalf("Exchange() = %+v, %v", user, refusal)
	}
	user, refusal = c.Exchange(form(code))
	if refusal == nil || refusal.Code != InvalidGrant || user.Name != "ann" || !strings.Contains(refusal.Description, "was used before") {
		t.Errorf("a second use is %+v, %v; want invalid_grant", user, refusal)
	}
}

func TestExchangesThatAreRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		edit func(url.Values) url.Values
		code string
		used bool // the code is of no use afterwards
	}{
		"another verifier":         {func(f url.Values) url.Values { return with(f, "code_verifier", strings.Repeat("a", 43)) }, InvalidGrant, true},
		"the challenge":            {func(f url.Values) url.Values { return with(f, "code_verifier", hashOf(proof)) }, InvalidGrant, true},
		"no verifier":              {func(f url.Values) url.Values { return with(f, "code_verifier") }, InvalidGrant, true},
		"a verifier that is short": {func(f url.Values) url.Values { return with(f, "code_verifier", "a") }, InvalidGrant, true},
		"another port":             {func(f url.Values) url.Values { return with(f, "redirect_uri", "http://localhost:10004/login") }, InvalidGrant, true},
		"no redirect":              {func(f url.Values) url.Values { return with(f, "redirect_uri") }, InvalidGrant, true},
		"another code":             {func(f url.Values) url.Values { return with(f, "code", "x") }, InvalidGrant, false},
		"no code":                  {func(f url.Values) url.Values { return with(f, "code") }, InvalidRequest, false},
		"two codes":                {func(f url.Values) url.Values { return with(f, "code", f.Get("code"), "x") }, InvalidRequest, false},
		"two verifiers":            {func(f url.Values) url.Values { return with(f, "code_verifier", "x", proof) }, InvalidRequest, false},
		"another client":           {func(f url.Values) url.Values { return with(f, "client_id", "x") }, InvalidClient, false},
		"a client with a secret":   {func(f url.Values) url.Values { return with(f, "client_secret", "x") }, InvalidClient, false},
		"a password":               {func(f url.Values) url.Values { return with(f, "grant_type", "password") }, UnknownGrant, false},
		"a refresh":                {func(f url.Values) url.Values { return with(f, "grant_type", "refresh_token") }, UnknownGrant, false},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := world()
			code := made(t, c)
			if _, refusal := c.Exchange(tt.edit(form(code))); refusal == nil || refusal.Code != tt.code || strings.Contains(refusal.Description, code) {
				t.Errorf("Exchange() = %v, want %s", refusal, tt.code)
			}
			if _, refusal := c.Exchange(form(code)); (refusal != nil) != tt.used {
				t.Errorf("then the right one is %v, want that the code is used: %v", refusal, tt.used)
			}
		})
	}
}

func TestCodesExpire(t *testing.T) {
	c, passed := world()
	code := made(t, c)
	passed.Store(int64(CodeLife))
	if _, refusal := c.Exchange(form(code)); refusal == nil || refusal.Code != InvalidGrant {
		t.Errorf("after a minute it is %v, want invalid_grant", refusal)
	}
}

// Of many programs that show one code at the same time exactly one gets a token.
func TestOneExchangeWins(t *testing.T) {
	c, _ := world()
	code := made(t, c)
	var won atomic.Int32
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			if _, refusal := c.Exchange(form(code)); refusal == nil {
				won.Add(1)
			}
		})
	}
	all.Wait()
	if won.Load() != 1 {
		t.Errorf("%d exchanges of one code succeeded, want 1", won.Load())
	}
}

func TestCodesAreBounded(t *testing.T) {
	c, passed := world()
	for range codesOf {
		made(t, c)
	}
	_, err := c.Make(request(), access.User{Name: "ann"})
	if f := (*fault.Fault)(nil); fault.Of(err) != fault.Later || !errors.As(err, &f) || f.After != CodeLife {
		t.Errorf("one more is %v, want Later", err)
	}
	if _, err := c.Make(request(), access.User{Name: "bob"}); err != nil {
		t.Errorf("another user gets %v", err)
	}
	passed.Store(int64(CodeLife))
	made(t, c)
	if len(c.made) != 1 {
		t.Errorf("%d codes are kept, want 1", len(c.made))
	}
}

func FuzzParse(f *testing.F) {
	f.Add(requestValues().Encode())
	f.Fuzz(func(t *testing.T, text string) {
		q, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		r, err := Parse(q)
		if err != nil {
			return
		}
		u, err := url.Parse(r.Answer("code"))
		if err != nil || u.Scheme != "http" || u.Hostname() != "localhost" || u.Path != "/login" || u.User != nil || u.Query().Get("state") != r.State {
			t.Errorf("a code would go to %q", r.Answer("code"))
		}
	})
}
