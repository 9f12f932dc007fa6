package registryserver

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/registry/origin"
	"github.com/terrier-iac/terrier/internal/registry/registrytest/enginetest"
	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/internal/testkit/sshgit"
)

const webhookSecret = "correct-horse-battery-staple"

// tagged is a registry with the repository net/https of a git server with a password, and
// with net/ssh, which is the same repository over ssh.
type tagged struct {
	*running
	*testkit.Git
	file string // of the repositories
	text string // of that file, in which REQUESTED stands for a text of the user
}

func startTagged(t *testing.T) *tagged {
	t.Helper()
	pair, _ := newPair(t, "127.0.0.1")
	certificate, err := tls.X509KeyPair(pair["tls.crt"], pair["tls.key"])
	if err != nil {
		t.Fatal(err)
	}
	g := testkit.NewGitAt(t, "127.0.0.1", certificate, "team/hello.git")
	g.Username = "reader"
	identity, client := sshgit.NewIdentity(t, "")
	host, _ := sshgit.NewSigner(t, "ed25519")
	ssh := sshgit.Serve(t, g.Root, client, host)
	dir := files(t, map[string]string{
		"https/username": g.Username, "https/password": g.Password + "\n", "https/ca.crt": string(pair["tls.crt"]),
		"ssh/identity": identity, "ssh/known_hosts": string(ssh.Known(host)), "webhook": webhookSecret + "\n",
	})
	text := fmt.Sprintf(`repositories:
  - name: https
    url: %s
    module: net/hello/demo
    credentials: https
    webhookSecretFile: webhook
    requested: "REQUESTED"
  - name: ssh
    url: ssh://git@%s/team/hello.git
    module: net/over-ssh/demo
    tags: v{version}
    credentials: ssh
`, g.URL, ssh.Address)
	w := &tagged{Git: g, file: filepath.Join(dir, "repositories.yaml"), text: text}
	w.request(t, "first")
	g.Commit(says("one"))
	g.Do("tag", "--annotate", "--message=release", "v1.0.0")
	g.Do("push", "--quiet", "origin", "v1.0.0")
	w.running = start(t, func(c *Config) { c.Repositories, c.AllowHosts = w.file, []string{"127.0.0.1"} })
	return w
}

