package registryserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/cli"
	"github.com/terrier-iac/terrier/internal/client/publish"
	"github.com/terrier-iac/terrier/internal/registry/registrytest"
	"github.com/terrier-iac/terrier/internal/registry/registrytest/enginetest"
	"github.com/terrier-iac/terrier/internal/testkit/storage"
	"github.com/terrier-iac/terrier/internal/web/pages/browse"
)

// token is the first token of a registry.
func (r *running) token(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(r.Token)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// terrier runs the command line in this process with a token, and returns its exit code
// and what it printed.
func (r *running) terrier(t *testing.T, token string, args ...string) (int, string) {
	t.Helper()
	var out bytes.Buffer
	file := filepath.Join(files(t, map[string]string{"token": token + "\n"}), "token")
	code := cli.Main(cli.Env{
		Args: append(slices.Clone(args), "--token-file", file), Environ: []string{"TERRIER_SERVER=" + r.URL, "TERRIER_SERVER_CA=" + r.CA},
		Dir: t.TempDir(), Now: time.Now, Version: "v1", Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out,
	})
	return code, out.String()
}

// works runs the command line with the first token, and wants it to succeed.
func (r *running) works(t *testing.T, args ...string) string {
	t.Helper()
	code, out := r.terrier(t, r.token(t), args...)
	if code != 0 {
		t.Fatalf("terrier %s ended with %d: %s", strings.Join(args, " "), code, out)
	}
	return out
}

// host is the name of the registry in sources.
func (r *running) host() string { return strings.TrimPrefix(r.URL, "https://") }

// engine is the real engine, which trusts the registry and has a token for it. More is
// added to its CLI configuration.
func (r *running) engine(token, more string) enginetest.Client {
	if token != "" {
		more += enginetest.Credentials(r.host(), token)
	}
	return enginetest.Client{Authority: r.CA, Config: more}
}

func files(t *testing.T, all map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range all {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func says(text string) map[string]string {
	return map[string]string{"main.tf": fmt.Sprintf("output \"says\" {\n  value = %q\n}\n", text)}
}

var named = []string{"--namespace", "net", "--name", "hello", "--system", "demo"}

func push(dir, version string, more ...string) []string {
	args := append([]string{"module", "push", dir, "--version", version}, named...)
	return append(args, more...)
}

// uses is a configuration that uses the module.
func (r *running) uses(t *testing.T, constraint string) string {
	t.Helper()
	return enginetest.Using(t, r.host()+"/net/hello/demo", constraint)
}

// RG-08, RG-09: a module that was pushed is what the engine installs; what was published
// never changes; and a version that was retracted is not chosen.
func TestPushedModuleIsInstalled(t *testing.T) {
	r := start(t, nil)
	one, two := files(t, says("one")), files(t, says("two"))
	if out := r.works(t, push(one, "1.0.0")...); !strings.Contains(out, "Published net/hello/demo 1.0.0") {
		t.Errorf("push says %s", out)
	}
	r.works(t, push(two, "1.1.0")...)
	installed := func(constraint, want string) {
		t.Helper()
		if got := r.engine(r.token(t), "").Says(t, r.uses(t, constraint)); got != want {
			t.Errorf("%q says %s, want %s", constraint, got, want)
		}
	}
	installed("~> 1.0", "two")
	installed("1.0.0", "one")

	r.works(t, push(one, "1.0.0")...) // the same content
	if code, out := r.terrier(t, r.token(t), push(two, "1.0.0")...); code != 2 || strings.Contains(out, "again") {
		t.Errorf("other content ended with %d: %s, want 2", code, out)
	}
	if out := r.works(t, push(two, "1.0.0", "--ignore-existing")...); !strings.Contains(out, "exists with other content") {
		t.Errorf("--ignore-existing says %s", out)
	}
	installed("1.0.0", "one")

	r.works(t, "module", "retract", "net/hello/demo", "1.1.0", "--reason", "says the wrong thing")
	installed("~> 1.0", "one")
	out := r.works(t, "module", "list", "net/hello/demo")
	for _, want := range []string{`(?m)^1\.0\.0 +20\d\d-\S+Z +admin +\d+ B +available *$`, `(?m)^1\.1\.0 +20\d\d-\S+Z +admin +\d+ B +retracted \S+ ago by admin: says the wrong thing *$`} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("the list is %s, want %s", out, want)
		}
	}
	if code, out := r.terrier(t, r.token(t), "module", "list", "net/other/demo"); code != 4 {
		t.Errorf("a module that is not there ended with %d: %s, want 4", code, out)
	}
}

// RG-08: of many pushes of one version with different content exactly one wins.
func TestOnePushWins(t *testing.T) {
	r := start(t, nil)
	const many = 8
	codes := make([]int, many)
	var wait sync.WaitGroup
	for i := range many {
		dir := files(t, says(fmt.Sprint("push ", i)))
		wait.Go(func() { codes[i], _ = r.terrier(t, r.token(t), push(dir, "1.0.0")...) })
	}
	wait.Wait()
	won := 0
	for _, code := range codes {
		switch code {
		case 0:
			won++
		case 2: // it never passes
		default:
			t.Errorf("a push ended with %d, want 0 or 2", code)
		}
	}
	if won != 1 {
		t.Errorf("%d of %d pushes won, want one: %v", won, many, codes)
	}
}

// RG-19: a token does what its rights are, and no more; a revoked one does nothing.
func TestTokensHaveTheirRights(t *testing.T) {
	const reader = "the-token-of-the-readers-of-net"
	r := start(t, nil)
	r.works(t, push(files(t, says("one")), "1.0.0")...)
	admin, err := os.ReadFile(r.Rights)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.dir, "reader"), []byte(reader), 0o600); err != nil {
		t.Fatal(err)
	}
	change := func(text string) {
		t.Helper()
		if err := os.WriteFile(r.Rights, append(admin, []byte(text)...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	change("  - {name: reader, tokenFile: reader, read: [net]}\n")
	await(t, "the reader is known", func() bool { code, _ := r.terrier(t, reader, "module", "list", "net/hello/demo"); return code == 0 })
	if code, out := r.terrier(t, reader, push(files(t, says("two")), "2.0.0")...); code != 3 || !strings.Contains(out, "reader may not write in the namespace net") {
		t.Errorf("a reader that pushes ended with %d: %s, want 3", code, out)
	}
	if code, out := r.terrier(t, reader, "module", "list", "other/hello/demo"); code != 3 {
		t.Errorf("a reader of another namespace ended with %d: %s, want 3", code, out)
	}
	if out, err := r.engine(reader, "").Init(t, r.uses(t, "1.0.0")); err != nil {
		t.Errorf("init with the token of a reader: %v: %s", err, out)
	}
	if out, err := r.engine("", "").Init(t, r.uses(t, "1.0.0")); err == nil || !strings.Contains(out, "401") {
		t.Errorf("init without a token: %v: %s, want 401", err, out)
	}
	change("")
	await(t, "the reader is revoked", func() bool { code, _ := r.terrier(t, reader, "module", "list", "net/hello/demo"); return code == 3 })
	for _, secret := range []string{reader, r.token(t), "signature="} {
		if strings.Contains(r.logs(), secret) {
			t.Errorf("the log holds %q", secret)
		}
	}
}

// An open registry is one for reading alone, and only if the operator says so.
func TestAnonymousReads(t *testing.T) {
	r := start(t, func(c *Config) { c.Anonymous = true })
	r.works(t, push(files(t, says("one")), "1.0.0")...)
	if out, err := r.engine("", "").Init(t, r.uses(t, "1.0.0")); err != nil {
		t.Errorf("init without a token: %v: %s", err, out)
	}
	if code, out := r.terrier(t, "a-wrong-token-of-a-caller", push(files(t, says("two")), "2.0.0")...); code != 3 {
		t.Errorf("a push with a wrong token ended with %d: %s, want 3", code, out)
	}
}

// RG-09, LQ-23: a repository with several modules is published in one go, by its tags.
func TestPushOfAllModulesOfARepository(t *testing.T) {
	r := start(t, nil)
	all := map[string]string{}
	for _, name := range []string{"vpc", "dns"} {
		all["modules/"+name+"/main.tf"] = says(name)["main.tf"]
		all["modules/"+name+"/.terrier-module.hcl"] = fmt.Sprintf("metadata {\n  namespace = \"net\"\n  name = %q\n  system = \"demo\"\n}\n", name)
	}
	dir := files(t, all)
	for _, args := range [][]string{{"init", "--quiet"}, {"add", "--all"}, {"commit", "--quiet", "--message=x"}, {"tag", "vpc-v1.2.0"}} {
		command := exec.Command("git", args...)
		command.Dir = dir
		command.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@example.com", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@example.com")
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v: %s", args[0], err, out)
		}
	}
	out := r.works(t, "module", "push", filepath.Join(dir, "modules"), "--recursive", "--version-from-tag", "--tag-prefix", "{name}-", "-o", "json")
	var pushed struct {
		Items []struct{ Module, Version, Outcome, SHA256 string }
	}
	if err := json.Unmarshal([]byte(out), &pushed); err != nil || len(pushed.Items) != 2 {
		t.Fatalf("push says %s (%v)", out, err)
	}
	if dns, vpc := pushed.Items[0], pushed.Items[1]; dns.Outcome != "skipped" || vpc.Outcome != "published" || vpc.Module != "net/vpc/demo" || vpc.Version != "1.2.0" || len(vpc.SHA256) != 64 {
		t.Errorf("push says %s", out)
	}
	r.works(t, "module", "list", "net/vpc/demo")
}

