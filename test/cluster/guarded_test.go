package cluster

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// guarded is a registry of images at the address of the node, with https, that asks for a
// login. It keeps which images were pushed and pulled with which one.
type guarded struct {
	host   string
	client *http.Client

	mu             sync.Mutex
	out            bool
	pushed, pulled map[string][]string // tags and digests of images of stacks, by login
}

// newGuarded starts it, and has the node pull its images from it.
func newGuarded(t *testing.T, certificate tls.Certificate, authority []byte) *guarded {
	t.Helper()
	g := &guarded{pushed: map[string][]string{}, pulled: map[string][]string{}}
	stored := registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithBlobHandler(registry.NewDiskBlobHandler(t.TempDir())))
	g.host = strings.TrimPrefix(testkit.ServeTLS(t, NodeAddress, certificate, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if g.admits(w, q) {
			stored.ServeHTTP(w, q)
		}
	})), "https://")
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	g.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}}}
	t.Cleanup(g.client.CloseIdleConnections)

	dir := filepath.Join(os.Getenv("TERRIER_CLUSTER"), "lib", "cluster", "registries", g.host)
	err := os.MkdirAll(dir, 0o755)
	for file, text := range map[string]string{
		"ca.crt":     string(authority),
		"hosts.toml": fmt.Sprintf("server = \"https://%[1]s\"\n[host.\"https://%[1]s\"]\n  capabilities = [\"pull\", \"resolve\"]\n  ca = \"ca.crt\"\n", g.host),
	} {
		err = cmp.Or(err, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return g
}

// password is that of a login.
func (g *guarded) password(login string) string { return "of-" + login }

// refuse has the registry refuse everything from now on.
func (g *guarded) refuse() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.out = true
}

func (g *guarded) pushes(login string) []string { return g.done(g.pushed, login) }

func (g *guarded) pulls(login string) []string { return g.done(g.pulled, login) }

func (g *guarded) done(what map[string][]string, login string) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(what[login])
}

// admits answers a request that has no login, and takes note of others.
func (g *guarded) admits(w http.ResponseWriter, q *http.Request) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	login, password, _ := q.BasicAuth()
	switch {
	case g.out:
		http.Error(w, "the registry is out", http.StatusServiceUnavailable)
		return false
	case password != g.password(login):
		w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return false
	}
	if ref, ok := strings.CutPrefix(q.URL.Path, "/v2/"+builtName+"/manifests/"); ok {
		switch tag := !strings.Contains(ref, ":"); {
		case q.Method == http.MethodPut && tag:
			g.pushed[login] = append(g.pushed[login], ref)
		case q.Method == http.MethodGet && strings.HasPrefix(q.UserAgent(), "containerd/"):
			g.pulled[login] = append(g.pulled[login], ref)
		}
	}
	return true
}

// with is how the test speaks with the registry.
func (g *guarded) with(t *testing.T, login string) []remote.Option {
	return []remote.Option{remote.WithContext(t.Context()), remote.WithTransport(g.client.Transport), remote.WithAuth(&authn.Basic{Username: login, Password: g.password(login)})}
}

// push pushes the image of runs, and returns its name.
func (g *guarded) push(t *testing.T, as string) string {
	t.Helper()
	tag, err := name.NewTag(g.host + "/" + as)
	if err == nil {
		err = remote.WriteIndex(tag, imageOf(t, root, "terrier-runner"), g.with(t, "operator")...)
	}
	if err != nil {
		t.Fatal(err)
	}
	return tag.String()
}

// read returns the digest of what a tag points to, and the labels of its only platform.
func (g *guarded) read(t *testing.T, tag, login string) (v1.Hash, map[string]string) {
	t.Helper()
	ref, err := name.NewTag(g.host + "/" + tag)
	if err != nil {
		t.Fatal(err)
	}
	got, err := remote.Get(ref, g.with(t, login)...)
	if err != nil {
		t.Fatal(err)
	}
	image, err := got.Image()
	if err != nil {
		t.Fatal(err)
	}
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	return got.Digest, maps.Clone(file.Config.Labels)
}
