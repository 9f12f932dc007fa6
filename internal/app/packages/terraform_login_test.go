package packages

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/oauth2"

	"github.com/terrier-iac/terrier/internal/secret"
)

// logins are the requests of a login, noted while a server answers them: without what differs
// each time.
type logins struct {
	mu  sync.Mutex
	all []string
}

var (
	anyPort = regexp.MustCompile(`^http://localhost:\d+/`)
	secrets = []string{"state", "code", "code_challenge", "code_verifier"}
)

// noted notes the requests of the command line, and where it sends the browser.
func (l *logins) noted(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/.well-known/terraform.json":
			l.note("GET", r.URL.Path, r.Header, nil)
		case "/login/authorize":
			if r.Method == http.MethodGet {
				l.note("browser", r.URL.Path, nil, r.URL.Query())
			}
		case "/login/token":
			body, err := io.ReadAll(r.Body)
			form, errForm := url.ParseQuery(string(body))
			if err := errors.Join(err, errForm); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			l.note(r.Method, r.URL.Path, r.Header, form)
		}
		h.ServeHTTP(w, r)
	})
}

func (l *logins) note(method, path string, header http.Header, values url.Values) {
	text := method + " " + path
	for _, name := range slices.Sorted(maps.Keys(header)) {
		if name != "Content-Length" { // it depends on the port
			text += "\n  " + name + ": " + strings.Join(header[name], ", ")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		for _, value := range values[name] {
			if slices.Contains(secrets, name) {
				value = fmt.Sprintf("%d characters", len(value))
			}
			text += "\n  " + name + " = " + anyPort.ReplaceAllString(value, "http://localhost:PORT/")
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Contains(l.all, text) { // a browser is sent to sign in, and comes back
		l.all = append(l.all, text)
	}
}

func (l *logins) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.all, "\n") + "\n"
}

// commandLine is a program that logs in. Tofu and terraform do it in the same way, but for how
// they call themselves: the parameters are those of internal/command/login.go of terraform
// 1.11 and the discovery of terraform-svchost, and the requests are made by golang.org/x/oauth2,
// as theirs are.
type commandLine struct {
	discovers string // the User-Agent of discovery
	agent     string // that of all other requests
	version   string // X-Terraform-Version of requests to a registry
}

var (
	tofuLine      = commandLine{"OpenTofu/1.12.6", "OpenTofu/1.12.6", "1.12.6"}
	terraformLine = commandLine{"HashiCorp Terraform/1.11.4 (+https://www.terraform.io)", "Terraform/1.11.4", "1.11.4"}
)

// as sends requests with a User-Agent.
type as struct {
	http.RoundTripper
	agent string
}

func (a as) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("User-Agent", a.agent)
	return a.RoundTripper.RoundTrip(r)
}

// attempt is a login that goes on.
type attempt struct {
	*stand
	line     commandLine
	config   oauth2.Config
	state    string
	verifier string
	code     string
}

// begin asks for discovery, waits at a port of it, and has the user confirm in a browser. Scopes
// are added to those of discovery.
func (s *stand) begin(line commandLine, scopes ...string) *attempt {
	t := s.t
	t.Helper()
	a := &attempt{stand: s, line: line, state: hexUUID(), verifier: hexUUID() + ".000000042"}
	service := a.discover()
	listener, port := listen(t, service.Ports)
	a.config = oauth2.Config{
		ClientID: service.Client, Scopes: append(service.Scopes, scopes...), RedirectURL: fmt.Sprintf("http://localhost:%d/login", port),
		Endpoint: oauth2.Endpoint{AuthURL: s.base.String() + service.Authz, TokenURL: s.base.String() + service.Token, AuthStyle: oauth2.AuthStyleInParams},
	}
	got := make(chan url.Values, 1)
	server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.URL.Query() })}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	sum := sha256.Sum256([]byte(a.verifier))
	s.confirm(a.config.AuthCodeURL(a.state,
		oauth2.SetAuthURLParam("code_challenge", base64.RawURLEncoding.EncodeToString(sum[:])), oauth2.SetAuthURLParam("code_challenge_method", "S256")))
	answer := <-got
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		t.Fatal(err)
	}
	if answer.Get("state") != a.state || answer.Get("code") == "" {
		t.Fatalf("the command line gets %v", answer)
	}
	a.code = answer.Get("code")
	return a
}