// RG-22: a request that goes on when the server is stopped ends as always, while new ones
// are not taken.
func TestDrain(t *testing.T) {
	r := start(t, nil)
	dir := files(t, says("one"))
	modules, err := publish.Modules(publish.ModuleOptions{Dir: dir, Namespace: "net", Name: "hello", System: "demo", Version: "1.0.0"})
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := modules[0].Pack(&archive); err != nil {
		t.Fatal(err)
	}
	body, in := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, r.URL+"/v1/modules/net/hello/demo/1.0.0", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.token(t))
	req.Header.Set("Expect", "100-continue")
	status := make(chan string, 1)
	go func() {
		resp, err := r.http.Do(req)
		if err != nil {
			status <- err.Error()
			return
		}
		resp.Body.Close()
		status <- resp.Status
	}()
	if _, err := in.Write(archive.Next(1)); err != nil { // after the handler has asked for it
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- r.stop() }()
	await(t, "new connections are refused", func() bool {
		conn, err := net.Dial("tcp", r.host())
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	if _, err := in.Write(archive.Bytes()); err != nil {
		t.Fatal(err)
	}
	in.Close()
	if got := <-status; got != "201 Created" {
		t.Errorf("the upload ended with %s, want 201", got)
	}
	if err := <-ended; err != nil {
		t.Errorf("the registry ended with %v", err)
	}
}

// The settings of the mirror come from the file of --config, and its traffic is counted by
// tenant: what the upstream sent, what clients got, and what the store saved (RG-24). What the
// upstream does not answer is counted with its reason (RG-12).
func TestMirrorOfTheSettings(t *testing.T) {
	here := runtime.GOOS + "_" + runtime.GOARCH
	upstream := registrytest.New(t)
	release := registrytest.NewRelease(t, registrytest.NewSigner(t), "acme/cloud", "1.2.0", 1000, here)
	upstream.Publish(release)
	config := files(t, map[string]string{"upstream.pem": string(upstream.Authority)})
	settings := fmt.Sprintf("upstreams:\n  example.com: {url: %q, caFile: %q}\n", upstream.URL, filepath.Join(config, "upstream.pem"))
	if err := os.WriteFile(filepath.Join(config, "mirror.yaml"), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, func(c *Config) {
		c.Settings, c.AllowHosts = filepath.Join(config, "mirror.yaml"), []string{"127.0.0.0/8"}
	})
	dir := enginetest.Requiring(t, "example.com/acme/cloud", "~> 1.0")
	// The configuration is the one that is printed at the start.
	for range 3 {
		if err := os.RemoveAll(filepath.Join(dir, ".terraform")); err != nil {
			t.Fatal(err)
		}
		if out, err := r.engine("", browse.CLIConfiguration(r.host(), r.token(t))).Init(t, dir); err != nil {
			t.Fatalf("init: %v: %s", err, out)
		}
	}
	upstream.Fail("", registrytest.Status(http.StatusInternalServerError))
	if status, text := r.get(t, r.URL+"/v1/mirror/example.com/acme/other/index.json", r.token(t)); status != http.StatusServiceUnavailable {
		t.Errorf("what an upstream that fails has is %d %s, want 503", status, text)
	}
	_, body := r.get(t, r.Metrics, "")
	size := len(release.Archives[here])
	moved := func(kind string, n int) string {
		return fmt.Sprintf("terrier_mirror_bytes_total{host=\"example.com\",kind=%q,tenant=\"admin\"} %d\n", kind, n)
	}
	for _, want := range []string{
		`terrier_mirror_downloads_total{host="example.com",tenant="admin"} 1`, moved("fetched", size), moved("served", 3*size), moved("saved", 2*size),
		`terrier_mirror_failures_total{host="example.com",reason="UpstreamFailed",tenant="admin"} 1`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the metrics lack %s:\n%s", want, body)
		}
	}
}

