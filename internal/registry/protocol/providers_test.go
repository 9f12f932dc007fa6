package protocol_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/registry/registrytest"
	"github.com/terrier-iac/terrier/internal/registry/registrytest/enginetest"
)

var here = runtime.GOOS + "_" + runtime.GOARCH

// RG-06, RG-07: the engine installs a provider that was published, verifies its signature,
// and locks the checksums of all platforms.
func TestEngineInstallsProviders(t *testing.T) {
	s, signer := start(t), registrytest.NewSigner(t)
	one := registrytest.NewRelease(t, signer, "team/cloud", "1.0.0", 5000, here, "plan9_mips")
	s.publish(t, signer, one)
	s.publish(t, signer, registrytest.NewRelease(t, signer, "team/cloud", "1.1.0-rc1", 5000, here))
	s.publish(t, signer, registrytest.NewRelease(t, signer, "team/cloudy", "9.0.0", 5000, here))
	dir := enginetest.Requiring(t, s.host()+"/team/cloud", ">= 1.0.0")
	out, err := s.engine(reader, "").Init(t, dir)
	if err != nil || !strings.Contains(out, "Installed "+s.host()+"/team/cloud v1.0.0 (signed, key ID "+signer.Key(t).ID) {
		t.Fatalf("tofu init: %v: %s", err, out)
	}
	h1, zh := one.Hashes(t, here)
	_, other := one.Hashes(t, "plan9_mips")
	for _, hash := range []string{h1, zh, other} {
		if text := enginetest.LockFile(t, dir); !strings.Contains(text, hash) {
			t.Errorf("the lock file misses %s: %s", hash, text)
		}
	}
	var d struct {
		Protocols []string
		Packages  map[string]struct {
			Hashes []string
			Size   int `json:"package_size"`
		}
	}
	a := s.ask(t, "GET", "/v1/providers/team/cloud/1.0.0/download/"+strings.ReplaceAll(here, "_", "/"), reader, nil)
	if err := json.Unmarshal([]byte(a.body), &d); err != nil {
		t.Fatal(err)
	}
	for platform, data := range one.Archives {
		h1, zh := one.Hashes(t, platform)
		if p := d.Packages[platform]; p.Size != len(data) || strings.Join(p.Hashes, " ") != zh+" "+h1 {
			t.Errorf("the package for %s is %+v, want %d bytes, %s and %s", platform, p, len(data), zh, h1)
		}
	}
	if strings.Join(d.Protocols, " ") != "5.0" {
		t.Errorf("the protocols are %v", d.Protocols)
	}
}

// RG-06: what a client refuses has the right error.
func TestEngineRefusesProviders(t *testing.T) {
	s, signer, other := start(t), registrytest.NewSigner(t), registrytest.NewSigner(t)
	release := registrytest.NewRelease(t, signer, "team/cloud", "1.0.0", 5000, here)
	s.publish(t, signer, release)
	s.publish(t, signer, registrytest.NewRelease(t, signer, "team/elsewhere", "1.0.0", 5000, "plan9_mips"))
	source := s.host() + "/team/cloud"
	for name, tt := range map[string]struct {
		end   string
		alter func(http.Header, []byte) (int, []byte)
		says  string
	}{
		"another key": {"/" + strings.ReplaceAll(here, "_", "/"), func(_ http.Header, b []byte) (int, []byte) {
			return http.StatusOK, replaced(b, "signing_keys", fmt.Sprintf(`{"gpg_public_keys":[{"key_id":%q,"ascii_armor":%q}]}`, other.Key(t).ID, other.Key(t).Armor))
		}, "not signed"},
		"another archive": {".zip", func(_ http.Header, b []byte) (int, []byte) {
			b[len(b)/2] ^= 0xff
			return http.StatusOK, b
		}, "checksum"},
		"another list": {"SHA256SUMS", func(_ http.Header, b []byte) (int, []byte) {
			return http.StatusOK, append(b, '\n')
		}, "signature"},
		"another size": {"/" + strings.ReplaceAll(here, "_", "/"), func(_ http.Header, b []byte) (int, []byte) {
			return http.StatusOK, bytes.Replace(b, []byte(`"package_size":`), []byte(`"package_size":1`), 1)
		}, "package of size"},
	} {
		t.Run(name, func(t *testing.T) {
			s.altered(tt.end, tt.alter)
			s.refused(t, enginetest.Requiring(t, source, "1.0.0"), reader, tt.says)
			s.between(nil)
		})
	}
	t.Run("a platform that is missing", func(t *testing.T) {
		s.refused(t, enginetest.Requiring(t, s.host()+"/team/elsewhere", "1.0.0"), reader, "does not have a package available for your current platform")
		s.ask(t, "GET", "/v1/providers/team/elsewhere/1.0.0/download/linux/amd64", reader, nil).want(t, http.StatusNotFound, "has no package for linux_amd64: it has [plan9_mips]")
	})
	t.Run("a provider that is missing", func(t *testing.T) {
		s.refused(t, enginetest.Requiring(t, s.host()+"/team/nothing", "1.0.0"), reader, "does not have a provider named")
	})
	t.Run("no token", func(t *testing.T) {
		s.refused(t, enginetest.Requiring(t, source, "1.0.0"), "", "requires authentication credentials")
		s.refused(t, enginetest.Requiring(t, s.host()+"/secret/cloud", "1.0.0"), reader, "rejected the given authentication credentials")
	})
}

// replaced puts another value under a key of an object in JSON.
func replaced(b []byte, key, value string) []byte {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil {
		panic(err)
	}
	all = maps.Clone(all)
	all[key] = json.RawMessage(value)
	b, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	return b
}

