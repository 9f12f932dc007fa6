package e2e

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// providers is a registry of one provider, acme/random, which is the one of the
// mirror under another name. It speaks the protocol of provider registries.
type providers struct {
	packed []byte
	size   float64 // of the package, unpacked

	mu    sync.Mutex
	asked map[string]int // by path
}

const providerVersion = "2.0.0"

func newProviders(t *testing.T) *providers {
	t.Helper()
	name := "terraform-provider-random_v" + providerVersion
	program, err := os.ReadFile(filepath.Join(testkit.Repository(t), "bin/mirror/registry.opentofu.org/hashicorp/random", providerVersion, runtime.GOOS+"_"+runtime.GOARCH, name))
	if err != nil {
		t.Fatalf("run make providers: %v", err)
	}
	var packed bytes.Buffer
	z := zip.NewWriter(&packed)
	header := &zip.FileHeader{Name: name, Method: zip.Deflate}
	header.SetMode(0o755)
	w, err := z.CreateHeader(header)
	if err == nil {
		_, err = w.Write(program)
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return &providers{packed: packed.Bytes(), size: float64(len(program)), asked: map[string]int{}}
}

// archiveName is what the package is called, which its sums name, too.
var archiveName = fmt.Sprintf("terraform-provider-random_%s_%s_%s.zip", providerVersion, runtime.GOOS, runtime.GOARCH)

func (p *providers) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	p.mu.Lock()
	p.asked[path.Base(q.URL.Path)]++
	p.mu.Unlock()
	base, sum := "http://"+q.Host, fmt.Sprintf("%x", sha256.Sum256(p.packed))
	answer := func(v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	switch q.URL.Path {
	case "/providers/acme/random/versions":
		answer(map[string]any{"versions": []any{map[string]any{
			"version": providerVersion, "protocols": []string{"5.0"}, "platforms": []any{map[string]string{"os": runtime.GOOS, "arch": runtime.GOARCH}},
		}}})
	case path.Join("/providers/acme/random", providerVersion, "download", runtime.GOOS, runtime.GOARCH):
		answer(map[string]any{
			"protocols": []string{"5.0"}, "os": runtime.GOOS, "arch": runtime.GOARCH,
			"filename": archiveName, "download_url": base + "/" + archiveName, "shasum": sum,
			"shasums_url": base + "/sums", "shasums_signature_url": base + "/sums.sig",
			"signing_keys": map[string]any{"gpg_public_keys": []any{}},
		})
	case "/sums":
		fmt.Fprintf(w, "%s  %s\n", sum, archiveName)
	case "/sums.sig": // the engine asks for it, and checks none that has no key
	case "/" + archiveName:
		_, _ = w.Write(p.packed)
	default:
		http.NotFound(w, q)
	}
}

// downloads is how often the package was fetched.
func (p *providers) downloads() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[archiveName]
}

// An engine that downloads a provider is seen to have, in bytes: of a registry
// for each stack that is new, and of the stack's own directory when it is asked
// again to initialise it. No byte is counted that was not there.
func TestBytesOfProvidersAreCounted(t *testing.T) {
	t.Parallel()
	r := newProviders(t)
	server := httptest.NewServer(r)
	defer server.Close()
	states := &stateServer{}
	backend := httptest.NewServer(states)
	defer backend.Close()
	p := testkit.Up(t, "--metrics-address", "127.0.0.1:0")
	c := p.Cluster(t)
	c.PutSecret(t, "rc", map[string]string{"any.tfrc": `
host "registry.opentofu.org" {
  services = { "providers.v1" = "` + server.URL + `/providers/" }
}
`})
	const spec = "approvePlan: auto\ninterval: 1h\ncliConfigSecretRef: {name: rc}"
	const hcl = "terraform {\n  required_providers {\n    random = { source = \"acme/random\" }\n  }\n}\nresource \"random_pet\" \"it\" {}\n"
	bytesAre(t, p, 0, 0)

	c.Apply(t, inline("first", spec, hcl))
	c.AwaitReady(t, "first")
	bytesAre(t, p, r.size, 0)
	if n := r.downloads(); n != 1 {
		t.Errorf("to plan and to apply, the engine downloaded %d times, want once", n)
	}

	// Settings of a backend are passed at each run, which is an init.
	c.Apply(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: backend}\ndata: {address: \""+backend.URL+"\"}\n")
	c.Apply(t, inline("second", spec+"\nbackendConfig: {customConfiguration: 'backend \"http\" {}'}\nbackendConfigsFrom: [{kind: ConfigMap, name: backend}]", hcl))
	c.AwaitReady(t, "second")
	bytesAre(t, p, 2*r.size, r.size)
	if n := r.downloads(); n != 2 {
		t.Errorf("for two stacks the engine downloaded %d times, want once for each", n)
	}
	states.mu.Lock()
	defer states.mu.Unlock()
	if !strings.Contains(string(states.state), "registry.opentofu.org/acme/random") {
		t.Errorf("the state in the backend does not name the provider: %.200s", states.state)
	}
}

// bytesAre waits until a scrape says how many bytes came from where, with none
// from the mirror.
func bytesAre(t *testing.T, p *testkit.Platform, registry, cache float64) {
	t.Helper()
	want := map[string]float64{"registry": registry, "cache": cache, "mirror": 0}
	testkit.Eventually(t, testkit.Patience, fmt.Sprintf("the bytes of providers are %v", want), func(ctx context.Context) error {
		all, err := scrapeOf(ctx, p)
		if err != nil {
			return err
		}
		f := all["terrier_provider_bytes_total"]
		if f == nil || len(f.series) != len(want) {
			return fmt.Errorf("the series are %+v", f)
		}
		for source, bytes := range want {
			if got := f.series[`terrier_provider_bytes_total{source="`+source+`"}`]; got != bytes {
				return fmt.Errorf("%s has %.0f, of %v", source, got, f.series)
			}
		}
		return nil
	})
}
