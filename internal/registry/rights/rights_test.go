package rights

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry/protocol"
	"github.com/terrier-iac/terrier/internal/secret"
)

const (
	ciToken  = "the-token-of-the-ci-system"
	runToken = "the-token-of-all-the-runs"
)

// clock is a time that a test sets.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 11, 29, 22, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// logged is a log that a test reads.
type logged struct{ bytes.Buffer }

func (l *logged) log() *slog.Logger {
	return slog.New(slog.NewTextHandler(&l.Buffer, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func write(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func hexOf(token string) string { return fmt.Sprintf("%x", hashed(secret.New(token))) }

func request(token string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

// may says what a token may do, as "read a", in the order that is asked.
func may(t testing.TB, b *Book, token string, namespaces ...string) (string, error) {
	t.Helper()
	c, err := b.Caller(request(token))
	if err != nil {
		return "", err
	}
	var all []string
	for _, n := range namespaces {
		for _, v := range []protocol.Verb{protocol.Read, protocol.Write} {
			switch err := b.May(context.Background(), c, v, n); fault.Of(err) {
			case fault.None:
				all = append(all, string(v)+" "+n)
			case fault.Denied:
			default:
				t.Errorf("May(%s, %s) = %v", v, n, err)
			}
		}
	}
	return strings.Join(all, ", "), nil
}

// unknown reports whether an error has the status 401.
func unknown(err error) bool {
	return err != nil && fault.Reason(err, "") == fault.Reason(protocol.Unauthenticated(err), "")
}

// RG-19: static tokens have rights in namespaces.
func TestTokens(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "runs"), runToken+"\n")
	file := write(t, filepath.Join(dir, "rights.yaml"), `
tokens:
  - name: ci
    sha256: `+hexOf(ciToken)+`
    read: ["*"]
    write: [net, team-*]
  - name: runs
    tokenFile: runs
    read: [net]
    tenant: platform
`)
	var log logged
	b, err := Open(Options{File: file, Now: newClock().Now, Log: log.log()})
	if err != nil {
		t.Fatal(err)
	}
	namespaces := []string{"net", "team-a", "team", "other"}
	for name, tt := range map[string]struct{ token, want string }{
		"patterns":             {ciToken, "read net, write net, read team-a, write team-a, read team, read other"},
		"the token of a file":  {runToken, "read net"},
		"a token is compared":  {ciToken[:len(ciToken)-1], "unknown"},
		"its hash is no token": {hexOf(ciToken), "unknown"},
		"no token":             {"", "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := may(t, b, tt.token, namespaces...)
			if unknown(err) {
				got, err = "unknown", nil
			}
			if err != nil || got != tt.want {
				t.Errorf("the caller may %q, %v, want %q", got, err, tt.want)
			}
		})
	}
	c, err := b.Caller(request(runToken))
	if err != nil || c.Name != "runs" || c.Tenant != "platform" {
		t.Errorf("Caller() = %q of %q, %v, want runs of platform", c.Name, c.Tenant, err)
	}
	if text := fmt.Sprintf("%+v %#v %s", c, b.page, log.String()); strings.Contains(text, runToken) || strings.Contains(text, ciToken) {
		t.Errorf("a token is shown: %s", text)
	}
}

func TestAnonymous(t *testing.T) {
	b, err := Open(Options{Anonymous: true, Now: newClock().Now})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := may(t, b, "", "net"); err != nil || got != "read net" {
		t.Errorf("a caller without a token may %q, %v, want to read", got, err)
	}
	if _, err := may(t, b, "a wrong token", "net"); !unknown(err) {
		t.Errorf("a wrong token: %v, want it to be unknown", err)
	}
	if _, err := Open(Options{Now: newClock().Now}); fault.Of(err) != fault.Invalid {
		t.Errorf("Open() without rights = %v, want Invalid", err)
	}
}

// A file has one clear error, which names the entry and the way out.
func TestFileRefuses(t *testing.T) {
	hash := hexOf(ciToken)
	for want, text := range map[string]string{
		`line 2: unknown field "token"`:                                        "tokens: []\ntoken: []\n",
		`line 1: tokens is a mapping, and has to be a list`:                    "tokens: {}\n",
		`token number 1: line 2: the entry is a text`:                          "tokens:\n  - ci\n",
		`token b: line 7: unknown field "wirte"`:                               "tokens:\n  - name: ci\n    sha256: " + hash + "\n    write: [a]\n\n  - name: b\n    wirte: [a]\n",
		`token ci: line 3: read is a text, and has to be a list`:               "tokens:\n  - name: ci\n    read: a\n",
		`token ci: line 2: sha256 is a number`:                                 "tokens:\n  - sha256: 5\n    name: ci\n",
		`issuer https://x: line 5: unknown field "raed"`:                       "oidc:\n  - issuer: https://x\n    rights:\n      - claims: {sub: a}\n        raed: [a]\n",
		`line 1: did not find expected`:                                        "tokens: [{\n",
		"is empty; if no token may do anything, write: tokens: []":             "# nothing\n",
		"token number 1: name is missing":                                      "tokens: [{sha256: " + hash + ", read: [a]}]",
		"token ci: it has neither sha256":                                      "tokens: [{name: ci, read: [a]}]",
		"token ci: sha256 does not have 64":                                    "tokens: [{name: ci, sha256: abc, read: [a]}]",
		"token ci: sha256 and tokenFile exclude":                               "tokens: [{name: ci, sha256: " + hash + ", tokenFile: short, read: [a]}]",
		"token ci: the token in tokenFile has 5 characters":                    "tokens: [{name: ci, tokenFile: short, read: [a]}]",
		"token ci: reading tokenFile":                                          "tokens: [{name: ci, tokenFile: nowhere, read: [a]}]",
		"token ci: it gives no rights":                                         "tokens: [{name: ci, sha256: " + hash + "}]",
		`token ci: "a/b" is no pattern`:                                        "tokens: [{name: ci, sha256: " + hash + ", read: [a/b]}]",
		"token ci: another token has the same name":                            "tokens: [{name: ci, sha256: " + hash + ", read: [a]}, {name: ci, sha256: " + hexOf("x") + ", read: [a]}]",
		"token b: it is the same token as that of ci":                          "tokens: [{name: ci, sha256: " + hash + ", read: [a]}, {name: b, sha256: " + hash + ", read: [a]}]",
		"issuer http://x: issuer is not an https address":                      "oidc: [{issuer: 'http://x', audience: a, rights: [{claims: {sub: a}, read: [a]}]}]",
		"issuer https://x: audience is missing":                                "oidc: [{issuer: 'https://x', rights: [{claims: {sub: a}, read: [a]}]}]",
		"issuer https://x: rights is missing":                                  "oidc: [{issuer: 'https://x', audience: a}]",
		"issuer https://x: rights number 1: claims is missing":                 "oidc: [{issuer: 'https://x', audience: a, rights: [{read: [a]}]}]",
		"issuer https://x: rights number 1: the claim sub has no value":        "oidc: [{issuer: 'https://x', audience: a, rights: [{claims: {sub: ''}, read: [a]}]}]",
		"issuer https://x: rights number 1: it gives no rights":                "oidc: [{issuer: 'https://x', audience: a, rights: [{claims: {sub: a}}]}]",
		"neither a text nor a list of texts":                                   "oidc: [{issuer: 'https://x', audience: a, rights: [{claims: {sub: {}}, read: [a]}]}]",
		"has neither tokens nor oidc":                                          "{}",
		"issuer https://x: reading caFile":                                     "oidc: [{issuer: 'https://x', audience: a, caFile: nowhere, rights: [{claims: {sub: a}, read: [a]}]}]",
		"issuer https://x: the certificate authority holds no PEM certificate": "oidc: [{issuer: 'https://x', audience: a, caFile: short, rights: [{claims: {sub: a}, read: [a]}]}]",
	} {
		t.Run(want, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "short"), "short")
			file := write(t, filepath.Join(dir, "rights.yaml"), text)
			_, err := Open(Options{File: file, Now: newClock().Now})
			if err == nil || fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), file) {
				t.Errorf("Open() = %v, of kind %q, want Invalid, the file, and %q", err, fault.Of(err), want)
			}
		})
	}
}

