package registryserver

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/client"
	"github.com/terrier-iac/terrier/internal/registry/registrytest"
	"github.com/terrier-iac/terrier/internal/registry/registrytest/enginetest"
	"github.com/terrier-iac/terrier/internal/web/pages/browse"
)

// RG-09: a release of a provider that was pushed is what the engine installs, once a key of
// the namespace has signed it.
func TestPushedProviderIsInstalled(t *testing.T) {
	r := start(t, nil)
	signer := registrytest.NewSigner(t)
	release := registrytest.NewRelease(t, signer, "net/dns", "1.2.3", 100, runtime.GOOS+"_"+runtime.GOARCH, "darwin_arm64")
	const base = "terraform-provider-dns_1.2.3_"
	dist := map[string]string{base + "SHA256SUMS": string(release.Sums), base + "SHA256SUMS.sig": string(release.Signature)}
	for platform, zip := range release.Archives {
		dist[base+platform+".zip"] = string(zip)
	}
	dir := files(t, dist)
	args := []string{"provider", "push", dir, "--namespace", "net"}
	if code, out := r.terrier(t, r.token(t), args...); code != 2 {
		t.Errorf("a release without a known key ended with %d: %s, want 2", code, out)
	}
	key := filepath.Join(files(t, map[string]string{"key.asc": signer.Key(t).Armor}), "key.asc")
	r.works(t, "provider", "keys", "add", key, "--namespace", "net")
	if out := r.works(t, "provider", "keys", "list"); !regexp.MustCompile(`(?m)^net +` + signer.Key(t).ID).MatchString(out) {
		t.Errorf("the keys of all namespaces are %s", out)
	}
	if out := r.works(t, "provider", "keys", "list", "--namespace", "net"); !strings.Contains(out, signer.Key(t).ID) {
		t.Errorf("the keys are %s, want %s", out, signer.Key(t).ID)
	}
	private := filepath.Join(files(t, map[string]string{"key.asc": signer.Private(t)}), "key.asc")
	if code, out := r.terrier(t, r.token(t), "provider", "keys", "add", private, "--namespace", "net"); code != 2 || !strings.Contains(out, "private key") {
		t.Errorf("a private key ended with %d: %s, want 2", code, out)
	}
	if out := r.works(t, args...); !strings.Contains(out, "Published net/dns 1.2.3 for 2 platforms") {
		t.Errorf("push says %s", out)
	}
	if out := r.works(t, args...); !strings.Contains(out, "published before") {
		t.Errorf("the same release again says %s", out)
	}
	other := registrytest.NewRelease(t, signer, "net/dns", "1.2.3", 10, slices.Sorted(maps.Keys(release.Archives))...)
	for platform, zip := range other.Archives {
		dist[base+platform+".zip"] = string(zip)
	}
	dist[base+"SHA256SUMS"], dist[base+"SHA256SUMS.sig"] = string(other.Sums), string(other.Signature)
	args[2] = files(t, dist)
	if code, out := r.terrier(t, r.token(t), args...); code != 2 || !strings.Contains(out, "publish a new version") || strings.Contains(out, "again") {
		t.Errorf("other packages of a version that exists ended with %d: %s, want 2", code, out)
	}
	r.works(t, append(args, "--ignore-existing")...)
	if out := r.works(t, "provider", "list", "net/dns"); !strings.Contains(out, "1.2.3") || !strings.Contains(out, "darwin_arm64") {
		t.Errorf("list says %s", out)
	}
	used := enginetest.Requiring(t, r.host()+"/net/dns", "~> 1.2")
	out, err := r.engine("", browse.CLIConfiguration(r.host(), r.token(t))).Init(t, used)
	if err != nil {
		t.Fatalf("init: %v: %s", err, out)
	}
	lock := enginetest.LockFile(t, used)
	for _, platform := range []string{runtime.GOOS + "_" + runtime.GOARCH, "darwin_arm64"} {
		if _, zh := release.Hashes(t, platform); !strings.Contains(lock, zh) {
			t.Errorf("the lock file lacks the hash of %s:\n%s", platform, lock)
		}
	}
	if code, out := r.terrier(t, r.token(t), "provider", "keys", "remove", signer.Key(t).ID, "--namespace", "net"); code != 2 || strings.Contains(out, "again") {
		t.Errorf("removing a key that a version needs ended with %d: %s, want 2", code, out)
	}
	r.works(t, "provider", "retract", "net/dns", "1.2.3", "--reason", "loses records")
	again := enginetest.Requiring(t, r.host()+"/net/dns", "~> 1.2")
	if out, err := r.engine(r.token(t), "").Init(t, again); err == nil {
		t.Errorf("a version that was retracted is installed: %s", out)
	}
	var listed struct{ Items []client.RegistryVersion }
	if err := json.Unmarshal([]byte(r.works(t, "provider", "list", "net/dns", "-o", "json")), &listed); err != nil {
		t.Fatal(err)
	}
	if v := listed.Items; len(v) != 1 || v[0].By != "admin" || v[0].Size == 0 || v[0].Published.IsZero() || v[0].Key != signer.Key(t).ID || len(v[0].Platforms) != 2 || v[0].Retracted == nil || v[0].Retracted.By != "admin" {
		t.Errorf("the list in JSON is %+v", v)
	}
	if out := r.works(t, "provider", "list", "net/dns"); !strings.Contains(out, "loses records") {
		t.Errorf("list says %s, want the reason", out)
	}
	r.works(t, "provider", "restore", "net/dns", "1.2.3")
	if out, err := r.engine(r.token(t), "").Init(t, again); err != nil {
		t.Errorf("init of a version that was restored: %v: %s", err, out)
	}
}
