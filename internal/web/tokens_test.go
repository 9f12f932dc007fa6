package web

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/access/regtoken"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/web/login"
	"github.com/terrier-iac/terrier/internal/web/pages"
)

var _ = addDoors(map[string]string{
	"GET /login/authorize":                               "known, then 422", // no request of a command line
	"POST /login/authorize":                              "known, then 422",
	"POST /login/token":                                  "open",
	"GET /tokens":                                        "known",
	"POST /tokens/:id/revoke":                            "known, then 404", // no such token
	"GET /api/v1/registry/tokens":                        "known",
	"POST /api/v1/registry/tokens/:id/revoke":            "known, then 415", // no JSON
	"POST /api/v1/namespaces/:namespace/registry/tokens": "update terraforms/registry apps",
})

// shelf is records in memory.
type shelf struct {
	mu   sync.Mutex
	kept map[string][]byte
}

func (s *shelf) Put(_ context.Context, key string, r io.Reader) error {
	b, err := io.ReadAll(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept == nil {
		s.kept = map[string][]byte{}
	}
	s.kept[key] = b
	return err
}

func (s *shelf) Get(_ context.Context, key string) (io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.kept[key]
	if !ok {
		return nil, blob.Missing(key)
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

func (s *shelf) Delete(_ context.Context, key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.kept, key)
	return nil
}

func (s *shelf) List(_ context.Context, prefix string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.kept)), func(k string) bool { return !strings.HasPrefix(k, prefix) }), nil
}

// auditBook is an audit log in memory that can fail.
type auditBook struct {
	mu   sync.Mutex
	all  []query.AuditEntry
	full bool
}

func (l *auditBook) Record(_ context.Context, e query.AuditEntry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.full {
		return errors.New("the disk is full")
	}
	l.all = append(l.all, e)
	return nil
}

func (l *auditBook) whats() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, e := range l.all {
		out = append(out, e.Who+" "+string(e.What))
	}
	return strings.Join(out, ", ")
}

func (l *auditBook) fill(full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.full = full
}

// anyNamespace is a cluster that has every namespace.
func anyNamespace(_ context.Context, name string) (access.Namespace, error) {
	return access.Namespace{UID: "uid-of-" + name}, nil
}

// lobby is a browser in front of a server with a registry, and the command line of its user.
type lobby struct {
	*browser
	tokens *regtoken.Book
	audit  *auditBook
}

func newLobby(t *testing.T) lobby {
	l := lobby{audit: &auditBook{}}
	l.browser = newBrowser(t, func(o *Options) {
		l.tokens = regtoken.NewBook(&shelf{}, anyNamespace, o.Now, slog.New(slog.DiscardHandler))
		o.Tokens, o.LoginLife, o.Audit = l.tokens, 30*24*time.Hour, l.audit
		o.People = func(access.User) (command.Person, error) { return command.Person{}, nil }
	})
	return l
}

const proof = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"

// loginQuery is the request of a command line.
func loginQuery() url.Values {
	sum := sha256.Sum256([]byte(proof))
	return login.Request{Redirect: "http://localhost:10003/login", State: "a-state", Challenge: base64.RawURLEncoding.EncodeToString(sum[:])}.Values()
}

// loginForm is the form of the page.
func loginForm(decision string) url.Values {
	form := loginQuery()
	form.Set("decision", decision)
	return form
}

// code is what the user who is signed in gives the command line.
func (l lobby) code() string {
	l.t.Helper()
	got := l.post(login.AuthorizePath, loginForm("confirm"))
	to, err := url.Parse(got.location())
	if err != nil || got.StatusCode != http.StatusSeeOther || to.Host != "localhost:10003" || to.Query().Get("state") != "a-state" {
		l.t.Fatalf("confirming is %s to %q, %v: %s", got.Status, got.location(), err, got.body)
	}
	return to.Query().Get("code")
}

// exchange is what the command line sends, which has no cookie and is no browser.
func (l lobby) exchange(form url.Values, edit ...func(*http.Request)) shown {
	l.t.Helper()
	jar := l.http.Jar
	l.http.Jar = nil
	defer func() { l.http.Jar = jar }()
	return l.post(login.TokenPath, form, append([]func(*http.Request){program}, edit...)...)
}

func exchangeForm(code string) url.Values {
	return url.Values{"grant_type": {"authorization_code"}, "client_id": {login.Client}, "code": {code}, "code_verifier": {proof}, "redirect_uri": {"http://localhost:10003/login"}}
}

func (l lobby) token() string {
	l.t.Helper()
	got := l.exchange(exchangeForm(l.code()))
	var g granted
	if err := json.Unmarshal([]byte(got.body), &g); err != nil || got.StatusCode != http.StatusOK || g.Type != "Bearer" || g.Expires != 30*24*3600 {
		l.t.Fatalf("exchanging is %s %s, %v", got.Status, got.body, err)
	}
	return g.Token
}

