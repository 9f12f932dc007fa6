package registryserver

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/crane"
	"go.uber.org/goleak"

	"github.com/terrier-iac/terrier/internal/audit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// running is a registry in this process.
type running struct {
	Ready
	http *http.Client
	dir  string
	stop func() error
	logs func() string
}

// environ are the credentials of a bucket.
func environ(name string) string {
	return map[string]string{"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}[name]
}

// start runs the registry until the end of the test.
func start(t *testing.T, edit func(*Config)) *running {
	t.Helper()
	dir := t.TempDir()
	c := Config{DataDir: dir, Listen: "127.0.0.1:0", Metrics: "127.0.0.1:0", Drain: time.Minute, Stall: time.Minute, Output: "json", LogLevel: "debug"}
	if edit != nil {
		edit(&c)
	}
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	var logs lockedBuffer
	ended := make(chan error, 1)
	go func() {
		err := Run(ctx, Options{Config: c, Program: "terrier", Version: "v1", Stdout: in, Stderr: &logs, Now: time.Now, Environ: environ})
		in.CloseWithError(err)
		ended <- err
	}()
	line, err := bufio.NewReader(out).ReadBytes('\n')
	r := &running{dir: dir, logs: logs.String}
	if err == nil {
		err = json.Unmarshal(line, &r.Ready)
	}
	if err != nil {
		cancel()
		t.Fatalf("the registry did not start: %v: %s", err, logs.String())
	}
	transport := &http.Transport{ForceAttemptHTTP2: true, ExpectContinueTimeout: time.Minute}
	if r.CA != "" {
		pem, err := os.ReadFile(r.CA)
		if err != nil {
			t.Fatal(err)
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(pem)
		transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	r.http = &http.Client{Transport: transport}
	r.stop = sync.OnceValue(func() error {
		transport.CloseIdleConnections()
		cancel()
		return <-ended
	})
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Errorf("the registry ended with %v", err)
		}
	})
	return r
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// get returns the status and the body of an address.
func (r *running) get(t *testing.T, url, token string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := r.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// RG-22: probes answer, and metrics are at an address of their own.
func TestProbesAndMetrics(t *testing.T) {
	r := start(t, nil)
	for _, path := range []string{"/healthz", "/readyz"} {
		if status, body := r.get(t, r.URL+path, ""); status != http.StatusOK {
			t.Errorf("%s is %d %s", path, status, body)
		}
	}
	if status, _ := r.get(t, r.URL+"/metrics", ""); status != http.StatusNotFound {
		t.Errorf("/metrics at the address of the registry is %d, want 404", status)
	}
	status, body := r.get(t, r.Metrics, "")
	for _, want := range []string{`terrier_registry_requests_total{code="200",method="GET",route="/readyz"} 1`, `terrier_build_info{`, "go_goroutines"} {
		if status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("the metrics are %d, without %s:\n%s", status, want, body)
		}
	}
}

// The first start makes what a registry needs, and the next one finds it.
func TestFirstStart(t *testing.T) {
	r := start(t, nil)
	token, err := os.ReadFile(r.Token)
	if err != nil || len(strings.TrimSpace(string(token))) < 32 {
		t.Fatalf("the first token is %q, %v", token, err)
	}
	if info, err := os.Stat(r.Token); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the first token can be read by others: %v, %v", info.Mode(), err)
	}
	ca, err := os.ReadFile(r.CA)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	again := start(t, func(c *Config) { c.DataDir = r.dir })
	next, err := os.ReadFile(again.CA)
	if err != nil || !bytes.Equal(ca, next) {
		t.Errorf("the authority is another one after a start (%v)", err)
	}
	if again.Token != r.Token {
		t.Errorf("the token is %q, was %q", again.Token, r.Token)
	}
	if text := welcome(again.Ready, "terrier"); !strings.Contains(text, again.CA) || !strings.Contains(text, "credentials") || strings.Contains(text, strings.TrimSpace(string(token))) {
		t.Errorf("what is printed lacks the authority or the credentials, or shows the token:\n%s", text)
	}
}

