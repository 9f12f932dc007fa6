package mirror_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/registry/mirror"
	"github.com/terrier-iac/terrier/internal/registry/registrytest"
)

const (
	host   = "registry.example.com"
	amd64  = "linux_amd64"
	arm64  = "darwin_arm64"
	tenant = "team-a"
)

// site is a mirror under test, its upstream, and what it keeps.
type site struct {
	*mirror.Mirror
	upstream *registrytest.Upstream
	store    *blob.VersionedFiles
	dir      string // of store
	clock    *clock
	counts   *counts
}

// clock is a time that the test moves.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time        { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *clock) move(by time.Duration) { c.ahead.Add(int64(by)) }

// aging is a store whose clock is that of the test.
type aging struct {
	blob.Versions
	clock *clock
}

func (a aging) Open(ctx context.Context, key string) (blob.Value, error) {
	v, err := a.Versions.Open(ctx, key)
	v.Modified = v.Modified.Add(time.Duration(a.clock.ahead.Load()))
	return v, err
}

// counts is what the mirror counted.
type counts struct {
	mu                     sync.Mutex
	fetched, served, saved map[string]int64 // by tenant
	downloads              int
	failed                 []string
	alarms                 []string
}

func (c *counts) Fetched(tenant, _ string, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fetched[tenant] += bytes
	c.downloads++
}

func (c *counts) Served(tenant, _ string, bytes, saved int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.served[tenant] += bytes
	c.saved[tenant] += saved
}

func (c *counts) Failed(_, _, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = append(c.failed, reason)
}

func (c *counts) Alarmed(a mirror.Alarm) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alarms = append(c.alarms, a.Text)
}

func (c *counts) has(reason string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.failed, reason)
}

func (c *counts) reasons() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.failed)
}

func (c *counts) alarmed() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.alarms)
}