// From the command line over signing in and the question to a token, and to its end.
func TestLogin(t *testing.T) {
	l := newLobby(t)
	path := login.AuthorizePath + "?" + loginQuery().Encode()
	got := l.get(path)
	if got.StatusCode != http.StatusSeeOther || got.location() != "/sign-in?"+(url.Values{"to": {path}}).Encode() {
		t.Fatalf("a stranger gets %s to %q, want the way to sign in", got.Status, got.location())
	}
	if got = l.post(signInPath, url.Values{"token": {token}, "to": {path}}); got.location() != path {
		t.Fatalf("signing in leads to %q, want back", got.location())
	}
	got = l.get(path)
	for _, part := range []string{"a token as <bdi>ann</bdi>?", "port 10003", `value="http://localhost:10003/login"`, `name="state" value="a-state"`, `value="confirm"`, `value="decline"`} {
		if !strings.Contains(got.body, part) {
			t.Errorf("the page has no %q: %s", part, got.body)
		}
	}
	h := got.Header
	if csp := h.Get("Content-Security-Policy"); h.Get("X-Frame-Options") != "DENY" || !strings.Contains(csp, "frame-ancestors 'none'") || !strings.Contains(csp, "form-action 'self' http://localhost:10003;") || h.Get("Referrer-Policy") != "no-referrer" {
		t.Errorf("the headers of the page are %v", h)
	}
	text := secret.New(l.token())
	user, err := l.tokens.Authenticate(t.Context(), text)
	if err != nil || user.Name != "ann" {
		t.Fatalf("the token is of %+v, %v", user, err)
	}
	if got := l.get("/tokens"); !strings.Contains(got.body, "tofu login, "+l.base.Host+", ") || !strings.Contains(got.body, "Revoke") {
		t.Errorf("the list is %s", got.body)
	}
	if want := "ann signed-in, ann login-confirmed, ann token-created"; l.audit.whats() != want {
		t.Errorf("the audit log has %s, want %s", l.audit.whats(), want)
	}
	if log := l.log.String(); strings.Contains(log, text.Reveal()) || strings.Contains(log, "code=") || strings.Contains(log, "terrier-registry.") {
		t.Errorf("the log has the token or the code: %s", log)
	}
}

// A token for the registry opens nothing else, also not the page that gives more of them.
func TestATokenForTheRegistryOpensNothingElse(t *testing.T) {
	l := newLobby(t)
	l.signIn(token)
	text := l.token()
	l.forgetAll()
	for _, path := range []string{"/api/v1/version", "/api/v1/registry/tokens", "/tokens", "/stacks"} {
		got := l.get(path, program, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+text) })
		if got.StatusCode != http.StatusUnauthorized && !strings.HasPrefix(got.location(), signInPath) {
			t.Errorf("%s is %s", path, got.Status)
		}
	}
	if got := l.do(http.MethodPut, "/v2/apps/module/manifests/v1", nil, program, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+text) }); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("a push to a repository is %s", got.Status)
	}
	if got := l.post(signInPath, url.Values{"token": {text}}); got.StatusCode != http.StatusForbidden || l.cookie() != nil {
		t.Errorf("signing in with it is %s", got.Status)
	}
}

func TestDecliningALogin(t *testing.T) {
	l := newLobby(t)
	l.signIn(token)
	got := l.post(login.AuthorizePath, loginForm("decline"))
	if got.StatusCode != http.StatusOK || got.location() != "" || !strings.Contains(got.body, "No token was created") {
		t.Errorf("declining is %s to %q: %s", got.Status, got.location(), got.body)
	}
	if got := l.post(login.AuthorizePath, loginForm("")); got.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("no decision is %s", got.Status)
	}
	if !strings.HasSuffix(l.audit.whats(), "ann login-declined") {
		t.Errorf("the audit log has %s", l.audit.whats())
	}
}