// RG-17: replicas serve a bucket of boring-registry as it is, and accept one another's
// addresses of archives.
func TestReplicasOfABucketOfBoringRegistry(t *testing.T) {
	bucket := storage.NewS3(t)
	bucket.Put(t, "modules", nil)
	old := files(t, says("one"))
	modules, err := publish.Modules(publish.ModuleOptions{Dir: old, Namespace: "net", Name: "hello", System: "demo", Version: "1.0.0"})
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := modules[0].Pack(&archive); err != nil {
		t.Fatal(err)
	}
	bucket.Put(t, "modules/prefix/modules/net/hello/demo/net-hello-demo-1.0.0.tar.gz", archive.Bytes())
	place := func(c *Config) {
		c.Storage = "s3://modules/prefix?path-style=true&endpoint=" + url.QueryEscape(bucket.URL)
		c.AllowHosts = []string{"127.0.0.0/8"}
	}
	first, second := start(t, place), start(t, place)
	if out, err := first.engine(first.token(t), "").Init(t, first.uses(t, "~> 1.0")); err != nil {
		t.Fatalf("init: %v: %s", err, out)
	}
	first.works(t, push(files(t, says("two")), "1.1.0")...)
	if out := second.works(t, "module", "list", "net/hello/demo"); !strings.Contains(out, "1.0.0") || !strings.Contains(out, "1.1.0") {
		t.Errorf("the versions of the other replica are %s, want both", out)
	}
	const download = "/v1/modules/net/hello/demo/1.0.0/download"
	status, body := first.get(t, first.URL+download, first.token(t))
	var says struct{ Location string }
	if err := json.Unmarshal([]byte(body), &says); err != nil || status != http.StatusOK {
		t.Fatalf("the address of the archive is %d %s (%v)", status, body, err)
	}
	at, err := url.Parse(second.URL + download)
	if err == nil {
		at, err = at.Parse(says.Location)
	}
	if err != nil {
		t.Fatal(err)
	}
	if status, got := second.get(t, at.String(), ""); status != http.StatusOK || got != archive.String() {
		t.Errorf("the other replica answers %d with %d bytes, want the archive", status, len(got))
	}
}

