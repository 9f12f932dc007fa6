package mirror_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry/mirror"
	"github.com/terrier-iac/terrier/internal/registry/registrytest"
)

// RG-13: what one mirror exports, another one imports that reaches no upstream. The
// signatures come along.
func TestBundles(t *testing.T) {
	signer := registrytest.NewSigner(t)
	r := registrytest.NewRelease(t, signer, "acme/cloud", "1.0.0", 1000, amd64, arm64)
	newer := registrytest.NewRelease(t, signer, "acme/cloud", "1.1.0", 1000, amd64)
	s := open(t, newUpstream(t, r, newer), t.TempDir())
	s.installs(t, r, amd64, arm64)
	s.installs(t, newer, amd64)
	bundle := t.TempDir()
	for _, tt := range []struct {
		mirror.Selection
		want int
	}{
		{mirror.Selection{Providers: []mirror.Pattern{{Provider: host + "/other/*"}}}, 0},
		{mirror.Selection{Providers: []mirror.Pattern{{Provider: "*/acme/*", Versions: "~> 1.1"}}}, 1},
		{mirror.Selection{Platforms: []address.Platform{platform(t, arm64)}}, 1},
		{mirror.Selection{Platforms: []address.Platform{platform(t, amd64)}}, 2}, // added to what is there
	} {
		if got, err := s.Export(t.Context(), bundle, tt.Selection); err != nil || got != tt.want {
			t.Errorf("Export(%+v) = %d, %v, want %d", tt.Selection, got, err, tt.want)
		}
	}

	offline := open(t, registrytest.New(t), t.TempDir(), setUpstream(func(u *mirror.Upstream) { u.Offline = true }))
	for _, want := range []mirror.Imported{{Archives: 3}, {Known: 3}} {
		if got, err := offline.Import(t.Context(), os.DirFS(bundle), "alice"); err != nil || got != want {
			t.Errorf("Import() = %+v, %v, want %+v", got, err, want)
		}
	}
	offline.installs(t, r, amd64, arm64)
	offline.installs(t, newer, amd64)
	p := provider(t, "acme/cloud")
	index, err := offline.Index(t.Context(), p)
	if err != nil || index.Releases["1.0.0"].KeyID != signer.Key(t).ID || index.Releases["1.0.0"].From != "a bundle of alice" {
		t.Errorf("the release is %+v, %v, want one that is verified", index.Releases["1.0.0"], err)
	}
	if _, err := offline.Versions(t.Context(), tenant, provider(t, "acme/other")); fault.Reason(err, "") != mirror.ReasonOffline {
		t.Errorf("a provider that is not in the bundle: %v, want %s", err, mirror.ReasonOffline)
	}
	if got := len(offline.upstream.Asked()); got > 0 {
		t.Errorf("the upstream got %d requests although it is offline", got)
	}
	// What was imported cannot be had again, so it stays.
	offline.clock.move(1000 * 24 * time.Hour)
	if got, err := offline.Sweep(t.Context(), time.Hour); err != nil || got.Deleted != 0 {
		t.Errorf("Sweep() = %+v, %v, want nothing deleted", got, err)
	}
}

