package registry_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry"
	"github.com/terrier-iac/terrier/internal/registry/registrytest"
)

// A crash at any write: another publish of the same files completes the version, and no
// client sees a part of it.
func TestCrashWhilePublishingAProvider(t *testing.T) {
	signer := registrytest.NewSigner(t)
	crash := errors.New("the process ends here")
	for n := 1; ; n++ {
		p := newPlace(t)
		p.now = time.Now()
		p.addKey(t, "acme", signer)
		r := releaseOf(t, signer, "1.0.0")
		provider, version := providerOf(r)
		p.stage(t, r)
		count := 0
		p.store.failing(func(string, string) error {
			if count++; count >= n {
				return crash
			}
			return nil
		})
		_, err := p.publishProvider(t.Context(), r)
		if err == nil {
			if n < 6 {
				t.Errorf("a publish has %d writes, want more", n-1)
			}
			return
		}
		if !errors.Is(err, crash) {
			t.Fatalf("write %d: %v", n, err)
		}
		p.store.failing(nil)
		p.restart(t)
		if v, err := p.ProviderVersion(t.Context(), provider, version); err == nil && len(v.Packages) != 2 {
			t.Errorf("write %d: clients see a part of the version: %+v", n, v)
		}
		if _, err := p.publishProvider(t.Context(), r); err != nil {
			t.Errorf("write %d: publishing again: %v", n, err)
		}
		got, err := p.ProviderVersion(t.Context(), provider, version)
		if err != nil || len(got.Packages) != 2 || got.By != "ci" {
			t.Errorf("write %d: ProviderVersion() = %+v, %v", n, got, err)
		}
		for name, data := range files(r) {
			if !bytes.Equal(p.bytes(t, registry.ProviderKey(provider, name)), data) {
				t.Errorf("write %d: %s is not what was uploaded", n, name)
			}
		}
		if left := p.storeKeys(t, "waiting/"); len(left) > 0 {
			t.Errorf("write %d: files still wait: %v", n, left)
		}
	}
}

// Two publishes of different releases of one version at once: the version is one of them.
func TestPublishProvidersAtOnce(t *testing.T) { everywhere(t, inPublishProvidersAtOnce) }

func inPublishProvidersAtOnce(t *testing.T, p *place) {
	signer := registrytest.NewSigner(t)
	p.now = time.Now()
	p.addKey(t, "acme", signer)
	var wait sync.WaitGroup
	var releases [4]*registrytest.Release
	var errs [4]error
	for i := range releases {
		releases[i] = registrytest.NewRelease(t, signer, "acme/cloud", "1.0.0", 1000+i, linux.String(), darwin.String())
	}
	for i, r := range releases {
		wait.Go(func() {
			provider, version := providerOf(r)
			for name, data := range files(r) {
				if err := p.StageProvider(t.Context(), provider, version, name, upload(data)); err != nil {
					errs[i] = err
					return
				}
			}
			_, errs[i] = p.publishProvider(t.Context(), r)
		})
	}
	wait.Wait()
	provider, version := providerOf(releases[0])
	got, err := p.ProviderVersion(t.Context(), provider, version)
	if err != nil {
		// A list and a signature were mixed in each of them.
		p.stage(t, releases[0])
		if got, err = p.publishProvider(t.Context(), releases[0]); err != nil {
			t.Fatal(err, errs)
		}
	}
	for platform, pkg := range got.Packages {
		data := p.bytes(t, registry.ProviderKey(provider, registry.PackageFile(provider, version, platform)))
		if registrytest.Sum(data) != pkg.SHA256 {
			t.Errorf("the package for %s is not that of the list", platform)
		}
	}
}

// Two publishes of one version at once: the one that finds its files gone, since the other
// has published them, has the same answer.
func TestPublishWhatAnotherPublishes(t *testing.T) { everywhere(t, inPublishWhatAnotherPublishes) }

func inPublishWhatAnotherPublishes(t *testing.T, p *place) {
	signer := registrytest.NewSigner(t)
	p.now = time.Now()
	p.addKey(t, "acme", signer)
	for i, tt := range []struct {
		name, end string // of the file that waits: before it is opened, the other publishes
		store     bool   // or before the list of checksums is stored
		another   bool   // release
	}{
		{name: "the list", end: "_SHA256SUMS"},
		{name: "the signature", end: "_SHA256SUMS.sig"},
		{name: "a package", end: ".zip"},
		{name: "after it was verified", store: true},
		{name: "another release", end: "_SHA256SUMS.sig", another: true},
	} {
		version := fmt.Sprintf("1.%d.0", i)
		r := releaseOf(t, signer, version)
		p.stage(t, r)
		other := &place{Registry: registry.New(p.store.Versions, registry.Options{Scratch: t.TempDir(), MaxArchive: 1 << 20, Now: func() time.Time { return p.now }}), store: p.store, now: p.now}
		var first registry.ProviderVersion
		var once sync.Once
		publish := func() {
			once.Do(func() {
				theirs := r
				if tt.another {
					theirs = registrytest.NewRelease(t, signer, "acme/cloud", version, 2000, linux.String(), darwin.String())
					other.stage(t, theirs)
				}
				var err error
				if first, err = other.publishProvider(t.Context(), theirs); err != nil {
					t.Error(err)
				}
			})
		}
		p.store.opens = func(key string) {
			if !tt.store && strings.HasPrefix(key, "waiting/") && strings.HasSuffix(key, tt.end) {
				publish()
			}
		}
		p.store.failing(func(op, key string) error {
			if tt.store && op == "replace" && strings.HasSuffix(key, "_SHA256SUMS") {
				publish()
			}
			return nil
		})
		provider, v := providerOf(r)
		got, err := p.PublishProvider(t.Context(), provider, v, "again", nil)
		p.store.opens = nil
		p.store.failing(nil)
		if tt.another {
			wantFault(t, err, fault.Conflict, registry.VersionExists, "exists with other content")
		} else if diff := cmp.Diff(first, got); err != nil || diff != "" || got.By != "ci" {
			t.Errorf("%s: the second publish: %v: %s", tt.name, err, diff)
		}
	}
}
