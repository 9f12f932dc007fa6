package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/registry"
	"github.com/terrier-iac/terrier/internal/registry/registrytest"
)

// What is in the registry of the measurement, and in the upstream of its mirror.
const (
	mirroredHost   = "registry.example.com" // no server has this name
	cloudWeight    = 20 << 20               // bytes of the archive of the provider that is installed
	manyVersions   = 10_000
	deniedPatterns = 20 // in the rules of the mirror for what has many versions
	largeArchive   = 1 << 30
	storedLimit    = 4 << 30
)

var here = runtime.GOOS + "_" + runtime.GOARCH

// onRegistry measures the registry and the mirror, each part with a new process, so that the
// most memory of a process is that of its part.
func onRegistry(ctx context.Context, b *bench, out io.Writer, minutes int) (err error) {
	s := &site{b: b, dir: filepath.Join(b.scratch, "registry")}
	defer func() { err = errors.Join(err, s.stop()) }()
	stage := &stage{}
	defer stage.close()
	if err := s.fill(ctx, stage); err != nil {
		return fmt.Errorf("filling the registry: %w", err)
	}
	for _, part := range []func(context.Context, io.Writer) error{
		installs{s}.cold,
		func(ctx context.Context, out io.Writer) error { return installs{s}.warm(ctx, out, minutes) },
		answers{s}.lists,
		answers{s}.slow,
	} {
		if err := s.start(ctx); err != nil {
			return err
		}
		if err := errors.Join(part(ctx, out), s.stop()); err != nil {
			return err
		}
	}
	return nil
}

// site is "terrier registry" as a process, and the upstream of its mirror in this one.
type site struct {
	b        *bench
	dir      string
	upstream *registrytest.Upstream
	archive  []byte // of the provider that is installed
	server   *exec.Cmd
	url, ca  string
	token    string
	http     *http.Client
}

// stage is what a measurement has in place of a test: what a test would fail for ends it.
type stage struct{ ends []func() }

// Helper, Cleanup and Fatal implement registrytest.T.
func (s *stage) Helper()            {}
func (s *stage) Cleanup(end func()) { s.ends = append(s.ends, end) }
func (s *stage) Fatal(why ...any)   { panic("bench: " + fmt.Sprint(why...)) }

func (s *stage) close() {
	for _, end := range s.ends {
		end()
	}
}

func (s *site) data(parts ...string) string {
	return filepath.Join(append([]string{s.dir, "data"}, parts...)...)
}

// fill makes the upstream and the storage.
func (s *site) fill(ctx context.Context, t registrytest.T) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	s.upstream = registrytest.New(t)
	cloud := registrytest.NewRelease(t, registrytest.NewSigner(t), "acme/cloud", "1.0.0", cloudWeight, here)
	s.archive = cloud.Archives[here]
	s.upstream.Publish(cloud)
	for i := range manyVersions {
		s.upstream.Publish(&registrytest.Release{Namespace: "acme", Type: "many", Version: version(i), Protocols: []string{"5.0"}, Archives: map[string][]byte{here: {0}}})
	}
	ca := filepath.Join(s.dir, "upstream.pem")
	if err := os.WriteFile(ca, s.upstream.Authority, 0o600); err != nil {
		return err
	}
	var deny []map[string]string
	for i := range deniedPatterns {
		deny = append(deny, map[string]string{"provider": "*/acme/many", "versions": fmt.Sprintf(">= 100.%d.0, < 100.%d.1", i, i), "reason": "a measurement"})
	}
	settings, err := json.Marshal(map[string]any{
		"upstreams": map[string]any{mirroredHost: map[string]string{"url": s.upstream.URL, "caFile": ca}},
		"rules":     []any{map[string]any{"deny": deny}},
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.settings(), settings, 0o600); err != nil {
		return err
	}
	return s.store(ctx)
}

func (s *site) settings() string { return filepath.Join(s.dir, "mirror.yaml") }

// version is one of many.
func version(i int) string { return fmt.Sprintf("%d.%d.%d", i/400, i/20%20, i%20) }