func TestBundlesAreVerified(t *testing.T) {
	signer := registrytest.NewSigner(t)
	r := registrytest.NewRelease(t, signer, "acme/cloud", "1.0.0", 0, amd64)
	h1, zh := r.Hashes(t, amd64)
	const dir = host + "/acme/cloud/"
	file := "terraform-provider-cloud_1.0.0_" + amd64 + ".zip"
	version := func(url string, hashes ...string) string {
		return fmt.Sprintf(`{"archives": {%q: {"url": %q, "hashes": ["%s"]}}}`, amd64, url, strings.Join(hashes, `", "`))
	}
	for name, tt := range map[string]struct {
		change map[string]string
		says   string // empty: it is imported
	}{
		"one of tofu, which has no signatures": {},
		"an archive with other bytes":          {map[string]string{dir + file: "other"}, "is not the archive that 1.0.0.json of the bundle names"},
		"another h1":                           {map[string]string{dir + "1.0.0.json": version(file, "h1:other", zh)}, "is not the archive"},
		"an archive elsewhere":                 {map[string]string{dir + "1.0.0.json": version("../"+file, h1)}, "only files in the same directory"},
		"an archive on a server":               {map[string]string{dir + "1.0.0.json": version("https://example.com/"+file, h1)}, "only files in the same directory"},
		"an archive that is not there":         {map[string]string{dir + "1.0.0.json": version("none.zip", h1)}, "no such file or directory"},
		"a document that is not there":         {map[string]string{dir + "index.json": `{"versions": {"2.0.0": {}}}`}, "no such file or directory"},
		"a document that is a page":            {map[string]string{dir + "index.json": "<html>"}, "is no document of the network mirror protocol"},
		"a version that is none":               {map[string]string{dir + "index.json": `{"versions": {"../x": {}}}`}, "is no version"},
		"checksums that another key signed": {map[string]string{
			dir + "terraform-provider-cloud_1.0.0_SHA256SUMS":     string(r.Sums),
			dir + "terraform-provider-cloud_1.0.0_SHA256SUMS.sig": string(registrytest.NewSigner(t).Sign(t, r.Sums)),
			host + "/acme/signing-keys.json":                      mustJSON(t, map[string]any{"gpg_public_keys": r.Keys}),
		}, "is not verified"},
		"a registry that is no upstream": {map[string]string{"other.example.com/a/b/index.json": `{"versions": {}}`}, "add it to upstreams"},
	} {
		t.Run(name, func(t *testing.T) {
			bundle := t.TempDir()
			files := map[string]string{
				dir + "index.json": `{"versions": {"1.0.0": {}}}`, dir + "1.0.0.json": version(file, h1, zh), dir + file: string(r.Archives[amd64]),
			}
			for name, text := range tt.change {
				files[name] = text
			}
			for name, text := range files {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(bundle, name)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(bundle, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			s := open(t, registrytest.New(t), t.TempDir(), setUpstream(func(u *mirror.Upstream) { u.Offline = true }))
			_, err := s.Import(t.Context(), os.DirFS(bundle), "alice")
			if tt.says == "" {
				if err != nil {
					t.Fatal(err)
				}
				s.installs(t, r, amd64)
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("Import() = %v, want an error that says %q", err, tt.says)
			}
			if got := s.stored(t); len(got) > 0 && !strings.HasPrefix(name, "a registry") {
				t.Errorf("%q is stored", got)
			}
		})
	}
	if _, err := open(t, registrytest.New(t), t.TempDir()).Import(t.Context(), os.DirFS(t.TempDir()), "alice"); fault.Of(err) != fault.Invalid {
		t.Errorf("Import() of an empty directory = %v, want Invalid", err)
	}
}

// tofuBundle is a bundle as an engine makes it: it has no signatures.
func tofuBundle(t *testing.T, r *registrytest.Release, on string) string {
	t.Helper()
	bundle := t.TempDir()
	dir := filepath.Join(bundle, host, r.Namespace, r.Type)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file := "terraform-provider-" + r.Type + "_" + r.Version + "_" + on + ".zip"
	h1, _ := r.Hashes(t, on)
	for name, text := range map[string]string{
		"index.json":        mustJSON(t, map[string]any{"versions": map[string]any{r.Version: struct{}{}}}),
		r.Version + ".json": mustJSON(t, map[string]any{"archives": map[string]any{on: map[string]any{"url": file, "hashes": []string{h1}}}}),
		file:                string(r.Archives[on]),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return bundle
}

// A bundle without signatures brings one platform of a version; the upstream has the
// others, and its checksums are verified as those of any release.
func TestBundleLeavesOtherPlatformsToTheUpstream(t *testing.T) {
	r := registrytest.NewRelease(t, registrytest.NewSigner(t), "acme/cloud", "1.0.0", 0, amd64, arm64)
	u, dir, p := newUpstream(t, r), t.TempDir(), provider(t, "acme/cloud")
	if _, err := open(t, u, dir).Import(t.Context(), os.DirFS(tofuBundle(t, r, amd64)), "alice"); err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]registrytest.Fault{"an error": registrytest.Status(503), "silence": registrytest.Hang} {
		s := open(t, u, dir, impatient)
		u.Fail("", f)
		s.installs(t, r, amd64)
		if _, err := s.read(t, p, "1.0.0", arm64); fault.Of(err) != fault.Later || !strings.Contains(err.Error(), host) {
			t.Errorf("%s: the other platform: %v, want an error that names the upstream", name, err)
		}
		u.Heal()
	}
	s := open(t, u, dir)
	s.installs(t, r, amd64, arm64)
	if got := u.Count(amd64 + ".zip"); got > 0 {
		t.Errorf("the upstream got %d requests for the imported archive", got)
	}
	index, err := s.Index(t.Context(), p)
	if err != nil || index.Releases["1.0.0"].KeyID == "" || !index.Releases["1.0.0"].Packages[amd64].Pinned {
		t.Errorf("the release is %+v, %v, want a verified one that keeps the imported archive", index.Releases["1.0.0"], err)
	}
}

// Where the signed checksums name another archive than the imported one, the imported one
// stays, and the mirror takes no other platform of that release.
func TestBundleDiffersFromTheUpstream(t *testing.T) {
	signer := registrytest.NewSigner(t)
	r := registrytest.NewRelease(t, signer, "acme/cloud", "1.0.0", 0, amd64)
	other := registrytest.NewRelease(t, signer, "acme/cloud", "1.0.0", 10, amd64, arm64)
	s := open(t, newUpstream(t, other), t.TempDir())
	if _, err := s.Import(t.Context(), os.DirFS(tofuBundle(t, r, amd64)), "alice"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s.installs(t, r, amd64)
		if _, err := s.read(t, provider(t, "acme/cloud"), "1.0.0", arm64); fault.Reason(err, "") != mirror.ReasonChanged {
			t.Errorf("another platform of the other release: %v, want %s", err, mirror.ReasonChanged)
		}
		s.clock.move(time.Hour)
	}
	if got := s.counts.alarmed(); len(got) != 1 || !strings.Contains(got[0], "the imported archive has") {
		t.Errorf("alarms are %q, want one", got)
	}
	bundle := t.TempDir()
	if _, err := s.Export(t.Context(), bundle, mirror.Selection{}); err != nil {
		t.Fatal(err)
	}
	offline := open(t, registrytest.New(t), t.TempDir(), setUpstream(func(u *mirror.Upstream) { u.Offline = true }))
	if _, err := offline.Import(t.Context(), os.DirFS(bundle), "bob"); err != nil {
		t.Errorf("the exported bundle is not good: %v", err)
	}
}

// A bundle does not replace what was verified.
func TestBundleOfAnotherRelease(t *testing.T) {
	signer := registrytest.NewSigner(t)
	other := registrytest.NewRelease(t, registrytest.NewSigner(t), "acme/cloud", "1.0.0", 10, amd64)
	theirs := open(t, newUpstream(t, other), t.TempDir())
	theirs.installs(t, other, amd64)
	bundle := t.TempDir()
	if _, err := theirs.Export(t.Context(), bundle, mirror.Selection{}); err != nil {
		t.Fatal(err)
	}
	r := registrytest.NewRelease(t, signer, "acme/cloud", "1.0.0", 0, amd64)
	s := open(t, newUpstream(t, r), t.TempDir())
	s.installs(t, r, amd64)
	if _, err := s.Import(t.Context(), os.DirFS(bundle), "alice"); fault.Reason(err, "") != mirror.ReasonChanged || fault.Of(err) != fault.Invalid {
		t.Errorf("Import() = %v, want %s", err, mirror.ReasonChanged)
	}
	s.installs(t, r, amd64)
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
