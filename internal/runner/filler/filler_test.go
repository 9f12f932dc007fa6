package filler_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/runner/filler"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/sandbox"
)

func TestMain(m *testing.M) {
	sandbox.Main()
	os.Exit(m.Run())
}

const random = "registry.opentofu.org/hashicorp/random"

// entry is one of a lock file.
func entry(version, hash string) string {
	return fmt.Sprintf("provider %q {\n  version = %q\n  hashes = [\n    %q,\n  ]\n}\n", random, version, hash)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The cache gets what the lock file names by its hash, and nothing else. A package that was
// changed in it is replaced, one that is right stays, and one that cannot be fetched keeps no
// other one out.
func TestFill(t *testing.T) {
	root, err := filepath.Abs("../../../bin")
	if err != nil {
		t.Fatal(err)
	}
	reg := runnertest.NewRegistry(t)
	reg.Publish(filepath.Join(root, "mirror"), "hashicorp/random", "3.6.1")
	dir := t.TempDir()
	lock, config, trust := filepath.Join(dir, "lock.hcl"), filepath.Join(dir, "cli"), filepath.Join(dir, "ca.pem")
	write(t, config, reg.Host("registry.opentofu.org"))
	write(t, trust, string(reg.Authority))
	var said bytes.Buffer
	o := filler.Options{
		Dir: filepath.Join(dir, "cache"), Lock: lock, Engine: filepath.Join(root, "tofu"), Log: slog.New(slog.NewTextHandler(&said, nil)),
		Environ: []string{"HTTPS_PROXY=" + reg.Proxy, "SSL_CERT_FILE=" + trust, "TF_CLI_CONFIG_FILE=" + config, "PATH=" + os.Getenv("PATH")},
	}
	good := entry("3.6.1", reg.Hash("hashicorp/random", "3.6.1"))
	place := filepath.Join(o.Dir, random, "3.6.1", runtime.GOOS+"_"+runtime.GOARCH)
	has := func(want string) {
		t.Helper()
		hash, err := archive.HashPackage(os.DirFS(place))
		if want == "" && err == nil || want != "" && (err != nil || !strings.Contains(good, hash)) {
			t.Errorf("the cache has the package %s, %v; want %q", hash, err, want)
		}
		if left, err := filepath.Glob(filepath.Join(o.Dir, ".*")); err != nil || len(left) > 0 {
			t.Errorf("%q are left of filling, %v", left, err)
		}
	}

	for name, tt := range map[string]struct{ lock, want string }{
		"another hash":            {entry("3.6.1", "h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="), "fetching " + random + " 3.6.1"},
		"the hash of the archive": {entry("3.6.1", "zh:AAAA"), "tofu providers lock -platform="},
		"a version that is none":  {entry("9.9.9", "h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="), "fetching " + random + " 9.9.9"},
		"no lock file":            {"provider {", "lock file"},
	} {
		t.Run(name, func(t *testing.T) {
			write(t, lock, tt.lock)
			if err := filler.Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Run() = %v, want %q", err, tt.want)
			}
			has("")
		})
	}

	nowhere := strings.ReplaceAll(good, "hashicorp/random", "hashicorp/nowhere")
	write(t, lock, nowhere+good)
	if err := filler.Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "hashicorp/nowhere") {
		t.Errorf("Run() = %v, want the provider that is nowhere", err)
	}
	has("the package of the registry")

	write(t, lock, good)
	before := len(reg.Asked())
	if err := filler.Run(t.Context(), o); err != nil || len(reg.Asked()) != before {
		t.Errorf("Run() = %v with %q, want nothing to do", err, reg.Asked()[before:])
	}
	write(t, filepath.Join(place, "LICENSE.txt"), "changed")
	if err := filler.Run(t.Context(), o); err != nil {
		t.Error(err)
	}
	has("the package of the registry again")
}
