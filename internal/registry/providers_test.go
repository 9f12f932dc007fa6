package registry_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry"
	"github.com/terrier-iac/terrier/internal/registry/registrytest"
	"github.com/terrier-iac/terrier/internal/registry/signature"
)

var (
	linux  = address.Platform{OS: "linux", Arch: "amd64"}
	darwin = address.Platform{OS: "darwin", Arch: "arm64"}
)

// releaseOf is a release of acme/cloud for two platforms.
func releaseOf(t *testing.T, s *registrytest.Signer, version string) *registrytest.Release {
	t.Helper()
	return registrytest.NewRelease(t, s, "acme/cloud", version, 1000, linux.String(), darwin.String())
}

// files are those of a release by their names.
func files(r *registrytest.Release) map[string][]byte {
	all := map[string][]byte{signature.SumsName(r.Type, r.Version): r.Sums, signature.SumsName(r.Type, r.Version) + ".sig": r.Signature}
	for platform, data := range r.Archives {
		all[signature.Archive(r.Type, r.Version, platform)] = data
	}
	return all
}

func providerOf(r *registrytest.Release) (address.Provider, address.Version) {
	return address.Provider{Namespace: r.Namespace, Type: r.Type}, address.Version(r.Version)
}

// stage uploads the files of a release, except some.
func (p *place) stage(t *testing.T, r *registrytest.Release, except ...string) {
	t.Helper()
	provider, version := providerOf(r)
	for name, data := range files(r) {
		if slices.Contains(except, name) {
			continue
		}
		if err := p.StageProvider(t.Context(), provider, version, name, upload(data)); err != nil {
			t.Fatal(err)
		}
	}
}

func (p *place) addKey(t *testing.T, namespace string, s *registrytest.Signer) {
	t.Helper()
	if _, err := p.AddKey(t.Context(), namespace, s.Key(t).Armor, "ann"); err != nil {
		t.Fatal(err)
	}
}

func (p *place) publishProvider(ctx context.Context, r *registrytest.Release) (registry.ProviderVersion, error) {
	provider, version := providerOf(r)
	return p.PublishProvider(ctx, provider, version, "ci", nil)
}