// A changed file counts at once, and one that became invalid changes no rights.
func TestFileChanges(t *testing.T) {
	dir, at := t.TempDir(), newClock()
	file := write(t, filepath.Join(dir, "rights.yaml"), "tokens: [{name: ci, tokenFile: ci, read: [a]}]")
	write(t, filepath.Join(dir, "ci"), ciToken)
	var log logged
	b, err := Open(Options{File: file, Now: at.Now, Log: log.log()})
	if err != nil {
		t.Fatal(err)
	}
	steps := []struct {
		name, file, text string
		want             string // of the token of CI
		other            string // of the token of runs
		invalid          bool
	}{
		{"as at the start", "", "", "read a", "unknown", false},
		{"other rights", "rights.yaml", "tokens: [{name: ci, tokenFile: ci, write: [b]}]", "read b, write b", "unknown", false},
		{"another token", "ci", runToken, "unknown", "read b, write b", false},
		{"an invalid file", "rights.yaml", "tokens: [{name: ci}]", "unknown", "read b, write b", true},
		{"a file without content", "rights.yaml", "", "unknown", "read b, write b", true},
		{"no token may do anything", "rights.yaml", "tokens: []", "unknown", "unknown", false},
	}
	for _, s := range steps {
		if s.file != "" {
			write(t, filepath.Join(dir, s.file), s.text)
			at.add(every)
		}
		for token, want := range map[string]string{ciToken: s.want, runToken: s.other} {
			got, err := may(t, b, token, "a", "b")
			if unknown(err) {
				got, err = "unknown", nil
			}
			if err != nil || got != want {
				t.Errorf("%s: the caller may %q, %v, want %q", s.name, got, err, want)
			}
		}
		if err := b.Invalid(); (err != nil) != s.invalid {
			t.Errorf("%s: Invalid() = %v", s.name, err)
		}
	}
	if text := log.String(); strings.Count(text, "level=ERROR") != 2 || strings.Count(text, "level=WARN") != 1 {
		t.Errorf("the log does not have two errors and one warning:\n%s", text)
	}
}