// store puts modules and providers where the registry has them.
func (s *site) store(ctx context.Context) error {
	modules, providers := map[string]registry.ModuleVersion{}, map[string]registry.ProviderVersion{}
	for i := range manyVersions {
		v := version(i)
		sum := fmt.Sprintf("%064d", i)
		modules[v] = registry.ModuleVersion{File: "bench-many-demo-" + v + ".tar.gz", SHA256: sum, Size: 10_000, Published: time.Unix(1e9, 0), By: "ci"}
		packages := map[address.Platform]registry.Package{}
		for _, on := range []string{"darwin_amd64", "darwin_arm64", "linux_amd64", "linux_arm64", "windows_amd64", "freebsd_amd64"} {
			platform, err := address.ParsePlatform(on)
			if err != nil {
				return err
			}
			packages[platform] = registry.Package{SHA256: sum, Size: 10_000}
		}
		providers[v] = registry.ProviderVersion{Protocols: []string{"5.0"}, Packages: packages, Published: time.Unix(1e9, 0), By: "ci"}
	}
	small, err := tarball("main.tf", "output \"says\" {\n  value = \"hello\"\n}\n")
	if err != nil {
		return err
	}
	files, err := blob.OpenVersionedFiles(s.data("storage"), storedLimit)
	if err != nil {
		return err
	}
	put := func(key string, content io.Reader) { err = errors.Join(err, files.Put(ctx, key, content)) }
	index := func(key string, versions any) {
		text, failed := json.Marshal(map[string]any{"versions": versions})
		err = errors.Join(err, failed)
		put("index/"+key+".json", bytes.NewReader(text))
	}
	index("modules/bench/many/demo", modules)
	index("providers/bench/many", providers)
	put("modules/bench/hello/demo/bench-hello-demo-1.0.0.tar.gz", bytes.NewReader(small))
	put("modules/bench/large/demo/bench-large-demo-1.0.0.tar.gz", io.LimitReader(zeros{}, largeArchive))
	return errors.Join(err, files.Close())
}

// zeros is an endless content.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// start starts the registry on what it has.
func (s *site) start(ctx context.Context) error {
	s.server = exec.Command(s.b.bin("terrier"), "registry", "--data-dir", s.data(), "--listen-address", "127.0.0.1:0",
		"--config", s.settings(), "--allow-host", "127.0.0.0/8", "-o", "json")
	line, err := begin(ctx, s.server, filepath.Join(s.dir, "registry.log"))
	if err != nil {
		return err
	}
	var ready struct{ URL, CA, Token string }
	if err := json.Unmarshal(line, &ready); err != nil {
		return fmt.Errorf("reading %q: %w", line, err)
	}
	token, err := os.ReadFile(ready.Token)
	if err != nil {
		return err
	}
	authority, err := os.ReadFile(ready.CA)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	s.url, s.ca, s.token = ready.URL, ready.CA, strings.TrimSpace(string(token))
	s.http = s.client(pool)
	return nil
}

// client is one with connections of its own. It unpacks nothing by itself.
func (s *site) client(pool *x509.CertPool) *http.Client {
	return &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, DisableCompression: true, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
}

func (s *site) stop() error {
	if s.http != nil {
		s.http.CloseIdleConnections()
	}
	return stop(s.server)
}

// ask sends a request to the registry, which has to answer with 200.
func (s *site) ask(ctx context.Context, path string, header ...string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+s.token)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := s.http.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
		return nil, errors.Join(fmt.Errorf("%s is answered with %s: %s", path, answer.Status, text), err, answer.Body.Close())
	}
	return answer, nil
}

// used is what the server has used of the CPU so far.
func (s *site) used() (time.Duration, error) { return cpuOf(s.server.Process.Pid) }

// held prints the memory of the server.
func (s *site) held(f *facts) error {
	now, err := rssOf(s.server.Process.Pid)
	if err != nil {
		return err
	}
	most, err := peakOf(s.server.Process.Pid)
	f.fact("registry: memory at the end, most", mib(now)+", "+mib(most), "")
	return err
}