// What a user got wrong about the server is said at once, with the way out.
func TestWrongWayToTheRegistry(t *testing.T) {
	r := start(t, nil)
	names := files(t, map[string]string{"two lines": "one\ntwo\n"})
	for name, tt := range map[string]struct {
		args    []string
		environ []string
		code    int
		says    []string
	}{
		"no authority":       {[]string{"module", "list", "a/b/c"}, []string{"TERRIER_TOKEN=t", "TERRIER_SERVER_CA="}, 2, []string{"is not trusted", "--server-ca or TERRIER_SERVER_CA"}},
		"a token of 2 lines": {[]string{"module", "list", "a/b/c", "--token-file", filepath.Join(names, "two lines")}, nil, 2, []string{"the token in", "two lines is not valid"}},
		"no token":           {[]string{"module", "list", "a/b/c"}, nil, 2, []string{"no token for the server", "TERRIER_TOKEN_FILE"}},
		"no namespace":       {[]string{"provider", "keys", "add", "nothing"}, nil, 2, []string{"--namespace"}},
		"a key of which":     {[]string{"provider", "keys", "remove", "00"}, nil, 2, []string{"--namespace"}},
		"a token of which":   {[]string{"registry", "tokens", "create", "--name", "ci"}, nil, 2, []string{"--namespace"}},
		"stacks":             {[]string{"get"}, []string{"TERRIER_TOKEN=" + r.token(t)}, 2, []string{"is a registry alone", "unset TERRIER_SERVER"}},
		"pages":              {[]string{"ui"}, []string{"TERRIER_TOKEN=" + r.token(t)}, 2, []string{"is a registry alone"}},
		"tokens":             {[]string{"registry", "tokens", "list"}, []string{"TERRIER_TOKEN=" + r.token(t)}, 2, []string{"is a registry alone"}},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			code := cli.Main(cli.Env{
				Args: tt.args, Environ: append([]string{"TERRIER_SERVER=" + r.URL, "TERRIER_SERVER_CA=" + r.CA}, tt.environ...),
				Dir: t.TempDir(), Now: time.Now, Version: "v1", Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out,
			})
			if code != tt.code || strings.Contains(out.String(), "gain") {
				t.Errorf("it ends with %d and says %s, want %d", code, out.String(), tt.code)
			}
			for _, want := range tt.says {
				if !strings.Contains(out.String(), want) {
					t.Errorf("it says %s, want %q in it", out.String(), want)
				}
			}
		})
	}
}