// A change is in the log although no caller asks for anything.
func TestWatch(t *testing.T) {
	file := write(t, filepath.Join(t.TempDir(), "rights.yaml"), "tokens: [{name: ci, sha256: "+hexOf(ciToken)+", read: [a]}]")
	synctest.Test(t, func(t *testing.T) {
		var log logged
		b, err := Open(Options{File: file, Now: time.Now, Log: log.log()})
		if err != nil {
			t.Fatal(err)
		}
		write(t, file, "tokens: [{name: ci, wirte: [a]}]")
		ctx, cancel := context.WithTimeout(t.Context(), every+time.Millisecond)
		defer cancel()
		b.Watch(ctx)
		if !strings.Contains(log.String(), "wirte") {
			t.Errorf("the log does not have the error: %s", log.String())
		}
	})
}

func TestMatches(t *testing.T) {
	for _, tt := range []struct {
		pattern, text string
		want          bool
	}{
		{"a", "a", true}, {"a", "ab", false}, {"a", "", false}, {"*", "", true}, {"*", "a/b", true},
		{"a*", "a", true}, {"a*", "ab", true}, {"a*", "ba", false}, {"*a", "ba", true}, {"*a", "ab", false},
		{"a*b*c", "a-b-b-c", true}, {"a*b*c", "abc", true}, {"a*b*c", "ac", false}, {"a*a", "a", false}, {"repo:x/*:ref:*", "repo:x/y:ref:z", true},
		{"a.c", "abc", false},
	} {
		if got := matches(tt.pattern, tt.text); got != tt.want {
			t.Errorf("matches(%q, %q) = %v, want %v", tt.pattern, tt.text, got, tt.want)
		}
	}
}

// RG-19: an address is for one archive, and for a time.
func TestSigner(t *testing.T) {
	at := newClock()
	s := NewSigner(NewKey(), at.Now)
	q := s.Sign("modules/a/b/c/x.tar.gz", 15*time.Minute)
	if err := s.Check("modules/a/b/c/x.tar.gz", q); err != nil {
		t.Errorf("Check() = %v", err)
	}
	later := s.Sign("modules/a/b/c/x.tar.gz", 16*time.Minute)
	mixed := s.Sign("modules/a/b/c/x.tar.gz", 15*time.Minute)
	mixed.Set("expires", later.Get("expires"))
	for name, err := range map[string]error{
		"another archive": s.Check("modules/a/b/c/y.tar.gz", q),
		"another time":    s.Check("modules/a/b/c/x.tar.gz", mixed),
		"another key":     NewSigner(NewKey(), at.Now).Check("modules/a/b/c/x.tar.gz", q),
		"no signature":    s.Check("modules/a/b/c/x.tar.gz", nil),
	} {
		if fault.Of(err) != fault.Denied || !strings.Contains(err.Error(), "not signed") {
			t.Errorf("%s: Check() = %v, want it not to be signed", name, err)
		}
	}
	at.add(15 * time.Minute)
	if err := s.Check("modules/a/b/c/x.tar.gz", q); fault.Of(err) != fault.Denied || !strings.Contains(err.Error(), "expired") {
		t.Errorf("Check() after its time = %v, want it to have expired", err)
	}
}

func TestKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys", "archives")
	var all sync.Map
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			key, err := KeyFile(path)
			if err != nil {
				t.Error(err)
			}
			all.Store(key.Reveal(), true)
		})
	}
	wait.Wait()
	n := 0
	all.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("8 processes have %d keys, want one", n)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := KeyFile(path); fault.Of(err) != fault.Denied {
		t.Errorf("KeyFile() of a file for all = %v, want Denied", err)
	}
	if _, err := KeyFile(write(t, filepath.Join(t.TempDir(), "short"), "short")); err == nil {
		t.Error("a short key is accepted")
	}
}

var _ protocol.Rights = (*Book)(nil)