// RG-06, RG-08, RG-09: mistakes of the one who publishes, over HTTP.
func TestPublishingProviders(t *testing.T) {
	s, signer, other := start(t), registrytest.NewSigner(t), registrytest.NewSigner(t)
	release := registrytest.NewRelease(t, signer, "team/cloud", "1.0.0", 100, here)
	const path, name = "/v1/providers/team/cloud/1.0.0/", "terraform-provider-cloud_1.0.0_"
	s.ask(t, "PUT", path+name+"SHA256SUMS", reader, strings.NewReader("x")).want(t, http.StatusForbidden, "bob may not write")
	s.ask(t, "PUT", path+"README.md", admin, strings.NewReader("x")).want(t, http.StatusUnprocessableEntity, "is no file of the provider team/cloud")
	s.ask(t, "POST", path+"publish", admin, nil).want(t, http.StatusUnprocessableEntity, name+"SHA256SUMS is missing")
	s.stage(t, release)
	s.ask(t, "GET", "/v1/providers/team/cloud/versions", reader, nil).want(t, http.StatusNotFound, "there is no provider team/cloud")
	s.ask(t, "POST", path+"publish", admin, nil).want(t, http.StatusUnprocessableEntity, "the namespace team has no key for signatures")
	s.ask(t, "PUT", "/v1/providers/team/signing-keys", admin, strings.NewReader(signer.Private(t))).want(t, http.StatusUnprocessableEntity, "private key")
	s.ask(t, "PUT", "/v1/providers/team/signing-keys", admin, strings.NewReader(other.Key(t).Armor)).want(t, http.StatusCreated, "")
	s.ask(t, "POST", path+"publish", admin, nil).want(t, http.StatusUnprocessableEntity, "no key of the namespace team made the signature")
	s.ask(t, "POST", path+"publish", reader, nil).want(t, http.StatusForbidden, "bob may not write")
	s.publish(t, signer, release)
	s.ask(t, "POST", path+"publish", admin, nil).want(t, http.StatusCreated, "")
	s.ask(t, "PUT", path+name+"SHA256SUMS", admin, bytes.NewReader(release.Sums)).want(t, http.StatusConflict, "publish a new version")

	a := s.ask(t, "GET", "/v1/providers/team/signing-keys", reader, nil)
	if !strings.Contains(a.body, signer.Key(t).ID) || !strings.Contains(a.body, other.Key(t).ID) {
		t.Errorf("the keys are %s", a.body)
	}
	s.ask(t, "DELETE", "/v1/providers/team/signing-keys/"+signer.Key(t).ID, admin, nil).want(t, http.StatusConflict, "may have signed version 1.0.0 of team/cloud")
	s.ask(t, "DELETE", "/v1/providers/team/signing-keys/"+other.Key(t).ID, reader, nil).want(t, http.StatusForbidden, "bob may not write")
	s.ask(t, "DELETE", "/v1/providers/team/signing-keys/"+other.Key(t).ID, admin, nil).want(t, http.StatusNoContent, "")
	s.ask(t, "DELETE", "/v1/providers/team/signing-keys/"+signer.Key(t).ID+"?force=true", admin, nil).want(t, http.StatusNoContent, "")
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.Contains(s.log.String(), "PGP") {
		t.Error("the log has a key")
	}
}

// A client shows the reason of a retraction to its user.
func TestRetractedProviders(t *testing.T) {
	s, signer := start(t), registrytest.NewSigner(t)
	for _, version := range []string{"1.0.0", "1.1.0"} {
		s.publish(t, signer, registrytest.NewRelease(t, signer, "team/cloud", version, 100, here))
	}
	lock := enginetest.Requiring(t, s.host()+"/team/cloud", "~> 1.0")
	if out, err := s.engine(reader, "").Init(t, lock); err != nil || !strings.Contains(out, "cloud v1.1.0 (signed") {
		t.Errorf("tofu init: %v: %s", err, out)
	}
	const path = "/v1/providers/team/cloud/1.1.0"
	s.ask(t, "POST", path+"/retract", admin, strings.NewReader(`{"reason":"it leaks the token"}`)).want(t, http.StatusNoContent, "")
	out, err := s.engine(reader, "").Init(t, enginetest.Requiring(t, s.host()+"/team/cloud", "~> 1.0"))
	if err != nil || !strings.Contains(out, "cloud v1.0.0 (signed") || !strings.Contains(out, "Version 1.1.0 of team/cloud was retracted: it leaks the token") {
		t.Errorf("tofu init: %v: %s", err, out)
	}
	if err := os.RemoveAll(filepath.Join(lock, ".terraform")); err != nil {
		t.Fatal(err)
	}
	s.refused(t, lock, reader, "Version 1.1.0 of team/cloud was retracted: it leaks the token")
	s.ask(t, "GET", path+"/download/linux/amd64", reader, nil).want(t, http.StatusGone, "it leaks the token")
	s.mu.Lock()
	s.now = time.Now().Add(91 * 24 * time.Hour)
	s.mu.Unlock()
	if a := s.ask(t, "GET", "/v1/providers/team/cloud/versions", reader, nil); strings.Contains(a.body, "warnings") || !strings.Contains(a.body, `"retracted":[{"version":"1.1.0","by":"ann"`) {
		t.Errorf("after three months the versions are %s, want the retraction without a warning", a.body)
	}
	s.ask(t, "POST", path+"/restore", admin, nil).want(t, http.StatusNoContent, "")
	s.ask(t, "GET", path+"/download/"+strings.ReplaceAll(here, "_", "/"), reader, nil).want(t, http.StatusOK, "")
}
