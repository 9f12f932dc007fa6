package runnertest

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/terrier-iac/terrier/internal/archive"
)

// RegistryHost is the name of a Registry. It can be reached only through its
// proxy.
const RegistryHost = "registry.invalid"

// Registry is a registry of providers as engines know them, on loopback, with an
// authority of its own. It is known by a name that does not resolve, so that
// clients come through its proxy or not at all.
type Registry struct {
	Authority []byte // of its certificate, PEM
	Proxy     string // address of the proxy, as in HTTPS_PROXY

	t        testing.TB
	mu       sync.Mutex
	packages map[string]map[string][]byte // archives by provider and version
	asked    []string                     // paths of requests
	login    string                       // what the proxy was shown
}

// NewRegistry starts a registry without providers.
func NewRegistry(t testing.TB) *Registry {
	t.Helper()
	return NewRegistryAt(t, "127.0.0.1")
}

// NewRegistryAt starts a registry whose proxy has an address of this machine.
func NewRegistryAt(t testing.TB, address string) *Registry {
	t.Helper()
	r := &Registry{t: t, packages: map[string]map[string][]byte{}}
	certificate, authority := Certificate(t, RegistryHost)
	r.Authority = authority
	server := httptest.NewUnstartedServer(r)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	to := server.Listener.Addr().String()
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httptest.Server{Listener: listener, Config: &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { r.connect(w, q, to) }),
	}}
	proxy.Start()
	t.Cleanup(proxy.Close)
	r.Proxy = strings.Replace(proxy.URL, "://", "://user:proxy-canary-4711@", 1)
	return r
}

// Publish adds a version of a provider (hashicorp/random), with the program that
// a mirror has of it.
func (r *Registry) Publish(mirror, provider, version string) {
	r.t.Helper()
	data := packageOf(r.t, mirror, provider, version)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.packages[provider] == nil {
		r.packages[provider] = map[string][]byte{}
	}
	r.packages[provider][version] = data
}

// packageOf is an archive of a provider, with the program that a mirror has of it.
func packageOf(t testing.TB, mirror, provider, version string) []byte {
	t.Helper()
	programs, err := filepath.Glob(filepath.Join(mirror, "registry.opentofu.org", provider, "*/*/terraform-provider-*"))
	if err != nil || len(programs) != 1 {
		t.Fatalf("no program of %s in %s: %v", provider, mirror, err)
	}
	program, err := os.ReadFile(programs[0])
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	header := &zip.FileHeader{Name: "terraform-provider-" + filepath.Base(provider) + "_v" + version}
	header.SetMode(0o755)
	w, err := z.CreateHeader(header)
	if err == nil {
		_, err = w.Write(program)
	}
	if err != nil {
		t.Fatal(err)
	}
	w, err = z.Create("LICENSE.txt")
	if err == nil {
		_, err = io.WriteString(w, "of the registry\n")
	}
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Hash is how a lock file names the package of a version, which is another than
// that of the mirror.
func (r *Registry) Hash(provider, version string) string {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	data := r.packages[provider][version]
	unpacked, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		r.t.Fatal(err)
	}
	hash, err := archive.HashPackage(unpacked)
	if err != nil {
		r.t.Fatal(err)
	}
	return hash
}

// Asked are the paths of all requests so far.
func (r *Registry) Asked() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.asked)
}

// Host is what a CLI configuration says of the registry: it stands in for that of
// an engine.
func (r *Registry) Host(of string) string {
	return fmt.Sprintf("\nhost %q {\n  services = {\n    \"providers.v1\" = \"https://%s/v1/providers/\"\n  }\n}\n", of, RegistryHost)
}

// ServeHTTP implements http.Handler: the protocol of registries of providers.
func (r *Registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, q.URL.Path)
	parts := strings.Split(strings.TrimPrefix(q.URL.Path, "/v1/providers/"), "/")
	var provider string
	if len(parts) > 2 {
		provider = parts[0] + "/" + parts[1]
	}
	versions, known := r.packages[provider]
	switch {
	case !known:
		http.NotFound(w, q)
	case parts[2] == "versions":
		var all []map[string]any
		for v := range versions {
			all = append(all, map[string]any{"version": v, "protocols": []string{"5.0"}, "platforms": []map[string]string{{"os": runtime.GOOS, "arch": runtime.GOARCH}}})
		}
		r.answer(w, map[string]any{"versions": all})
	case len(parts) == 6 && parts[3] == "download":
		name := fmt.Sprintf("terraform-provider-%s_%s_%s_%s.zip", parts[1], parts[2], parts[4], parts[5])
		at := fmt.Sprintf("https://%s/v1/providers/%s/%s/files/", RegistryHost, provider, parts[2])
		r.answer(w, map[string]any{
			"protocols": []string{"5.0"}, "os": parts[4], "arch": parts[5], "filename": name, "download_url": at + "package",
			"shasums_url": at + "sums", "shasums_signature_url": at + "signature", "shasum": sum(versions[parts[2]]),
			"signing_keys": map[string]any{"gpg_public_keys": []any{}},
		})
	case len(parts) == 5 && parts[3] == "files" && parts[4] == "package":
		_, _ = w.Write(versions[parts[2]])
	case len(parts) == 5 && parts[3] == "files" && parts[4] == "sums":
		fmt.Fprintf(w, "%s  terraform-provider-%s_%s_%s_%s.zip\n", sum(versions[parts[2]]), parts[1], parts[2], runtime.GOOS, runtime.GOARCH)
	default:
		_, _ = io.WriteString(w, "no signature")
	}
}

func (r *Registry) answer(w http.ResponseWriter, what any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(what)
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

// connect is the proxy: it leads every client to the registry.
func (r *Registry) connect(w http.ResponseWriter, q *http.Request, to string) {
	if q.Method != http.MethodConnect || q.Host != RegistryHost+":443" {
		http.Error(w, "not here", http.StatusForbidden)
		return
	}
	r.mu.Lock()
	r.login = q.Header.Get("Proxy-Authorization")
	r.mu.Unlock()
	server, err := net.Dial("tcp", to)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer server.Close()
	client, rest, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer client.Close()
	_, _ = io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n")
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(server, rest)
		_ = server.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(client, server)
	_ = client.Close()
	<-done
}
