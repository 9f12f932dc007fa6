package testkit

import (
	"crypto/subtle"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Git is a real git server over HTTP with one repository, which asks for a
// password.
type Git struct {
	URL                string
	Username, Password string // without a Username it asks for no password
	Root               string // where this machine has the repository, below its path in URL

	tb      testing.TB
	tree    string // a clone that commits come from
	bare    string // the repository
	backend http.Handler
}

// NewGit starts a git server on loopback, with an empty repository.
func NewGit(tb testing.TB) *Git {
	tb.Helper()
	g := newGit(tb, "repository.git")
	server := httptest.NewServer(g)
	tb.Cleanup(server.Close)
	g.URL = server.URL + "/repository.git"
	return g
}

// NewGitAt starts a git server with https at an address of this machine, with an empty
// repository at a path of its own. It asks for no password.
func NewGitAt(tb testing.TB, address string, certificate tls.Certificate, repository string) *Git {
	tb.Helper()
	g := newGit(tb, repository)
	g.Username = ""
	g.URL = ServeTLS(tb, address, certificate, g) + "/" + repository
	return g
}

// ServeTLS serves https at an address of this machine until the end of the test, and
// returns the URL.
func ServeTLS(tb testing.TB, address string, certificate tls.Certificate, h http.Handler) string {
	tb.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		tb.Fatal(err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: h}, TLS: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}}
	server.StartTLS()
	tb.Cleanup(server.Close)
	return server.URL
}

// newGit makes an empty repository and a clone of it.
func newGit(tb testing.TB, repository string) *Git {
	tb.Helper()
	g := &Git{Username: "reader", Password: "correct-horse", Root: filepath.Join(tb.TempDir(), "served"), tb: tb, tree: filepath.Join(tb.TempDir(), "tree")}
	bare := filepath.Join(g.Root, filepath.FromSlash(repository))
	g.bare = bare
	g.git("", "init", "--quiet", "--bare", "--initial-branch=main", bare)
	g.git("", "init", "--quiet", "--initial-branch=main", g.tree)
	g.git(g.tree, "remote", "add", "origin", bare)
	g.backend = &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(g.git("", "--exec-path")), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + g.Root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*", "GIT_CONFIG_KEY_1=http.receivepack", "GIT_CONFIG_VALUE_1=true"},
	}
	return g
}

// ServeHTTP implements http.Handler.
func (g *Git) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, password, _ := r.BasicAuth()
	if g.Username != "" && (user != g.Username || subtle.ConstantTimeCompare([]byte(password), []byte(g.Password)) != 1) {
		w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	g.backend.ServeHTTP(w, r)
}

// AllowPush lets clients push who know the password.
func (g *Git) AllowPush() {
	g.tb.Helper()
	g.git(g.bare, "config", "http.receivepack", "true")
}

// Bare runs git in the repository that is served.
func (g *Git) Bare(args ...string) string {
	g.tb.Helper()
	return g.git(g.bare, args...)
}

// Commit makes the main branch hold these files, and no others, and returns the
// commit's hash.
func (g *Git) Commit(files map[string]string) string {
	g.tb.Helper()
	g.git(g.tree, "rm", "--quiet", "-r", "--force", "--ignore-unmatch", ".")
	for name, text := range files {
		path := filepath.Join(g.tree, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			g.tb.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			g.tb.Fatal(err)
		}
	}
	g.git(g.tree, "add", "--all")
	g.git(g.tree, "commit", "--quiet", "--allow-empty", "--message=change")
	g.git(g.tree, "push", "--quiet", "origin", "main")
	return strings.TrimSpace(g.git(g.tree, "rev-parse", "HEAD"))
}

// git runs git without the configuration of a user.
func (g *Git) git(dir string, args ...string) string {
	g.tb.Helper()
	env := []string{
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull, "HOME=" + os.TempDir(),
		"GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@example.com", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@example.com",
	}
	r, err := run(g.tb.Context(), dir, env, "git", args...)
	if err != nil {
		g.tb.Fatal(err)
	}
	if r.Code != 0 {
		g.tb.Fatalf("git %s ended with %d: %s", strings.Join(args, " "), r.Code, r.Stderr)
	}
	return r.Stdout
}

// Manifest is a GitRepository that follows the main branch, and the Secret that
// opens it.
func (g *Git) Manifest(name string) string {
	return `
apiVersion: v1
kind: Secret
metadata: {name: ` + name + `-login}
stringData: {username: ` + g.Username + `, password: ` + g.Password + `}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: ` + name + `}
spec:
  interval: 1h
  url: ` + g.URL + `
  ref: {branch: main}
  secretRef: {name: ` + name + `-login}
`
}

// Do runs git in the tree that commits come from, with the server as origin.
func (g *Git) Do(args ...string) string {
	g.tb.Helper()
	return g.git(g.tree, args...)
}