// request has the repository net/https checked at once.
func (w *tagged) request(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(w.file, []byte(strings.ReplaceAll(w.text, "REQUESTED", text)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// await waits until the command line shows a repository as a test wants it.
func (w *tagged) await(t *testing.T, name string, is func(origin.State) bool) origin.State {
	t.Helper()
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		var s origin.State
		out := w.works(t, "module", "repositories", name, "-o", "json")
		if err := json.Unmarshal([]byte(out), &s); err != nil {
			t.Fatalf("%v in %s", err, out)
		}
		if is(s) {
			return s
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("the repository %s is %+v; the log is %s", name, s, w.logs())
		}
	}
}

// webhook sends a webhook with a header, and returns the status and the body.
func (w *tagged) webhook(t *testing.T, name, header, value, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.running.URL+"/v1/webhooks/net/"+name, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(header, value)
	resp, err := w.http.Do(req)
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

func signature(key, body string) string {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(body))
	return hex.EncodeToString(mac.Sum(nil))
}

// A tag of a repository over https with a password, and of one over ssh, is a version that
// the engine installs, and the command line says where it comes from.
func TestEngineInstallsModulesFromTags(t *testing.T) {
	w := startTagged(t)
	for _, name := range []string{"net/https", "net/ssh"} {
		w.await(t, name, func(s origin.State) bool { return s.Versions == 1 })
	}
	for module, want := range map[string]string{"hello": "one", "over-ssh": "one"} {
		if got := w.engine(w.token(t), "").Says(t, enginetest.Using(t, w.host()+"/net/"+module+"/demo", "~> 1.0")); got != want {
			t.Errorf("the module %s says %q, want %q", module, got, want)
		}
	}
	commit := strings.TrimSpace(w.Do("rev-parse", "HEAD"))
	shown := w.works(t, "module", "show", "net/hello/demo", "1.0.0")
	for _, want := range []string{w.Git.URL, "v1.0.0", commit, "t <t@example.com>"} {
		if !strings.Contains(shown, want) {
			t.Errorf("show says %s, want %s in it", shown, want)
		}
	}
	if out := w.works(t, "module", "list", "net/hello/demo"); !strings.Contains(out, "v1.0.0") || !strings.Contains(out, commit[:12]) {
		t.Errorf("list says %s, want the tag and its commit", out)
	}

	w.Commit(says("two"))
	w.Do("tag", "--force", "v1.0.0")
	w.Do("push", "--quiet", "--force", "origin", "v1.0.0")
	w.request(t, "second")
	s := w.await(t, "net/https", func(s origin.State) bool { return len(s.Problems) > 0 })
	if s.Problems[0].Reason != origin.ReasonMoved || s.Problems[0].Was != commit {
		t.Errorf("the problem is %+v, want the tag that moved", s.Problems[0])
	}
	if out := w.works(t, "module", "repositories"); !strings.Contains(out, "1 problem") || !strings.Contains(out, "the tag v1.0.0 moved") {
		t.Errorf("repositories says %s, want the problem", out)
	}
	if out := w.works(t, "module", "repositories", "net/https"); !strings.Contains(out, "was at "+commit) {
		t.Errorf("repositories net/https says %s, want both commits", out)
	}
	if code, out := w.terrier(t, w.token(t), "module", "repositories", "net/none"); code == 0 || !strings.Contains(out, "no repository net/none is registered") {
		t.Errorf("an unknown repository: %d %s", code, out)
	}
	if logs := w.logs(); strings.Contains(logs, w.Password) || strings.Contains(logs, webhookSecret) {
		t.Error("the log has a secret")
	}
}

// A webhook has its repository checked at once. Its signature is all that counts.
func TestWebhooks(t *testing.T) {
	w := startTagged(t)
	first := w.await(t, "net/https", func(s origin.State) bool { return s.Versions == 1 })
	if first.Webhook != "/v1/webhooks/net/https" {
		t.Errorf("the webhook is at %q", first.Webhook)
	}
	const body = `{"ref":"refs/tags/v9.9.9","repository":{"clone_url":"https://elsewhere.example.com/x.git"}}`
	sum := signature(webhookSecret, body)
	refusals := map[string]bool{}
	for name, tt := range map[string]struct{ repository, header, value string }{
		"another secret":                   {"https", "X-Hub-Signature-256", "sha256=" + signature("another-secret-of-the-length", body)},
		"the signature of another body":    {"https", "X-Hub-Signature-256", "sha256=" + signature(webhookSecret, body+" ")},
		"no signature":                     {"https", "X-Other", sum},
		"an empty signature":               {"https", "X-Hub-Signature-256", "sha256="},
		"half of a signature":              {"https", "X-Gitea-Signature", sum[:32]},
		"an unknown repository":            {"none", "X-Hub-Signature-256", "sha256=" + sum},
		"a repository without webhooks":    {"ssh", "X-Hub-Signature-256", "sha256=" + sum},
		"the empty secret without a known": {"ssh", "X-Hub-Signature-256", "sha256=" + signature("", body)},
		"another token":                    {"https", "X-Gitlab-Token", "another"},
	} {
		code, text := w.webhook(t, tt.repository, tt.header, tt.value, body)
		if code != http.StatusUnauthorized {
			t.Errorf("%s: the status is %d %s, want 401", name, code, text)
		}
		refusals[text] = true
	}
	if len(refusals) != 1 {
		t.Errorf("refusals are told apart: %v", refusals)
	}

	w.Do("tag", "v1.1.0")
	w.Do("push", "--quiet", "origin", "v1.1.0")
	for header, value := range map[string]string{
		"X-Hub-Signature-256": "sha256=" + sum, "X-Gitea-Signature": sum, "X-Forgejo-Signature": sum, "X-Signature": "sha256=" + sum, "X-Gitlab-Token": webhookSecret,
	} {
		for range 2 { // sent again, it is taken again
			if code, text := w.webhook(t, "https", header, value, body); code != http.StatusAccepted {
				t.Errorf("the webhook with %s: %d %s", header, code, text)
			}
		}
	}
	s := w.await(t, "net/https", func(s origin.State) bool { return s.Versions == 2 })
	if !s.Checked.Before(first.Next) {
		t.Errorf("the check was at %s, and the interval ends at %s", s.Checked, first.Next)
	}
	if out := w.works(t, "module", "list", "net/hello/demo"); strings.Contains(out, "9.9.9") {
		t.Errorf("what the body says became a version: %s", out)
	}
	code, text := w.webhook(t, "https", "X-Hub-Signature-256", "sha256=00", string(bytes.Repeat([]byte("x"), 26<<20)))
	if code != http.StatusUnprocessableEntity && code != http.StatusRequestEntityTooLarge {
		t.Errorf("a body of 26 MiB: %d %s", code, text)
	}
}

// A mistake in the file of repositories is told at the start, and changes nothing later.
func TestFileOfRepositories(t *testing.T) {
	for name, tt := range map[string]struct{ text, says string }{
		"no name":              {"repositories: [{url: https://a.example.com/x, module: a/b/c}]", "number 1: name is missing"},
		"no url":               {"repositories: [{name: x, module: a/b/c}]", "repository x: url is missing"},
		"a module without one": {"repositories: [{name: x, url: https://a.example.com/x, module: b/c}]", "write NAMESPACE/NAME/SYSTEM"},
		"twice the same name":  {"repositories: [{name: x, url: https://a.example.com/x, module: a/b/c}, {name: x, url: https://a.example.com/y, module: a/d/c}]", "has the same name"},
		"an unknown field":     {"repositories: [{name: x, branch: main}]", `unknown field "branch"`},
		"tags without version": {"repositories: [{name: x, url: https://a.example.com/x, module: a/b/c, tags: v*}]", "needs it once"},
	} {
		t.Run(name, func(t *testing.T) {
			c := Config{DataDir: t.TempDir(), Listen: "127.0.0.1:0", Drain: time.Second, Stall: time.Second, LogLevel: "info", Repositories: filepath.Join(files(t, map[string]string{"r.yaml": tt.text}), "r.yaml")}
			err := Run(t.Context(), Options{Config: c, Program: "terrier", Version: "v1", Stdout: io.Discard, Stderr: io.Discard, Now: time.Now, Environ: environ})
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("Run() = %v, want one that says %q", err, tt.says)
			}
		})
	}
	w := startTagged(t)
	w.await(t, "net/https", func(s origin.State) bool { return s.Versions == 1 })
	if err := os.WriteFile(w.file, []byte("repositories: [{name: x}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	for !strings.Contains(w.logs(), "repositories not changed: the file is invalid") {
		if time.Now().After(deadline) {
			t.Fatalf("the log has nothing of the mistake: %s", w.logs())
		}
		w.works(t, "module", "repositories")
	}
	w.await(t, "net/https", func(s origin.State) bool { return s.Versions == 1 })
}