// Neither a page of another site nor a request with a fault makes a code, and none leads
// the browser away.
func TestLoginsThatAreRefused(t *testing.T) {
	l := newLobby(t)
	l.signIn(token)
	for name, edit := range map[string]func(*http.Request){
		"another site":               func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		"a sibling of this site":     func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") },
		"another origin":             func(r *http.Request) { r.Header.Del("Sec-Fetch-Site"); r.Header.Set("Origin", "https://evil.example") },
		"no origin":                  func(r *http.Request) { r.Header.Del("Sec-Fetch-Site") },
		"the origin of a frame":      func(r *http.Request) { r.Header.Del("Sec-Fetch-Site"); r.Header.Set("Origin", "null") },
		"another port of the server": func(r *http.Request) { r.Header.Del("Sec-Fetch-Site"); r.Header.Set("Origin", "https://127.0.0.1:1") },
	} {
		if got := l.post(login.AuthorizePath, loginForm("confirm"), edit); got.StatusCode != http.StatusForbidden || got.location() != "" {
			t.Errorf("a form of %s is %s to %q, want 403", name, got.Status, got.location())
		}
	}
	for _, to := range []string{"http://evil.example:10003/login", "http://localhost:10003@evil.example/login", "http://localhost:10011/login", "http://127.0.0.1:10003/login"} {
		form := loginForm("confirm")
		form.Set("redirect_uri", to)
		page := l.get(login.AuthorizePath + "?" + form.Encode())
		got := l.post(login.AuthorizePath, form)
		if page.StatusCode != http.StatusUnprocessableEntity || got.StatusCode != http.StatusUnprocessableEntity || got.location() != "" || strings.Contains(page.Header.Get("Content-Security-Policy"), "evil") {
			t.Errorf("%s: the page is %s, the form %s to %q; want 422", to, page.Status, got.Status, got.location())
		}
	}
	if strings.Contains(l.audit.whats(), "login-confirmed") {
		t.Errorf("the audit log has %s", l.audit.whats())
	}
}

// RG-20: what the endpoint refuses, with the errors of RFC 6749.
func TestExchangesThatAreRefused(t *testing.T) {
	l := newLobby(t)
	l.signIn(token)
	for name, tt := range map[string]struct {
		edit func(url.Values)
		req  func(*http.Request)
		want string
	}{
		"another verifier": {func(f url.Values) { f.Set("code_verifier", strings.Repeat("a", 43)) }, nil, login.InvalidGrant},
		"another redirect": {func(f url.Values) { f.Set("redirect_uri", "http://localhost:10004/login") }, nil, login.InvalidGrant},
		"a secret":         {func(url.Values) {}, func(r *http.Request) { r.SetBasicAuth(login.Client, "x") }, login.InvalidRequest},
		"JSON":             {func(url.Values) {}, func(r *http.Request) { r.Header.Set("Content-Type", "application/json") }, login.InvalidRequest},
		"a large form":     {func(f url.Values) { f.Set("x", strings.Repeat("a", exchangeBytes)) }, nil, login.InvalidRequest},
		"a query":          {func(url.Values) {}, func(r *http.Request) { r.URL.RawQuery = "code=x" }, login.InvalidRequest},
	} {
		form := exchangeForm(l.code())
		tt.edit(form)
		got := l.exchange(form, func(r *http.Request) {
			if tt.req != nil {
				tt.req(r)
			}
		})
		var e login.Error
		if err := json.Unmarshal([]byte(got.body), &e); err != nil || got.StatusCode != http.StatusBadRequest || e.Code != tt.want || e.Description == "" || got.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %s %s, %v; want 400 %s", name, got.Status, got.body, err, tt.want)
		}
	}
	code := l.code()
	if got := l.exchange(exchangeForm(code)); got.StatusCode != http.StatusOK {
		t.Fatalf("the first use is %s %s", got.Status, got.body)
	}
	if got := l.exchange(exchangeForm(code)); got.StatusCode != http.StatusBadRequest || !strings.Contains(got.body, "was used before") {
		t.Errorf("the second use is %s %s", got.Status, got.body)
	}
	if !strings.HasSuffix(l.audit.whats(), "ann login-refused") {
		t.Errorf("the audit log has %s", l.audit.whats())
	}
}

// Without an entry in the audit log there is neither a code nor a token.
func TestNoTokenWithoutTheAuditLog(t *testing.T) {
	l := newLobby(t)
	l.signIn(token)
	code := l.code()
	l.audit.fill(true)
	if got := l.post(login.AuthorizePath, loginForm("confirm")); got.StatusCode != http.StatusInternalServerError || got.location() != "" {
		t.Errorf("confirming is %s to %q", got.Status, got.location())
	}
	got := l.exchange(exchangeForm(code))
	if got.StatusCode != http.StatusInternalServerError || !strings.Contains(got.body, login.ServerError) || strings.Contains(got.body, "terrier-registry.") {
		t.Errorf("exchanging is %s %s", got.Status, got.body)
	}
	all, err := l.tokens.List(t.Context())
	if err != nil || len(all) != 1 || all[0].Revoked.IsZero() {
		t.Errorf("the tokens are %+v, %v; want one that is revoked", all, err)
	}
}

