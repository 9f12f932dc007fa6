package packages

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/crane"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/access/regtoken"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/cli"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry/registrytest/enginetest"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/source"
	"github.com/terrier-iac/terrier/internal/web"
)

// cluster knows ann and ci by their tokens, and lets them do what its roles say.
type cluster struct {
	mu    sync.Mutex
	roles map[string]bool // USER VERB NAMESPACE
}

// Namespace is any: the cluster has all of them.
func (c *cluster) Namespace(_ context.Context, name string) (access.Namespace, error) {
	return access.Namespace{UID: "uid-of-" + name}, nil
}

func (c *cluster) Authenticate(_ context.Context, t secret.Text) (access.User, error) {
	if name, ok := strings.CutPrefix(t.Reveal(), "cluster-token-of-"); ok {
		return access.User{Name: name, Groups: []string{"system:authenticated"}}, nil
	}
	return access.User{}, fault.New(fault.Denied, access.ReasonUnknownUser, errors.New("the cluster does not know the token"))
}

func (c *cluster) Authorize(_ context.Context, u access.User, x access.Request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if x.Resource == access.ResourceRegistry && c.roles[u.Name+" "+x.Verb+" "+x.Namespace] {
		return nil
	}
	return fault.New(fault.Denied, access.ReasonAccessDenied, fmt.Errorf("%s may not %s %s in %s", u.Name, x.Verb, x.Resource, x.Namespace))
}