// open starts a mirror of an upstream. Change may change its options.
func open(t *testing.T, u *registrytest.Upstream, dir string, change ...func(*mirror.Options)) *site {
	t.Helper()
	store, err := blob.OpenVersionedFiles(dir, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, u.Authority, 0o600); err != nil {
		t.Fatal(err)
	}
	allow, err := outbound.ParseAllow("127.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	s := &site{upstream: u, store: store, dir: dir, clock: &clock{}, counts: &counts{fetched: map[string]int64{}, served: map[string]int64{}, saved: map[string]int64{}}}
	o := mirror.Options{
		Settings: mirror.Settings{Upstreams: map[string]mirror.Upstream{host: {URL: u.URL, CAFile: ca}}},
		Policy:   outbound.Policy{Allow: allow}, Scratch: t.TempDir(), Patience: time.Minute,
		Counts: s.counts, Now: s.clock.now, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	for _, c := range change {
		c(&o)
	}
	if s.Mirror, err = mirror.New(aging{store, s.clock}, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// impatient is for an upstream that does not answer: clients are not to wait long.
func impatient(o *mirror.Options) {
	o.Patience = 100 * time.Millisecond
	setUpstream(func(u *mirror.Upstream) {
		u.Timeout, u.DownloadTimeout, u.IdleTimeout = mirror.Duration(time.Second), mirror.Duration(5*time.Second), mirror.Duration(time.Second)
	})(o)
}

func setUpstream(change func(*mirror.Upstream)) func(*mirror.Options) {
	return func(o *mirror.Options) {
		u := o.Settings.Upstreams[host]
		change(&u)
		o.Settings.Upstreams[host] = u
	}
}

func provider(t *testing.T, text string) address.Provider {
	t.Helper()
	p, err := address.ParseProvider(host + "/" + text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func platform(t *testing.T, text string) address.Platform {
	t.Helper()
	p, err := address.ParsePlatform(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// read returns the bytes of an archive, as a client gets them.
func (s *site) read(t *testing.T, p address.Provider, v, on string) ([]byte, error) {
	t.Helper()
	key := mirror.ArchiveKey(p, address.Version(v), platform(t, on))
	a, err := s.OpenArchive(t.Context(), tenant, key)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(a)
	s.Served(tenant, key, int64(len(data)))
	if err := errors.Join(err, a.Close()); err != nil {
		t.Fatal(err)
	}
	return data, nil
}

// installs checks that the archives of a release reach clients.
func (s *site) installs(t *testing.T, r *registrytest.Release, platforms ...string) {
	t.Helper()
	p := provider(t, r.Namespace+"/"+r.Type)
	all, err := s.Versions(t.Context(), tenant, p)
	if err != nil || !slices.Contains(all, address.Version(r.Version)) {
		t.Fatalf("Versions(%s) = %v, %v, want %s among them", p, all, err, r.Version)
	}
	files, err := s.Version(t.Context(), tenant, p, address.Version(r.Version))
	if err != nil {
		t.Fatalf("Version(%s) = %v", r.Version, err)
	}
	for _, on := range platforms {
		if _, zh := r.Hashes(t, on); !slices.Contains(files[platform(t, on)].Hashes, zh) {
			t.Errorf("the hashes of %s are %q, want %s", on, files[platform(t, on)].Hashes, zh)
		}
		data, err := s.read(t, p, r.Version, on)
		if err != nil || !bytes.Equal(data, r.Archives[on]) {
			t.Fatalf("the archive for %s has %d bytes, %v, want the published ones", on, len(data), err)
		}
	}
}

// stored are the archives in the store.
func (s *site) stored(t *testing.T) []string {
	t.Helper()
	keys, err := s.store.List(t.Context(), "mirror/")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(keys, func(k string) bool { return !strings.HasSuffix(k, ".zip") })
}

func newUpstream(t *testing.T, releases ...*registrytest.Release) *registrytest.Upstream {
	t.Helper()
	u := registrytest.New(t)
	u.Publish(releases...)
	return u
}

// RG-07: index.json and VERSION.json name all versions and platforms; zh is known of
// all, and h1 of those that were stored.
func TestMetadata(t *testing.T) {
	signer := registrytest.NewSigner(t)
	r := registrytest.NewRelease(t, signer, "acme/cloud", "1.10.0", 0, amd64, arm64)
	s := open(t, newUpstream(t, r, registrytest.NewRelease(t, signer, "acme/cloud", "1.9.0", 0, amd64), registrytest.NewRelease(t, signer, "acme/cloudier", "9.9.9", 0, amd64)), t.TempDir())
	p := provider(t, "acme/cloud")
	got, err := s.Versions(t.Context(), tenant, p)
	if want := []address.Version{"1.9.0", "1.10.0"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("Versions() = %v, %v, want %v", got, err, want)
	}
	s.installs(t, r, amd64)
	files, err := s.Version(t.Context(), tenant, p, "1.10.0")
	if err != nil {
		t.Fatal(err)
	}
	h1, zh := r.Hashes(t, amd64)
	_, other := r.Hashes(t, arm64)
	want := mirror.Files{
		platform(t, amd64): {Key: "mirror/providers/" + p.String() + "/terraform-provider-cloud_1.10.0_linux_amd64.zip", SHA256: zh[3:], Hashes: []string{zh, h1}, Size: int64(len(r.Archives[amd64]))},
		platform(t, arm64): {Key: "mirror/providers/" + p.String() + "/terraform-provider-cloud_1.10.0_darwin_arm64.zip", SHA256: other[3:], Hashes: []string{other}},
	}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Errorf("Version() (-want +got):\n%s", diff)
	}
	key := mirror.ArchiveKey(p, "1.10.0", platform(t, amd64))
	for what, err := range map[string]error{
		"a key of something else":        second(s.OpenArchive(t.Context(), tenant, strings.TrimSuffix(key, ".zip")+"_x.zip")),
		"the key of checksums":           second(s.OpenArchive(t.Context(), tenant, strings.Replace(key, amd64+".zip", "SHA256SUMS", 1))),
		"a key that leads elsewhere":     second(s.OpenArchive(t.Context(), tenant, "mirror/providers/../"+key)),
		"a provider that is not there":   second(s.Versions(t.Context(), tenant, provider(t, "acme/nothing"))),
		"a version that is not there":    second(s.Version(t.Context(), tenant, p, "2.0.0")),
		"a platform that is not there":   second(s.read(t, p, "1.10.0", "plan9_386")),
		"a registry that is no upstream": second(s.Versions(t.Context(), tenant, address.Provider{Host: "other.example.com", Namespace: "a", Type: "b"})),
	} {
		if fault.Of(err) != fault.Missing {
			t.Errorf("%s: the error is %v, want one of the kind Missing", what, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// A release is installed only if its checksums are signed by a key of the upstream, and
// its archive has the signed checksum.
func TestReleasesAreVerified(t *testing.T) {
	signer, other := registrytest.NewSigner(t), registrytest.NewSigner(t)
	for name, tt := range map[string]struct {
		change func(*registrytest.Release)
		fault  registrytest.Fault
		part   string
		reason string
	}{
		"a signature by another key":    {change: func(r *registrytest.Release) { r.Signature = other.Sign(t, r.Sums) }, reason: mirror.ReasonSignature},
		"a signature of other sums":     {change: func(r *registrytest.Release) { r.Sums = append(r.Sums, '\n') }, reason: mirror.ReasonSignature},
		"no key":                        {change: func(r *registrytest.Release) { r.Keys = nil }, reason: mirror.ReasonSignature},
		"a page for a signature":        {change: func(r *registrytest.Release) { r.Signature = []byte("<html>") }, reason: mirror.ReasonSignature},
		"an archive that is not in it":  {change: func(r *registrytest.Release) { r.Archives[amd64] = []byte("other") }, reason: mirror.ReasonChecksum},
		"an archive with another byte":  {part: ".zip", fault: registrytest.Changed, reason: mirror.ReasonChecksum},
		"an archive that is too short":  {part: ".zip", fault: registrytest.Short, reason: mirror.ReasonChecksum},
		"an archive that is cut off":    {part: ".zip", fault: registrytest.CutOff, reason: mirror.ReasonUnreachable},
		"checksums that are changed":    {part: "SHA256SUMS", fault: registrytest.Changed, reason: mirror.ReasonSignature},
		"checksums that are cut off":    {part: "SHA256SUMS", fault: registrytest.CutOff, reason: mirror.ReasonUnreachable},
		"checksums that are not there":  {part: "SHA256SUMS", fault: registrytest.Status(404), reason: mirror.ReasonMissing},
		"a page for checksums":          {change: func(r *registrytest.Release) { r.Sums = []byte("<html>"); r.Signature = signer.Sign(t, r.Sums) }, reason: mirror.ReasonUnreadable},
		"a page for a document":         {part: "/download/", fault: registrytest.Status(200), reason: mirror.ReasonUnreadable},
		"a page for the discovery":      {part: "/.well-known/", fault: registrytest.Status(200), reason: mirror.ReasonUnreadable},
		"a host that is no registry":    {part: "/.well-known/", fault: registrytest.Status(404), reason: mirror.ReasonUnreadable},
		"a registry that wants a token": {part: "/v1/", fault: registrytest.Status(401), reason: mirror.ReasonToken},
	} {
		t.Run(name, func(t *testing.T) {
			r := registrytest.NewRelease(t, signer, "acme/cloud", "1.0.0", 1000, amd64)
			if tt.change != nil {
				tt.change(r)
			}
			s := open(t, newUpstream(t, r), t.TempDir())
			if tt.fault != nil {
				s.upstream.Fail(tt.part, tt.fault)
			}
			_, err := s.read(t, provider(t, "acme/cloud"), "1.0.0", amd64)
			if got := fault.Reason(err, ""); got != tt.reason {
				t.Errorf("the error is %v, of the reason %q, want %q", err, got, tt.reason)
			}
			if !s.counts.has(tt.reason) {
				t.Errorf("%q is counted, want %q", s.counts.failed, tt.reason)
			}
			if got := s.stored(t); len(got) > 0 {
				t.Errorf("%q is stored", got)
			}
			if strings.Contains(err.Error(), "https://") {
				t.Errorf("the error shows an address, which may be signed: %v", err)
			}
			// What was wrong once is asked again.
			if tt.fault != nil {
				s.upstream.Heal()
				s.clock.move(time.Hour)
				s.installs(t, r, amd64)
			}
		})
	}
}

// Engines accept releases without keys of one public registry, and so does the mirror;
// others need a word of the operator.
func TestUnsignedReleases(t *testing.T) {
	r := registrytest.NewRelease(t, registrytest.NewSigner(t), "acme/cloud", "1.0.0", 0, amd64)
	r.Keys = nil
	s := open(t, newUpstream(t, r), t.TempDir(), setUpstream(func(u *mirror.Upstream) { u.Unsigned = true }))
	s.installs(t, r, amd64)
	index, err := s.Index(t.Context(), provider(t, "acme/cloud"))
	if err != nil || index.Releases["1.0.0"].KeyID != "" || index.Releases["1.0.0"].From != host {
		t.Errorf("Index() = %+v, %v, want an unsigned release of %s", index, err, host)
	}
	// A key that is named has to have signed.
	r = registrytest.NewRelease(t, registrytest.NewSigner(t), "acme/cloud", "2.0.0", 0, amd64)
	r.Signature = []byte("nothing")
	s.upstream.Publish(r)
	if _, err := s.Version(t.Context(), tenant, provider(t, "acme/cloud"), "2.0.0"); fault.Of(err) == fault.None {
		t.Error("a release with a key and without a signature is accepted")
	}
}

// RG-11: clients that ask at the same time share one download, and none gets a byte before
// the archive is verified and stored. A client that leaves does not end it for others.
func TestColdPull(t *testing.T) {
	r := registrytest.NewRelease(t, registrytest.NewSigner(t), "acme/cloud", "1.0.0", 200_000, amd64)
	s := open(t, newUpstream(t, r), t.TempDir())
	arrived, gate := make(chan struct{}), make(chan struct{})
	s.upstream.Fail(".zip", registrytest.Gate(arrived, gate))
	p := provider(t, "acme/cloud")

	first, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := s.OpenArchive(first, tenant, mirror.ArchiveKey(p, "1.0.0", platform(t, amd64)))
		left <- err
	}()
	select {
	case <-arrived:
	case err := <-left:
		t.Fatal(err)
	}
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the client that left got %v", err)
	}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if data, err := s.read(t, p, "1.0.0", amd64); err != nil || !bytes.Equal(data, r.Archives[amd64]) {
				t.Errorf("a client got %d bytes, %v", len(data), err)
			}
		})
	}
	if got := s.stored(t); len(got) > 0 {
		t.Errorf("%q is stored before it was downloaded", got)
	}
	close(gate)
	all.Wait()
	for part, want := range map[string]int{".zip": 1, "SHA256SUMS.sig": 1, "/versions": 1, "/.well-known/": 1} {
		if got := s.upstream.Count(part); got != want {
			t.Errorf("the upstream got %d requests for %s, want %d", got, part, want)
		}
	}
}

// An upstream that no longer lists a version has not deleted it here.
func TestWithdrawnVersionsStay(t *testing.T) {
	signer := registrytest.NewSigner(t)
	r := registrytest.NewRelease(t, signer, "acme/cloud", "1.0.0", 0, amd64)
	newer := registrytest.NewRelease(t, signer, "acme/cloud", "2.0.0", 0, amd64)
	s := open(t, newUpstream(t, r, newer), t.TempDir())
	s.installs(t, r, amd64)
	s.upstream.Withdraw(r)
	s.clock.move(time.Hour)
	s.installs(t, newer, amd64)
	s.installs(t, r, amd64)
}

// An upstream that has other bytes for a version that was verified raises an alarm, and
// the first ones stay.
func TestChangedReleases(t *testing.T) {
	signer := registrytest.NewSigner(t)
	r := registrytest.NewRelease(t, signer, "acme/cloud", "1.0.0", 0, amd64, arm64)
	s := open(t, newUpstream(t, r), t.TempDir())
	s.installs(t, r, amd64)
	changed := registrytest.NewRelease(t, signer, "acme/cloud", "1.0.0", 10, amd64, arm64)
	s.upstream.Publish(changed)

	p := provider(t, "acme/cloud")
	if _, err := s.read(t, p, "1.0.0", arm64); fault.Reason(err, "") != mirror.ReasonChanged {
		t.Errorf("another platform of the changed release: %v, want %s", err, mirror.ReasonChanged)
	}
	if got := s.counts.alarmed(); len(got) != 1 || !strings.Contains(got[0], "names the checksum") {
		t.Errorf("alarms are %q, want one", got)
	}
	s.installs(t, r, amd64)
	for range 2 { // an alarm is raised once
		if err := s.Compare(t.Context(), p, "1.0.0"); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.counts.alarmed(); len(got) != 2 {
		t.Errorf("alarms are %q, want one for each platform", got)
	}
	index, err := s.Index(t.Context(), p)
	if err != nil || len(index.Alarms) != 2 {
		t.Errorf("the index has the alarms %v, %v, want both", index.Alarms, err)
	}

	// A list that names one archive more leaves the others as they are.
	more := registrytest.NewRelease(t, signer, "acme/cloud", "1.0.0", 0, amd64, arm64, "linux_arm64")
	s.upstream.Publish(more)
	s.clock.move(time.Hour)
	s.installs(t, r, arm64)
	if got := s.counts.alarmed(); len(got) != 3 || !strings.Contains(got[2], "SHA256SUMS") {
		t.Errorf("alarms are %q, want one about SHA256SUMS", got)
	}
}

// D9, D11: archives with names of their own, and platforms that SHA256SUMS does not have.
func TestOddReleases(t *testing.T) {
	signer := registrytest.NewSigner(t)
	r := registrytest.NewRelease(t, signer, "acme/cloud", "1.0.0", 0, amd64, arm64)
	missing := registrytest.NewRelease(t, signer, "acme/cloud", "2.0.0", 0, amd64)
	missing.Archives[arm64] = []byte("not in the list")
	named := registrytest.NewRelease(t, signer, "acme/cloud", "3.0.0", 0, amd64, arm64)
	named.Names = map[string]string{amd64: "cloud-v3_for_linux.zip", arm64: "cloud-v3_for_darwin.zip"}
	named.Sign(t, signer)
	s := open(t, newUpstream(t, r, missing, named), t.TempDir())
	s.installs(t, r, amd64, arm64)
	s.installs(t, missing, amd64)
	if _, err := s.read(t, provider(t, "acme/cloud"), "2.0.0", arm64); fault.Of(err) != fault.Missing {
		t.Errorf("a platform that is not in SHA256SUMS: %v, want Missing", err)
	}
	s.installs(t, named, amd64, arm64)
}

// An archive that is no zip archive is what its publisher signed: it is served, and has
// no h1.
func TestArchiveIsNoZip(t *testing.T) {
	r := registrytest.NewRelease(t, registrytest.NewSigner(t), "acme/cloud", "1.0.0", 0, amd64)
	signer := registrytest.NewSigner(t)
	r.Archives[amd64] = []byte("no zip archive")
	r.Sign(t, signer)
	s := open(t, newUpstream(t, r), t.TempDir())
	p := provider(t, "acme/cloud")
	if data, err := s.read(t, p, "1.0.0", amd64); err != nil || !bytes.Equal(data, r.Archives[amd64]) {
		t.Fatalf("the archive is %q, %v", data, err)
	}
	files, err := s.Version(t.Context(), tenant, p, "1.0.0")
	if got := files[platform(t, amd64)].Hashes; err != nil || len(got) != 1 || !strings.HasPrefix(got[0], "zh:") {
		t.Errorf("its hashes are %q, %v, want zh alone", got, err)
	}
}

// RG-24, LQ-20, LQ-21: a hundred stacks with some runs each cost the upstream one download.
func TestBytesAreCounted(t *testing.T) {
	r := registrytest.NewRelease(t, registrytest.NewSigner(t), "acme/cloud", "1.0.0", 100_000, amd64)
	s := open(t, newUpstream(t, r), t.TempDir())
	const runs = 500
	for range runs {
		s.installs(t, r, amd64)
	}
	size := int64(len(r.Archives[amd64]))
	if c := s.counts; c.fetched[tenant] != size || c.downloads != 1 || c.served[tenant] != runs*size || c.saved[tenant] != (runs-1)*size {
		t.Errorf("fetched %d bytes in %d downloads, served %d, saved %d; want %d in 1, %d, %d", c.fetched[tenant], c.downloads, c.served[tenant], c.saved[tenant], size, runs*size, (runs-1)*size)
	}
	if got := s.upstream.Count(".zip"); got != 1 {
		t.Errorf("the upstream sent %d archives, want 1", got)
	}
}