// Users revoke their own tokens on the page, and not those of others.
func TestRevokingOnThePage(t *testing.T) {
	l := newLobby(t)
	l.signIn(token)
	text := secret.New(l.token())
	all, err := l.tokens.List(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatalf("the tokens are %v, %v", all, err)
	}
	revoke := "/tokens/" + all[0].ID + "/revoke"
	l.auth.deny(access.ResourceRegistry)
	l.signIn("bobs-token")
	if got := l.get("/tokens"); strings.Contains(got.body, all[0].ID) {
		t.Errorf("bob sees the token of ann: %s", got.body)
	}
	if got := l.post(revoke, url.Values{}); got.StatusCode != http.StatusForbidden {
		t.Errorf("bob revokes it: %s", got.Status)
	}
	l.signIn(token)
	if got := l.post(revoke, url.Values{}); got.StatusCode != http.StatusSeeOther || got.location() != "/tokens?done=token-revoked" {
		t.Fatalf("ann revokes it: %s to %q", got.Status, got.location())
	}
	if _, err := l.tokens.Authenticate(t.Context(), text); err == nil {
		t.Error("the token works")
	}
	if got := l.get("/tokens?done=token-revoked"); !strings.Contains(got.body, "The token is revoked") || !strings.Contains(got.body, "Revoked") || strings.Contains(got.body, revoke) {
		t.Errorf("the list is %s", got.body)
	}
	if !strings.HasSuffix(l.audit.whats(), "bob denied, ann signed-in, ann token-revoked") {
		t.Errorf("the audit log has %s", l.audit.whats())
	}
}

// RG-19: tokens of namespaces over the API.
func TestTokensOfNamespaces(t *testing.T) {
	l := newLobby(t)
	call := func(method, path string, in, out any) shown {
		t.Helper()
		body, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		got := l.do(method, path, nil, program, bearer, func(r *http.Request) {
			if method == http.MethodPost {
				r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
				r.Header.Set("Content-Type", "application/json")
			}
		})
		if out != nil && got.StatusCode == http.StatusOK {
			if err := json.Unmarshal([]byte(got.body), out); err != nil {
				t.Fatal(err)
			}
		}
		return got
	}
	var made command.MadeRegistryToken
	if got := call(http.MethodPost, "/api/v1/namespaces/apps/registry/tokens", command.NewRegistryToken{Name: "ci", Write: true, LifeSeconds: 3600}, &made); got.StatusCode != http.StatusOK || made.Secret == "" || made.Namespace != "apps" || made.By != "ann" {
		t.Fatalf("creating is %s %s", got.Status, got.body)
	}
	if got := call(http.MethodPost, "/api/v1/namespaces/apps/registry/tokens", command.NewRegistryToken{Name: "ci"}, nil); got.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("a token without an end is %s %s", got.Status, got.body)
	}
	var listed list[regtoken.Token]
	if got := call(http.MethodGet, "/api/v1/registry/tokens", nil, &listed); len(listed.Items) != 1 || listed.Items[0].ID != made.ID || strings.Contains(got.body, "sha256") || strings.Contains(got.body, made.Secret) {
		t.Errorf("the list is %s", got.body)
	}
	if got := call(http.MethodPost, "/api/v1/registry/tokens/"+made.ID+"/revoke", struct{}{}, nil); got.StatusCode != http.StatusOK {
		t.Errorf("revoking is %s %s", got.Status, got.body)
	}
	if got := call(http.MethodPost, "/api/v1/registry/tokens/0123456789abcdef/revoke", struct{}{}, nil); got.StatusCode != http.StatusNotFound {
		t.Errorf("revoking no token is %s %s", got.Status, got.body)
	}
	if want := "ann token-created, ann token-revoked"; l.audit.whats() != want {
		t.Errorf("the audit log has %s, want %s", l.audit.whats(), want)
	}
	l.auth.deny(access.ResourceRegistry)
	if call(http.MethodGet, "/api/v1/registry/tokens", nil, &listed); len(listed.Items) != 0 {
		t.Errorf("who may not publish sees %+v", listed)
	}
}

// A server without a registry has no tokens.
func TestNoTokensWithoutARegistry(t *testing.T) {
	b := newBrowser(t, func(o *Options) { o.Tokens = nil })
	b.signIn(token)
	if got := b.get("/tokens"); got.StatusCode != http.StatusOK || !strings.Contains(got.body, "No registry") {
		t.Errorf("the list is %s", got.Status)
	}
	if got := b.get(login.AuthorizePath + "?" + loginQuery().Encode()); got.StatusCode != http.StatusNotFound {
		t.Errorf("the question is %s", got.Status)
	}
	if got := b.post(login.AuthorizePath, loginForm("confirm")); got.StatusCode != http.StatusNotFound {
		t.Errorf("the decision is %s", got.Status)
	}
	if got := (lobby{browser: b}).exchange(exchangeForm("x")); got.StatusCode != http.StatusNotFound || !strings.Contains(got.body, login.Unavailable) {
		t.Errorf("the endpoint is %s %s", got.Status, got.body)
	}
	if got := b.get("/stacks"); strings.Contains(got.body, `href="/tokens"`) {
		t.Error("the menu has tokens")
	}
}

var _ pages.Tokens = (*regtoken.Book)(nil)