func (c *cluster) set(role string, may bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.roles[role] = may
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// stand is a server with a registry, and a user with a computer in front of it.
type stand struct {
	t       *testing.T
	cluster *cluster
	tokens  *regtoken.Book
	base    *url.URL
	http    *http.Client // the browser
	home    string       // of the user
	ca      string
	log     *lockedBuffer
	logins  logins
}

func newStand(t *testing.T) *stand {
	t.Helper()
	return newStandOf(t, nil)
}

// newStandOf has a registry with other options.
func newStandOf(t *testing.T, edit func(*Options)) *stand {
	t.Helper()
	s := &stand{t: t, cluster: &cluster{roles: map[string]bool{"ci update net": true, "ci get net": true, "ann get net": true}}, home: t.TempDir(), log: &lockedBuffer{}}
	log := slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	records, err := blob.OpenFiles(t.TempDir(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	s.tokens = regtoken.NewBook(records, s.cluster.Namespace, time.Now, slog.New(slog.DiscardHandler))
	auth := regtoken.Guard{Authority: s.cluster}
	pushed, err := source.NewRegistry(t.TempDir(), source.RegistryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	options := Options{
		Inside: pushed, Namespace: s.cluster.Namespace, Dir: t.TempDir(), Scratch: t.TempDir(), Key: strings.Repeat("k", 32), Auth: auth, Registerer: prometheus.NewRegistry(),
		Environ: func(string) string { return "" }, Log: log, Now: time.Now,
	}
	if edit != nil {
		edit(&options)
	}
	p, err := Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	other := httptest.NewTLSServer(nil) // all of them have the same certificate
	s.ca = enginetest.Authority(t, other)
	other.Close()
	authority, err := os.ReadFile(s.ca)
	if err != nil {
		t.Fatal(err)
	}
	h, err := web.New(web.Options{
		Stacks: struct{ web.Stacks }{}, Auth: auth, Hosts: []string{"127.0.0.1"}, Version: "v1", Log: log,
		Packages: p, Catalog: p.Catalog, Authority: authority, Registry: p, Tokens: s.tokens, LoginLife: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewTLSServer(s.logins.noted(h))
	t.Cleanup(func() {
		srv.Close()
		if err := errors.Join(p.Close(), records.Close()); err != nil {
			t.Error(err)
		}
	})
	if s.base, err = url.Parse(srv.URL); err != nil {
		t.Fatal(err)
	}
	s.http = srv.Client()
	s.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if s.http.Jar, err = cookiejar.New(nil); err != nil {
		t.Fatal(err)
	}
	return s
}

// engine is the real engine on the computer of the user, where "tofu login" keeps a token.
func (s *stand) engine() enginetest.Client {
	return enginetest.Client{Authority: s.ca, Home: s.home}
}

// browse sends what a browser sends for a link or a form of ours, and returns where it leads.
func (s *stand) browse(method, address string, form url.Values) (location, body string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, address, strings.NewReader(form.Encode()))
	if err != nil {
		s.t.Fatal(err)
	}
	for name, value := range map[string]string{"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"} {
		req.Header.Set(name, value)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if resp.StatusCode >= http.StatusBadRequest {
		s.t.Fatalf("%s %s is %s: %s", method, address, resp.Status, text)
	}
	if to := resp.Header.Get("Location"); to != "" {
		u, err := req.URL.Parse(to)
		if err != nil {
			s.t.Fatal(err)
		}
		return u.String(), string(text)
	}
	return "", string(text)
}

// login runs the real "tofu login": its user confirms on the page, in a browser that has to
// sign in first. It returns the token that the engine keeps.
func (s *stand) login() secret.Text {
	s.t.Helper()
	return secret.New(s.engine().Login(s.t, s.base.Host, s.confirm))
}

// confirm is what the user does with the address that the command line shows.
func (s *stand) confirm(address string) {
	t := s.t
	t.Helper()
	signIn, _ := s.browse(http.MethodGet, address, nil)
	u, err := url.Parse(signIn)
	if err != nil || u.Path != "/sign-in" {
		t.Fatalf("a browser without a session is led to %s", signIn)
	}
	back, _ := s.browse(http.MethodPost, signIn, url.Values{"token": {"cluster-token-of-ann"}, "to": {u.Query().Get("to")}})
	if back != address {
		t.Fatalf("signing in leads to %s, want %s", back, address)
	}
	if _, page := s.browse(http.MethodGet, back, nil); !strings.Contains(page, "a token as <bdi>ann</bdi>?") {
		t.Fatalf("the page is %s", page)
	}
	u, err = url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	form := u.Query()
	form.Set("decision", "confirm")
	to, _ := s.browse(http.MethodPost, s.base.String()+"/login/authorize", form)
	if !strings.HasPrefix(to, "http://localhost:") {
		t.Fatalf("confirming leads to %s", to)
	}
	resp, err := http.Get(to) //nolint:noctx // as a browser that follows the redirect
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("the command line answers %s", resp.Status)
	}
}

// get asks the registry with a token.
func (s *stand) get(path string, token secret.Text) (int, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.base.String()+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token.Reveal())
	resp, err := (&http.Client{Transport: s.http.Transport}).Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func (s *stand) terrier(token string, args ...string) (int, string) {
	s.t.Helper()
	var out bytes.Buffer
	code := cli.Main(cli.Env{
		Args: args, Environ: []string{"TERRIER_SERVER=" + s.base.String(), "TERRIER_SERVER_CA=" + s.ca, "TERRIER_TOKEN=" + token, "TMPDIR=" + s.t.TempDir()},
		Dir: s.t.TempDir(), Now: time.Now, Version: "v1", Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out,
	})
	return code, out.String()
}

// init is whether the real engine installs the private module, with what its user has.
func (s *stand) init() (string, error) {
	s.t.Helper()
	return s.engine().Init(s.t, enginetest.Using(s.t, s.base.Host+"/net/hello/demo", "1.0.0"))
}

// RG-20: the real "tofu login" gets a token for the user who confirms, with which the real
// engine installs a private module for as long as the roles of that user allow it, and the
// token is not revoked. RG-19: it opens nothing else, and is in no log.
func TestTofuLogin(t *testing.T) {
	s := newStand(t)
	module := t.TempDir()
	if err := os.WriteFile(filepath.Join(module, "main.tf"), []byte("output \"says\" {\n  value = \"hello\"\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	push := []string{"module", "push", module, "--namespace", "net", "--name", "hello", "--system", "demo", "--version"}
	if code, out := s.terrier("cluster-token-of-ci", append(slices.Clone(push), "1.0.0")...); code != 0 {
		t.Fatalf("terrier module push ended with %d: %s", code, out)
	}
	if out, err := s.init(); err == nil {
		t.Fatalf("without a token the module is installed: %s", out)
	}
	token := s.login()
	if out, err := s.init(); err != nil {
		t.Fatalf("with the token: %v: %s", err, out)
	}
	const versions = "/v1/modules/net/hello/demo/versions"
	for path, want := range map[string]int{versions: http.StatusOK, "/v1/modules/other/hello/demo/versions": http.StatusForbidden, "/api/v1/version": http.StatusUnauthorized, "/api/v1/registry/tokens": http.StatusUnauthorized} {
		if status, body := s.get(path, token); status != want {
			t.Errorf("%s is %d %s, want %d", path, status, body, want)
		}
	}
	if code, out := s.terrier(token.Reveal(), append(slices.Clone(push), "1.1.0")...); code != 3 {
		t.Errorf("publishing without the right ended with %d: %s, want 3", code, out)
	}
	s.cluster.set("ann update net", true)
	if code, out := s.terrier(token.Reveal(), append(slices.Clone(push), "1.1.0")...); code != 0 {
		t.Errorf("publishing with the right ended with %d: %s", code, out)
	}
	s.cluster.set("ann get net", false)
	if status, body := s.get(versions, token); status != http.StatusForbidden {
		t.Errorf("without the role of its user it is %d %s, want 403", status, body)
	}
	s.cluster.set("ann get net", true)

	all, err := s.tokens.List(t.Context())
	if err != nil || len(all) != 1 || all[0].User != "ann" || !strings.HasPrefix(all[0].Name, "tofu login, "+s.base.Host+", ") {
		t.Fatalf("the tokens are %+v, %v", all, err)
	}
	s.browse(http.MethodPost, s.base.String()+"/tokens/"+all[0].ID+"/revoke", url.Values{})
	if status, body := s.get(versions, token); status != http.StatusUnauthorized || !strings.Contains(body, "was revoked by ann") {
		t.Errorf("a revoked token is %d %s, want 401", status, body)
	}
	if out, err := s.init(); err == nil {
		t.Errorf("with a revoked token the module is installed: %s", out)
	}
	if log := s.log.String(); strings.Contains(log, token.Reveal()) || strings.Contains(log, strings.Split(token.Reveal(), ".")[2]) || !strings.Contains(log, "/v1/modules/") {
		t.Error("the log has the token, or nothing at all")
	}
}

// RG-19: a token of a namespace publishes and reads there, and nowhere else.
func TestTokenOfANamespace(t *testing.T) {
	s := newStand(t)
	_, text, err := s.tokens.Create(t.Context(), regtoken.Wanted{Name: "ci", Namespace: "net", By: "ann", Life: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{
		"/v1/modules/net/none/demo/versions": http.StatusNotFound, "/v1/modules/net2/none/demo/versions": http.StatusForbidden, "/v1/modules/%6eet/none/demo/versions": http.StatusNotFound,
		"/v1/providers/net/none/versions": http.StatusNotFound, "/v1/providers/other/none/versions": http.StatusForbidden, "/v2/": http.StatusOK, "/v2/net/x/tags/list": http.StatusForbidden, "/v2/_catalog": http.StatusForbidden,
		"/v2/net/modules/none/demo/tags/list": http.StatusNotFound, "/v2/other/modules/none/demo/tags/list": http.StatusForbidden, "/v2/net/providers/none/tags/list": http.StatusNotFound,
	} {
		if status, body := s.get(path, text); status != want {
			t.Errorf("%s is %d %s, want %d", path, status, body, want)
		}
	}
}

// RG-19, RG-21: a token for the registry is the password of clients of OCI registries, with
// any user name. They ask without credentials first, and are asked for a password. Such a
// token reads modules, pushes nothing, and opens no repository that users pushed.
func TestTokensOverOCI(t *testing.T) {
	s := newStand(t)
	module := t.TempDir()
	if err := os.WriteFile(filepath.Join(module, "main.tf"), []byte("output \"says\" {\n  value = \"hello\"\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out := s.terrier("cluster-token-of-ci", "module", "push", module, "--namespace", "net", "--name", "hello", "--system", "demo", "--version", "1.0.0"); code != 0 {
		t.Fatalf("terrier module push ended with %d: %s", code, out)
	}
	with := func(password secret.Text) []crane.Option {
		return []crane.Option{crane.WithTransport(s.http.Transport), crane.WithAuth(&authn.Basic{Username: "any", Password: password.Reveal()})}
	}
	code := secret.New("cluster-token-of-ci")
	if err := crane.Push(empty.Image, s.base.Host+"/net/code:v1", with(code)...); err != nil {
		t.Fatal(err)
	}
	_, ofNamespace, err := s.tokens.Create(t.Context(), regtoken.Wanted{Name: "ci", Namespace: "net", Write: true, By: "ann", Life: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	_, ofUser, err := s.tokens.Create(t.Context(), regtoken.Wanted{Name: "laptop", User: access.User{Name: "ann"}, Life: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for name, token := range map[string]secret.Text{"of a namespace": ofNamespace, "of a user": ofUser} {
		if tags, err := crane.ListTags(s.base.Host+"/net/modules/hello/demo", with(token)...); err != nil || !slices.Equal(tags, []string{"1.0.0"}) {
			t.Errorf("a token %s: the tags are %q, %v, want 1.0.0", name, tags, err)
		}
		if _, err := crane.Pull(s.base.Host+"/net/modules/hello/demo:1.0.0", with(token)...); err != nil {
			t.Errorf("a token %s: %v", name, err)
		}
		if _, err := crane.ListTags(s.base.Host+"/net/code", with(token)...); err == nil || !strings.Contains(err.Error(), "DENIED") {
			t.Errorf("a token %s: a repository that a user pushed: %v, want DENIED", name, err)
		}
		if err := crane.Push(empty.Image, s.base.Host+"/net/code:v2", with(token)...); err == nil {
			t.Errorf("a token %s pushed the code of a stack", name)
		}
	}
	if tags, err := crane.ListTags(s.base.Host+"/net/code", with(code)...); err != nil || !slices.Equal(tags, []string{"v1"}) {
		t.Errorf("with a token of the cluster the tags are %q, %v, want v1", tags, err)
	}
	for _, path := range []string{"/v2/", "/v2/net/modules/hello/demo/tags/list"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.base.String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Client{Transport: s.http.Transport}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Fatal(err)
		}
		if asked := resp.Header.Get("WWW-Authenticate"); resp.StatusCode != http.StatusUnauthorized || !strings.HasPrefix(asked, "Basic realm=") {
			t.Errorf("%s without a token is %d and asks for %q, want a password", path, resp.StatusCode, asked)
		}
	}
}
