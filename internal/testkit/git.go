package testkit

import (
	"crypto/subtle"
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

	tb   testing.TB
	tree string // a clone that commits come from
}

// NewGit starts a git server on loopback, with an empty repository.
func NewGit(tb testing.TB) *Git {
	tb.Helper()
	g := &Git{Username: "reader", Password: "correct-horse", tb: tb, tree: filepath.Join(tb.TempDir(), "tree")}
	served := filepath.Join(tb.TempDir(), "served")
	bare := filepath.Join(served, "repository.git")
	g.git("", "init", "--quiet", "--bare", "--initial-branch=main", bare)
	g.git("", "init", "--quiet", "--initial-branch=main", g.tree)
	g.git(g.tree, "remote", "add", "origin", bare)
	backend := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(g.git("", "--exec-path")), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + served, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if g.Username != "" && (user != g.Username || subtle.ConstantTimeCompare([]byte(password), []byte(g.Password)) != 1) {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, r)
	}))
	tb.Cleanup(server.Close)
	g.URL = server.URL + "/repository.git"
	return g
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