// login1 is login.v1 of a discovery document.
type login1 struct {
	Client string   `json:"client"`
	Grants []string `json:"grant_types"`
	Authz  string   `json:"authz"`
	Token  string   `json:"token"`
	Ports  []uint16 `json:"ports"`
	Scopes []string `json:"scopes"`
}

func (a *attempt) discover() login1 {
	t := a.t
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.base.String()+"/.well-known/terraform.json", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/json")
	resp, err := a.client(a.line.discovers).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var found struct {
		Login login1 `json:"login.v1"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&found); err != nil {
		t.Fatal(err)
	}
	l := found.Login
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/json" || l.Client == "" || !slices.Equal(l.Grants, []string{"authz_code"}) || len(l.Ports) != 2 || l.Ports[0] < 1024 || l.Ports[1] < l.Ports[0] {
		t.Fatalf("discovery is %s %v: %+v", resp.Status, resp.Header, l)
	}
	return l
}

// client is one without cookies.
func (s *stand) client(agent string) *http.Client {
	return &http.Client{Transport: as{s.http.Transport, agent}}
}

// exchange sends the code for a token, with a verifier.
func (a *attempt) exchange(verifier string) (secret.Text, error) {
	ctx := context.WithValue(a.t.Context(), oauth2.HTTPClient, a.client(a.line.agent))
	token, err := a.config.Exchange(ctx, a.code, oauth2.SetAuthURLParam("code_verifier", verifier))
	if err != nil {
		return secret.Text{}, err
	}
	return secret.New(token.AccessToken), nil
}

// keep is what a command line does with its token: commands read it from this file.
func (a *attempt) keep(token secret.Text) {
	a.t.Helper()
	text, err := json.Marshal(map[string]any{"credentials": map[string]any{a.base.Host: map[string]string{"token": token.Reveal()}}})
	dir := filepath.Join(a.home, ".terraform.d")
	if err := errors.Join(err, os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "credentials.tfrc.json"), text, 0o600)); err != nil {
		a.t.Fatal(err)
	}
}

// versions asks for the versions of the module, as the command line does with its token.
func (a *attempt) versions(token secret.Text) (int, string) {
	t := a.t
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.base.String()+"/v1/modules/net/hello/demo/versions", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token.Reveal())
	req.Header.Set("X-Terraform-Version", a.line.version)
	resp, err := a.client(a.line.agent).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// hexUUID is random, in the form of a UUID.
func hexUUID() string {
	b := make([]byte, 16)
	rand.Read(b) // never fails
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// listen takes a free port of the range, which other programs use as well.
func listen(t *testing.T, ports []uint16) (net.Listener, uint16) {
	t.Helper()
	var last error
	for port := ports[0]; port <= ports[1]; port++ {
		l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return l, port
		}
		last = err
	}
	t.Fatal(last)
	return nil, 0
}

// publishHello publishes the module that logins are tried with.
func (s *stand) publishHello() {
	s.t.Helper()
	module := s.t.TempDir()
	if err := os.WriteFile(filepath.Join(module, "main.tf"), []byte("output \"says\" {\n  value = \"hello\"\n}\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if code, out := s.terrier("cluster-token-of-ci", "module", "push", module, "--namespace", "net", "--name", "hello", "--system", "demo", "--version", "1.0.0"); code != 0 {
		s.t.Fatalf("terrier module push ended with %d: %s", code, out)
	}
}

// RG-20: "terraform login" gets a token with which commands work until it is revoked. The
// program cannot be had here, so its requests are sent by a client that sends what the real
// "tofu login" sends, byte by byte but for their names: that is compared first.
func TestTerraformLogin(t *testing.T) {
	real, replayed := newStand(t), newStand(t)
	real.login()
	tofu := replayed.begin(tofuLine)
	if _, err := tofu.exchange(tofu.verifier); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(real.logins.String(), replayed.logins.String()); diff != "" {
		t.Fatalf("the client of this test sends other requests than tofu login (-tofu +test):\n%s", diff)
	}

	s := newStand(t)
	a := s.begin(terraformLine)
	token, err := a.exchange(a.verifier)
	if err != nil {
		t.Fatal(err)
	}
	renamed := strings.NewReplacer(tofuLine.discovers, terraformLine.agent, "HashiCorp Terraform/1.11.4 (+https://www.terraform.io)", terraformLine.agent)
	if diff := cmp.Diff(renamed.Replace(real.logins.String()), renamed.Replace(s.logins.String())); diff != "" {
		t.Errorf("terraform login differs in more than its names (-tofu +terraform):\n%s", diff)
	}
	if asked := s.logins.String(); !strings.Contains(asked, "User-Agent: "+terraformLine.discovers+"\n") || strings.Contains(asked, "Authorization") {
		t.Errorf("the requests are:\n%s", asked)
	}
	s.publishHello()
	if status, body := a.versions(token); status != http.StatusOK || !strings.Contains(body, `"1.0.0"`) {
		t.Errorf("with the token the versions are %d %s", status, body)
	}
	a.keep(token)
	if out, err := s.init(); err != nil {
		t.Errorf("with the token in the file of credentials: %v: %s", err, out)
	}
	all, err := s.tokens.List(t.Context())
	if err != nil || len(all) != 1 || all[0].User != "ann" {
		t.Fatalf("the tokens are %+v, %v", all, err)
	}
	s.browse(http.MethodPost, s.base.String()+"/tokens/"+all[0].ID+"/revoke", url.Values{})
	if status, body := a.versions(token); status != http.StatusUnauthorized || !strings.Contains(body, "was revoked by ann") {
		t.Errorf("with the revoked token the versions are %d %s, want 401", status, body)
	}
	if out, err := s.init(); err == nil {
		t.Errorf("with the revoked token the module is installed: %s", out)
	}
}

// RG-20: what a "terraform login" does not get a token for. The client learns why, in the words
// of RFC 6749, and shows it to its user.
func TestTerraformLoginsThatAreRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		exchange func(*attempt) (secret.Text, error)
		says     string
	}{
		"another verifier": {func(a *attempt) (secret.Text, error) { return a.exchange(hexUUID() + ".000000042") }, "the code_verifier does not match"},
		"no verifier":      {func(a *attempt) (secret.Text, error) { return a.exchange("") }, "the code_verifier does not match"},
		"a code that was used": {func(a *attempt) (secret.Text, error) {
			if _, err := a.exchange(a.verifier); err != nil {
				return secret.Text{}, fmt.Errorf("the first use: %w", err)
			}
			return a.exchange(a.verifier)
		}, "the code was used before"},
		"a code that another verifier was tried with": {func(a *attempt) (secret.Text, error) {
			_, err := a.exchange(hexUUID() + ".000000042")
			token, again := a.exchange(a.verifier)
			if err == nil {
				return token, nil
			}
			return token, again
		}, "the code was used before"},
		"another port": {func(a *attempt) (secret.Text, error) {
			a.config.RedirectURL = "http://localhost:9999/login"
			return a.exchange(a.verifier)
		}, "the redirect_uri is another one"},
		"another client": {func(a *attempt) (secret.Text, error) {
			a.config.ClientID = "other"
			return a.exchange(a.verifier)
		}, "the client_id is not"},
		"a secret in the form": {func(a *attempt) (secret.Text, error) {
			a.config.ClientSecret = "secret"
			return a.exchange(a.verifier)
		}, "which has no secret"},
		"basic authentication": {func(a *attempt) (secret.Text, error) {
			a.config.ClientSecret, a.config.Endpoint.AuthStyle = "secret", oauth2.AuthStyleInHeader
			return a.exchange(a.verifier)
		}, "the client has no secret"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t)
			token, err := tt.exchange(s.begin(terraformLine))
			var refused *oauth2.RetrieveError
			if !errors.As(err, &refused) || refused.Response.StatusCode != http.StatusBadRequest || refused.ErrorCode == "" || !strings.Contains(refused.ErrorDescription, tt.says) {
				t.Errorf("the exchange is %v, %v; want an error of RFC 6749 that says %q", token, err, tt.says)
			}
		})
	}
}

// Scopes that an identity provider would need are asked for by the client and mean nothing here.
func TestScopesOfALoginMeanNothing(t *testing.T) {
	s := newStand(t)
	a := s.begin(terraformLine, "openid", "groups")
	if !strings.Contains(s.logins.String(), "scope = openid groups\n") {
		t.Errorf("the client asks for no scopes:\n%s", s.logins.String())
	}
	s.publishHello()
	if token, err := a.exchange(a.verifier); err != nil {
		t.Error(err)
	} else if status, body := a.versions(token); status != http.StatusOK {
		t.Errorf("the versions are %d %s", status, body)
	}
}