// A changed certificate is served without a start, and an invalid one is not.
func TestCertificateIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	install := func(name string) *tls.Config {
		pair, pool := newPair(t, name)
		for file, text := range pair {
			if err := os.WriteFile(filepath.Join(dir, file), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return &tls.Config{RootCAs: pool, ServerName: name}
	}
	config := install("one.example.com")
	r := start(t, func(c *Config) { c.Cert, c.Key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key") })
	served := func(config *tls.Config) error {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(r.URL, "https://"), config)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	if err := served(config); err != nil {
		t.Fatalf("the certificate is not served: %v", err)
	}
	next := install("two.example.com")
	await(t, "the changed certificate is served", func() bool { return served(next) == nil })
	if err := os.WriteFile(filepath.Join(dir, "tls.key"), []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	await(t, "the log names the invalid files", func() bool {
		if err := served(next); err != nil {
			t.Fatalf("after an invalid file the last certificate is not served: %v", err)
		}
		return strings.Contains(r.logs(), "certificate not changed")
	})
}

// await polls until something is so.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(5 * time.Minute)
	for !is() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	for want, edit := range map[string]func(*Config){
		"--listen-address":           func(c *Config) { c.Listen = "8443" },
		"--metrics-address":          func(c *Config) { c.Metrics = "x" },
		"--tls-cert-file and":        func(c *Config) { c.Cert = "x" },
		"--plain-http":               func(c *Config) { c.PlainHTTP, c.Cert, c.Key = true, "x", "y" },
		"--storage":                  func(c *Config) { c.Storage = "ftp://x" },
		"--log-level":                func(c *Config) { c.LogLevel = "loud" },
		"--output":                   func(c *Config) { c.Output = "xml" },
		"--drain":                    func(c *Config) { c.Drain = -1 },
		"--allow-host":               func(c *Config) { c.AllowHosts = []string{"a b"} },
		"reading the file of rights": func(c *Config) { c.Rights = "nowhere.yaml" },
		"no such file or directory":  func(c *Config) { c.Cert, c.Key = "nowhere", "nowhere" },
		"need each other":            func(c *Config) { c.LoginClient = "tofu" },
		"--login-token-url": func(c *Config) {
			c.LoginClient, c.LoginAuthz, c.LoginToken, c.LoginPorts = "tofu", "https://id.example.com/authorize", "http://id.example.com/token", "10000-10010"
		},
		"--login-ports": func(c *Config) {
			c.LoginClient, c.LoginAuthz, c.LoginToken, c.LoginPorts = "tofu", "https://id.example.com/authorize", "https://id.example.com/token", "10010-10000"
		},
		"--archive-key-file: reading": func(c *Config) { c.ArchiveKey = os.DevNull },
	} {
		t.Run(want, func(t *testing.T) {
			c := Config{DataDir: t.TempDir(), Listen: "127.0.0.1:0", Drain: time.Second, Stall: time.Second, LogLevel: "info"}
			edit(&c)
			err := Run(t.Context(), Options{Config: c, Stdout: io.Discard, Stderr: io.Discard, Now: time.Now, Environ: func(string) string { return "" }})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Run() = %v, want an error with %q", err, want)
			}
		})
	}
}

// RG-20: discovery leads "tofu login" to the identity provider of the operator.
func TestDiscoveryNamesTheIdentityProvider(t *testing.T) {
	r := start(t, func(c *Config) {
		c.LoginClient, c.LoginAuthz, c.LoginToken, c.LoginPorts, c.LoginScopes = "tofu", "https://id.example.com/authorize", "https://id.example.com/token", "10000-10010", []string{"openid", "groups"}
	})
	resp, err := r.http.Get(r.URL + "/.well-known/terraform.json")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got struct {
		Login json.RawMessage `json:"login.v1"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	const want = `{"authz":"https://id.example.com/authorize","client":"tofu","grant_types":["authz_code"],"ports":[10000,10010],"scopes":["openid","groups"],"token":"https://id.example.com/token"}`
	if string(got.Login) != want {
		t.Errorf("login.v1 is %s, want %s", got.Login, want)
	}
}

// RG-21: clients of OCI registries log in with a token as their password, and see what was
// published. The first request of a client has no credentials.
func TestRepositories(t *testing.T) {
	r := start(t, nil)
	dir := files(t, map[string]string{"main.tf": "output \"hello\" {\n  value = \"world\"\n}\n"})
	r.works(t, "module", "push", dir, "--namespace", "example", "--name", "hello", "--system", "demo", "--version", "1.0.0")
	host := r.host()
	options := []crane.Option{crane.WithTransport(r.http.Transport), crane.WithAuth(&authn.Basic{Username: "any", Password: r.token(t)})}
	if tags, err := crane.ListTags(host+"/example/modules/hello/demo", options...); err != nil || !slices.Equal(tags, []string{"1.0.0"}) {
		t.Errorf("the tags are %q, %v, want 1.0.0", tags, err)
	}
	if _, err := crane.ListTags(host+"/example/app", options...); err == nil || !strings.Contains(err.Error(), "NAMESPACE/modules/NAME/SYSTEM") {
		t.Errorf("a repository that is not there: %v", err)
	}
	if _, err := crane.ListTags(host+"/example/modules/hello/demo", crane.WithTransport(r.http.Transport)); err == nil || !strings.Contains(err.Error(), "UNAUTHORIZED") {
		t.Errorf("a client without a token: %v, want UNAUTHORIZED", err)
	}
}

// What users publish, retract and remove is in the audit log with their names, and counted,
// also over OCI. The log verifies.
func TestChangesAreAudited(t *testing.T) {
	r := start(t, nil)
	admin := r.token(t)
	r.works(t, push(files(t, says("hello")), "1.0.0")...)
	r.works(t, "module", "retract", "net/hello/demo", "1.0.0", "--reason", "it is too quiet")
	r.works(t, "module", "restore", "net/hello/demo", "1.0.0")
	repository := r.host() + "/net/modules/hello/demo"
	options := []crane.Option{crane.WithTransport(r.http.Transport), crane.WithAuth(&authn.Basic{Username: "any", Password: admin})}
	image, err := crane.Pull(repository+":1.0.0", options...)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("the module has %d layers, %v", len(layers), err)
	}
	content, err := layers[0].Compressed()
	if err == nil {
		_, err = io.Copy(io.Discard, content)
		err = errors.Join(err, content.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	_, metrics := r.get(t, r.Metrics, "")
	for _, want := range []string{
		`terrier_packages_changes_total{action="published",kind="module"} 1`, `terrier_packages_changes_total{action="retracted",kind="module"} 1`,
		`terrier_packages_changes_total{action="restored",kind="module"} 1`, `terrier_packages_changes_total{action="removed",kind="signing-key"} 0`,
		`terrier_packages_downloads_total{kind="module",protocol="oci",tenant="admin"} 1`, `terrier_packages_sent_bytes_total{kind="module",protocol="oci",tenant="admin"} `,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	page, err := audit.Read(filepath.Join(r.dir, "audit"), audit.Query{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range slices.Backward(page.Items) {
		got = append(got, string(e.What)+" "+e.Who+" "+string(e.Via)+" "+e.Object.Kind+" "+e.Object.Namespace+" "+e.Object.Name+" "+e.Details["version"]+" "+e.Comment)
	}
	want := []string{
		"audit-log-opened  controller    v1 ", "module-published admin cli RegistryModule net hello/demo 1.0.0 ",
		"module-retracted admin cli RegistryModule net hello/demo 1.0.0 it is too quiet", "module-restored admin cli RegistryModule net hello/demo 1.0.0 ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the audit log differs (-want +got):\n%s", diff)
	}
}