func (p *place) storeKeys(t *testing.T, prefix string) []string {
	t.Helper()
	keys, err := p.store.Versions.List(t.Context(), prefix)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// RG-06: a version is there when it was published, whole and verified.
func TestPublishProvider(t *testing.T) { everywhere(t, inPublishProvider) }

func inPublishProvider(t *testing.T, p *place) {
	signer := registrytest.NewSigner(t)
	p.now = time.Now().UTC().Truncate(time.Second)
	r := releaseOf(t, signer, "1.2.0")
	provider, version := providerOf(r)
	p.addKey(t, "acme", signer)
	p.stage(t, r)
	_, err := p.ProviderVersions(t.Context(), provider)
	wantFault(t, err, fault.Missing, registry.ProviderMissing, "there is no provider acme/cloud")

	made, err := p.publishProvider(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	want := registry.ProviderVersion{Version: version, Protocols: []string{"5.0"}, Packages: map[address.Platform]registry.Package{}, Key: signer.Key(t).ID, Published: p.now, By: "ci"}
	for _, platform := range []address.Platform{linux, darwin} {
		h1, _ := r.Hashes(t, platform.String())
		data := r.Archives[platform.String()]
		want.Packages[platform] = registry.Package{SHA256: registrytest.Sum(data), H1: h1, Size: int64(len(data))}
	}
	got, err := p.ProviderVersion(t.Context(), provider, version)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("ProviderVersion() = %v: %s", err, diff)
	}
	if diff := cmp.Diff(want, made); diff != "" {
		t.Errorf("PublishProvider(): %s", diff)
	}
	for name, data := range files(r) {
		if !bytes.Equal(p.bytes(t, registry.ProviderKey(provider, name)), data) {
			t.Errorf("%s is not what was uploaded", name)
		}
	}
	if left := p.storeKeys(t, "waiting/"); len(left) > 0 {
		t.Errorf("files still wait: %v", left)
	}
	if names, err := p.Names(t.Context(), registry.Providers, "acme"); err != nil || !slices.Equal(names, []string{"cloud"}) {
		t.Errorf("Names() = %v, %v", names, err)
	}
	if again, err := p.publishProvider(t.Context(), r); err != nil || !cmp.Equal(again, made) {
		t.Errorf("publishing again: %+v, %v", again, err)
	}
	err = p.StageProvider(t.Context(), provider, version, signature.SumsName("cloud", "1.2.0"), upload(nil))
	wantFault(t, err, fault.Conflict, registry.VersionExists, "publish a new version")
	_, err = p.ProviderVersion(t.Context(), provider, "9.0.0")
	wantFault(t, err, fault.Missing, registry.VersionMissing, "acme/cloud has no version 9.0.0")
}

// RG-06, RG-09: each mistake in a release has an error that names it.
func TestReleasesThatAreRefused(t *testing.T) {
	signer, other := registrytest.NewSigner(t), registrytest.NewSigner(t)
	const name = "terraform-provider-cloud_1.0.0_"
	for title, tt := range map[string]struct {
		change       func(*registrytest.Release)
		without      string // the file that is not uploaded
		keys         []*registrytest.Signer
		reason, says string
	}{
		"no list":                 {without: name + "SHA256SUMS", reason: registry.UploadMissing, says: name + "SHA256SUMS is missing: upload it"},
		"no signature":            {without: name + "SHA256SUMS.sig", reason: registry.UploadMissing, says: name + "SHA256SUMS.sig is missing"},
		"an archive is missing":   {without: name + "darwin_arm64.zip", reason: registry.UploadMissing, says: "upload " + name + "darwin_arm64.zip"},
		"no key":                  {keys: []*registrytest.Signer{}, reason: registry.SignatureInvalid, says: "the namespace acme has no key for signatures"},
		"a key that did not sign": {keys: []*registrytest.Signer{other}, reason: registry.SignatureInvalid, says: "no key of the namespace acme made the signature"},
		"a signature of another key": {change: func(r *registrytest.Release) { r.Signature = other.Sign(t, r.Sums) }, keys: []*registrytest.Signer{signer},
			reason: registry.SignatureInvalid, says: "no key of the namespace acme made the signature"},
		"a list that was changed": {change: func(r *registrytest.Release) { r.Sums = append(bytes.Clone(r.Sums), '\n') }, reason: registry.SignatureInvalid,
			says: "the signature on SHA256SUMS is not valid"},
		"a signature in armour": {change: func(r *registrytest.Release) { r.Signature = []byte("-----BEGIN PGP SIGNATURE-----\n") }, reason: registry.SignatureInvalid,
			says: "without --armor"},
		"another archive": {change: func(r *registrytest.Release) { r.Archives["linux_amd64"] = []byte("PK") }, reason: registry.UploadMissing,
			says: "upload " + name + "linux_amd64.zip as it was signed"},
		"an archive that is none": {change: func(r *registrytest.Release) {
			r.Archives["linux_amd64"] = []byte("hello")
			r.Sign(t, signer)
		}, reason: "ArchiveRefused", says: "neither a zip archive nor a gzipped tar archive"},
		"an archive of another provider": {change: func(r *registrytest.Release) {
			r.Archives["linux_amd64"] = registrytest.Package(t, "other", "1.0.0", "linux_amd64", 1)
			r.Sign(t, signer)
		}, reason: registry.UploadInvalid, says: "begins with terraform-provider-cloud"},
		"a list of another version": {change: func(r *registrytest.Release) {
			r.Sums = []byte(strings.ReplaceAll(string(r.Sums), "_1.0.0_", "_1.0.1_"))
			r.Signature = signer.Sign(t, r.Sums)
		}, reason: registry.UploadInvalid, says: "SHA256SUMS names no archive of version 1.0.0"},
		"a list that is none": {change: func(r *registrytest.Release) {
			r.Sums = []byte("<html>")
			r.Signature = signer.Sign(t, r.Sums)
		}, reason: registry.UploadInvalid, says: "line 1 of SHA256SUMS"},
	} {
		t.Run(title, func(t *testing.T) {
			p := newPlace(t)
			p.now = time.Now()
			if tt.keys == nil {
				tt.keys = []*registrytest.Signer{other, signer}
			}
			for _, key := range tt.keys {
				p.addKey(t, "acme", key)
			}
			r := releaseOf(t, signer, "1.0.0")
			if tt.change != nil {
				tt.change(r)
			}
			p.stage(t, r, tt.without)
			_, err := p.publishProvider(t.Context(), r)
			wantFault(t, err, fault.Invalid, tt.reason, tt.says)
			if got := p.storeKeys(t, "providers/acme/cloud/"); len(got) > 0 {
				t.Errorf("the store has %v, want nothing", got)
			}
			// What was wrong is put in order, and the same version is published.
			good := releaseOf(t, signer, "1.0.0")
			p.addKey(t, "acme", signer)
			p.stage(t, good)
			if _, err := p.publishProvider(t.Context(), good); err != nil {
				t.Errorf("after the repair: %v", err)
			}
		})
	}
}

func TestFilesOfAProvider(t *testing.T) {
	p := newPlace(t)
	provider := address.Provider{Namespace: "acme", Type: "cloud"}
	for name, says := range map[string]string{
		"terraform-provider-cloud_1.0.1_SHA256SUMS":             "is a file of version 1.0.1",
		"terraform-provider-other_1.0.0_SHA256SUMS":             "is no file of the provider acme/cloud",
		"terraform-provider-cloud_1.0.0_linux_amd64.tar.gz":     "is no file of the provider",
		"terraform-provider-cloud_1.0.0_linux_amd64_musl.zip":   "is no file of the provider",
		"terraform-provider-cloud_1.0.0":                        "is no file of the provider",
		"terraform-provider-cloud_1.0.0_SHA256SUMS.ABC.sig":     "is no file of the provider",
		"terraform-provider-cloud_1.0.0_../../../x_SHA256SUMS":  "is no file of the provider",
		"terraform-provider-cloud_v1.0.0_SHA256SUMS":            "is no file of the provider",
		"terraform-provider-cloud_1.0.0-rc_1_SHA256SUMS":        "is no file of the provider",
		"terraform-provider-cloud_1.0.0_SHA256SUMS\nContent: x": "is no file of the provider",
	} {
		wantFault(t, p.StageProvider(t.Context(), provider, "1.0.0", name, upload([]byte("x"))), fault.Invalid, registry.UploadInvalid, says)
	}
	large := bytes.Repeat([]byte("x"), 2<<20)
	for _, part := range []string{"SHA256SUMS", "SHA256SUMS.sig", "manifest.json", "linux_amd64.zip"} {
		err := p.StageProvider(t.Context(), provider, "1.0.0", "terraform-provider-cloud_1.0.0_"+part, upload(large))
		wantFault(t, err, fault.Invalid, blob.TooLarge, "larger than the limit")
	}
}

// The manifest of a release names the protocols of plug-ins. A list may name files that
// were not uploaded, unless they are archives.
func TestProtocolsOfAProvider(t *testing.T) {
	signer := registrytest.NewSigner(t)
	six := []byte(`{"version":1,"metadata":{"protocol_versions":["6.0"]}}`)
	for title, tt := range map[string]struct {
		manifest   []byte
		unlisted   bool
		given      []string
		want       []string
		says       string
		wantReason string
	}{
		"without a manifest":           {want: []string{"5.0"}},
		"of a manifest":                {manifest: six, want: []string{"6.0"}},
		"those that the user names":    {manifest: six, given: []string{"5.0", "6.0"}, want: []string{"5.0", "6.0"}},
		"a manifest that is no JSON":   {manifest: []byte("x"), says: "manifest.json"},
		"a manifest that is unsigned":  {manifest: six, unlisted: true, says: "does not have the checksum that SHA256SUMS has for it"},
		"a protocol that is no number": {given: []string{"five"}, says: "write it as 5.0 or 6.0"},
	} {
		t.Run(title, func(t *testing.T) {
			p := newPlace(t)
			p.now = time.Now()
			p.addKey(t, "acme", signer)
			r := releaseOf(t, signer, "1.0.0")
			provider, version := providerOf(r)
			const name = "terraform-provider-cloud_1.0.0_manifest.json"
			if tt.manifest != nil {
				if !tt.unlisted {
					r.Sums = []byte(strings.Replace(string(r.Sums), registrytest.Sum(nil), registrytest.Sum(tt.manifest), 1))
					r.Signature = signer.Sign(t, r.Sums)
				}
				if err := p.StageProvider(t.Context(), provider, version, name, upload(tt.manifest)); err != nil {
					t.Fatal(err)
				}
			}
			p.stage(t, r)
			got, err := p.PublishProvider(t.Context(), provider, version, "ci", tt.given)
			if tt.says != "" {
				wantFault(t, err, fault.Invalid, registry.UploadInvalid, tt.says)
				return
			}
			if err != nil || !slices.Equal(got.Protocols, tt.want) {
				t.Errorf("the protocols are %v, %v, want %v", got.Protocols, err, tt.want)
			}
		})
	}
}

func TestRetractProvider(t *testing.T) {
	p, signer := newPlace(t), registrytest.NewSigner(t)
	p.now = time.Now()
	p.addKey(t, "acme", signer)
	r := releaseOf(t, signer, "1.0.0")
	provider, version := providerOf(r)
	p.stage(t, r)
	if _, err := p.publishProvider(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := p.RetractProvider(t.Context(), provider, version, "ann", "it leaks a token"); err != nil {
		t.Fatal(err)
	}
	_, err := p.ProviderVersion(t.Context(), provider, version)
	wantFault(t, err, fault.Missing, registry.VersionRetracted, "version 1.0.0 of acme/cloud was retracted: it leaks a token")
	_, err = p.publishProvider(t.Context(), r)
	wantFault(t, err, fault.Conflict, registry.VersionRetracted, "restore it")
	if all, err := p.ProviderVersions(t.Context(), provider); err != nil || len(all) != 1 || all[0].Retracted == nil || all[0].Retracted.By != "ann" {
		t.Errorf("ProviderVersions() = %+v, %v", all, err)
	}
	if err := p.RestoreProvider(t.Context(), provider, version, "ann"); err != nil {
		t.Fatal(err)
	}
	if _, err := p.ProviderVersion(t.Context(), provider, version); err != nil {
		t.Error(err)
	}
	wantFault(t, p.RetractProvider(t.Context(), provider, "3.0.0", "ann", "x"), fault.Missing, registry.VersionMissing, "")
}

// RG-17: providers in a bucket of boring-registry, with the older form of the file of keys.
func TestProvidersOfBoringRegistry(t *testing.T) { everywhere(t, inProvidersOfBoringRegistry) }

func inProvidersOfBoringRegistry(t *testing.T, p *place) {
	signer := registrytest.NewSigner(t)
	p.now = time.Now()
	r := releaseOf(t, signer, "1.0.0")
	provider, version := providerOf(r)
	for name, data := range files(r) {
		p.keep(t, registry.ProviderKey(provider, name), data)
	}
	p.keep(t, "providers/acme/signing-keys.json", fmt.Appendf(nil, `{"key_id":%q,"ascii_armor":%q}`, signer.Key(t).ID, signer.Key(t).Armor))
	p.keep(t, "providers/acme/cloud/terraform-provider-cloud_2.0.0_linux_amd64.zip", []byte("no list yet"))
	p.keep(t, "providers/acme/cloud/terraform-provider-cloud_3.0.0_SHA256SUMS", []byte("no package"))
	p.keep(t, "providers/acme/cloudy/terraform-provider-cloudy_4.0.0_SHA256SUMS", []byte("another provider"))

	all, err := p.ProviderVersions(t.Context(), provider)
	if err != nil || len(all) != 1 || all[0].Version != version || !slices.Equal(slices.SortedFunc(maps.Keys(all[0].Packages), byName), []address.Platform{darwin, linux}) {
		t.Fatalf("ProviderVersions() = %+v, %v", all, err)
	}
	for range 2 {
		got, err := p.ProviderVersion(t.Context(), provider, version)
		data := r.Archives[linux.String()]
		if want := (registry.Package{SHA256: registrytest.Sum(data), Size: int64(len(data))}); err != nil || got.Packages[linux] != want || got.Key != signer.Key(t).ID {
			t.Errorf("ProviderVersion() = %+v, %v, want %+v", got, err, want)
		}
		p.restart(t)
	}
	if lists := p.store.listed(); len(lists) > 4 {
		t.Errorf("there were the lists %v, want one each of versions and namespaces, and two of names", lists)
	}
	wantFault(t, p.RemoveKey(t.Context(), "acme", signer.Key(t).ID, "ann", false), fault.Conflict, registry.KeyInUse, "")
	other := registrytest.NewSigner(t)
	p.addKey(t, "acme", other)
	if keys, err := p.Keys(t.Context(), "acme"); err != nil || len(keys) != 2 {
		t.Errorf("Keys() = %v, %v, want the older one as well", keys, err)
	}
}

func byName(a, b address.Platform) int { return strings.Compare(a.String(), b.String()) }

// Files that no user published are deleted after a week.
func TestSweep(t *testing.T) {
	p, signer := newPlace(t), registrytest.NewSigner(t)
	p.now = time.Now()
	p.stage(t, releaseOf(t, signer, "1.0.0"))
	if err := p.Sweep(t.Context()); err != nil || len(p.storeKeys(t, "waiting/")) != 4 {
		t.Errorf("after one sweep %v wait, %v", p.storeKeys(t, "waiting/"), err)
	}
	p.now = p.now.Add(8 * 24 * time.Hour)
	if err := p.Sweep(t.Context()); err != nil || len(p.storeKeys(t, "waiting/")) != 0 {
		t.Errorf("after a week %v wait, %v", p.storeKeys(t, "waiting/"), err)
	}
}

// Only files of the version of an address are kept, whatever a client calls them.
func FuzzFilesOfAProvider(f *testing.F) {
	for _, name := range []string{"terraform-provider-cloud_1.0.0_SHA256SUMS", "terraform-provider-cloud_1.0.0_linux_amd64.zip", "../x", "terraform-provider-cloud_1.0.0_linux_amd64_.zip"} {
		f.Add(name)
	}
	provider := address.Provider{Namespace: "acme", Type: "cloud"}
	known := regexp.MustCompile(`^terraform-provider-cloud_1\.0\.0_(SHA256SUMS|SHA256SUMS\.sig|manifest\.json|[0-9a-z]+_[0-9a-z]+\.zip)$`)
	f.Fuzz(func(t *testing.T, name string) {
		p := newPlace(t)
		if err := p.StageProvider(t.Context(), provider, "1.0.0", name, upload([]byte("x"))); (err == nil) != known.MatchString(name) {
			t.Errorf("StageProvider(%q) = %v", name, err)
		}
	})
}
