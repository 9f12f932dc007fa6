package mirror_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/failpoint"
	"github.com/terrier-iac/terrier/internal/registry/mirror"
	"github.com/terrier-iac/terrier/internal/registry/registrytest"
)

func (s *site) put(t *testing.T, key string, value []byte) {
	t.Helper()
	if err := s.store.Put(t.Context(), key, bytes.NewReader(value)); err != nil {
		t.Fatal(err)
	}
}

// RG-17: the bucket of a boring-registry is served as it is, by what it has verified. An
// archive in it that is damaged is replaced.
func TestBucketOfAnotherProgram(t *testing.T) {
	signer := registrytest.NewSigner(t)
	r := registrytest.NewRelease(t, signer, "acme/cloud", "1.0.0", 0, amd64, arm64)
	unverified := registrytest.NewRelease(t, registrytest.NewSigner(t), "acme/cloud", "2.0.0", 0, amd64)
	u := newUpstream(t, r)
	s := open(t, u, t.TempDir())
	u.Fail("", registrytest.Status(503))
	keys, err := json.Marshal(signer.Key(t)) // the older form: one key
	if err != nil {
		t.Fatal(err)
	}
	const dir = "mirror/providers/" + host + "/acme/"
	s.put(t, dir+"signing-keys.json", keys)
	for _, r := range []*registrytest.Release{r, unverified} {
		name := dir + "cloud/terraform-provider-cloud_" + r.Version + "_"
		s.put(t, name+"SHA256SUMS", r.Sums)
		s.put(t, name+"SHA256SUMS.sig", r.Signature)
		s.put(t, name+amd64+".zip", r.Archives[amd64])
	}
	s.put(t, dir+"cloud/terraform-provider-cloud_1.0.0_"+arm64+".zip", []byte("damaged"))
	s.put(t, dir+"cloudier/terraform-provider-cloudier_9.9.9_SHA256SUMS", r.Sums)

	p := provider(t, "acme/cloud")
	if got, err := s.Versions(t.Context(), tenant, p); err != nil || !slices.Equal(got, []address.Version{"1.0.0"}) {
		t.Errorf("Versions() = %v, %v, want the one that is verified", got, err)
	}
	s.installs(t, r, amd64)
	if _, err := s.read(t, p, "1.0.0", arm64); err == nil {
		t.Error("a damaged archive is served")
	}
	u.Heal()
	s.clock.move(time.Hour)
	s.installs(t, r, arm64)
	if got := s.counts.alarmed(); len(got) != 1 || !strings.Contains(got[0], "in the store") {
		t.Errorf("alarms are %q, want one about the archive in the store", got)
	}
	if got := u.Count(amd64 + ".zip"); got > 0 {
		t.Errorf("the upstream got %d requests for an archive that was in the bucket", got)
	}
}

// Checksums in a bucket that are damaged are asked for again, and replaced.
func TestDamagedChecksums(t *testing.T) {
	signer := registrytest.NewSigner(t)
	r := registrytest.NewRelease(t, signer, "acme/cloud", "1.0.0", 0, amd64)
	s := open(t, newUpstream(t, r), t.TempDir())
	const name = "mirror/providers/" + host + "/acme/cloud/terraform-provider-cloud_1.0.0_SHA256SUMS"
	s.put(t, "mirror/providers/"+host+"/acme/signing-keys.json", []byte(mustJSON(t, map[string]any{"gpg_public_keys": r.Keys})))
	s.put(t, name, []byte("damaged"))
	s.put(t, name+".sig", r.Signature)
	s.installs(t, r, amd64)
	bundle := t.TempDir()
	if _, err := s.Export(t.Context(), bundle, mirror.Selection{}); err != nil {
		t.Fatal(err)
	}
	other := open(t, registrytest.New(t), t.TempDir(), setUpstream(func(u *mirror.Upstream) { u.Offline = true }))
	if _, err := other.Import(t.Context(), os.DirFS(bundle), "alice"); err != nil {
		t.Errorf("the exported checksums are not good: %v", err)
	}
}

// An archive that vanished from the store is downloaded again.
func TestArchiveVanishes(t *testing.T) {
	r := registrytest.NewRelease(t, registrytest.NewSigner(t), "acme/cloud", "1.0.0", 0, amd64)
	s := open(t, newUpstream(t, r), t.TempDir())
	s.installs(t, r, amd64)
	for _, key := range s.stored(t) {
		if err := s.store.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	s.installs(t, r, amd64)
}

// Retention is by use: an archive that no client wants goes, one that is used stays, and
// one of which the use is not known gets its time.
func TestSweep(t *testing.T) {
	signer := registrytest.NewSigner(t)
	r := registrytest.NewRelease(t, signer, "acme/cloud", "1.0.0", 0, amd64, arm64)
	s := open(t, newUpstream(t, r), t.TempDir())
	s.installs(t, r, amd64, arm64)
	const day, unused = 24 * time.Hour, 30 * 24 * time.Hour
	sweep := func(want int) {
		t.Helper()
		if got, err := s.Sweep(t.Context(), unused); err != nil || got.Deleted != want {
			t.Errorf("Sweep() = %+v, %v, want %d deleted", got, err, want)
		}
	}
	for range 40 {
		s.clock.move(day)
		s.installs(t, r, amd64)
		if _, err := s.Sweep(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}
	sweep(0) // it is found unused, and is deleted later
	s.clock.move(day / 2)
	s.installs(t, r, amd64)
	sweep(1)
	if got := s.stored(t); len(got) != 1 || !strings.HasSuffix(got[0], amd64+".zip") {
		t.Errorf("%q is stored, want the one that is used", got)
	}
	sweep(0)
	// What was verified stays known, and the archive comes back.
	u, p := s.upstream, provider(t, "acme/cloud")
	before := u.Count("SHA256SUMS.sig")
	s.installs(t, r, arm64)
	if u.Count("SHA256SUMS.sig") != before {
		t.Error("the release was verified again")
	}

	// Of an older store it is not known when an archive was used.
	text, err := os.ReadFile(indexFile(s))
	if err != nil {
		t.Fatal(err)
	}
	var index mirror.Index
	if err := json.Unmarshal(text, &index); err != nil {
		t.Fatal(err)
	}
	for _, pkg := range index.Releases["1.0.0"].Packages {
		pkg.Used = time.Time{}
	}
	if text, err = json.Marshal(index); err != nil {
		t.Fatal(err)
	}
	s.put(t, "index/mirror/"+p.String()+".json", text)
	s.clock.move(unused + day)
	sweep(0)
	sweep(0)
	s.clock.move(unused + 2*day)
	sweep(0)
	s.clock.move(day / 2)
	sweep(2)
}

// A clock that is ahead for one sweep deletes nothing, and one that stays ahead deletes a
// part of the archives in one sweep.
func TestSweepWithAWrongClock(t *testing.T) {
	signer := registrytest.NewSigner(t)
	var releases []*registrytest.Release
	for i := range 13 {
		releases = append(releases, registrytest.NewRelease(t, signer, "acme/cloud", fmt.Sprintf("1.%d.0", i), 0, amd64))
	}
	s := open(t, newUpstream(t, releases...), t.TempDir())
	for _, r := range releases {
		s.installs(t, r, amd64)
	}
	const year, unused = 365 * 24 * time.Hour, 30 * 24 * time.Hour
	sweep := func(left int) {
		t.Helper()
		if _, err := s.Sweep(t.Context(), unused); err != nil {
			t.Error(err)
		}
		if got := len(s.stored(t)); got != left {
			t.Errorf("%d archives are stored, want %d", got, left)
		}
	}
	s.clock.move(year)
	sweep(13)
	s.clock.move(-year)
	s.clock.move(12 * time.Hour)
	sweep(13)
	s.clock.move(year)
	sweep(13)
	sweep(13) // another process sweeps a moment later
	s.clock.move(12 * time.Hour)
	sweep(3)
	sweep(0)
}

// The clock of a machine that is and stays ahead of that of the store deletes nothing.
func TestSweepByTheClockOfTheStore(t *testing.T) {
	r := registrytest.NewRelease(t, registrytest.NewSigner(t), "acme/cloud", "1.0.0", 0, amd64)
	var o mirror.Options
	s := open(t, newUpstream(t, r), t.TempDir(), func(of *mirror.Options) { o = *of })
	s.installs(t, r, amd64)
	ahead, err := mirror.New(s.store, o) // this store has a right clock
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ahead.Close)
	const year, unused = 365 * 24 * time.Hour, 30 * 24 * time.Hour
	s.clock.move(year)
	for range 3 {
		if done, err := ahead.Sweep(t.Context(), unused); err != nil || done.Deleted > 0 {
			t.Errorf("Sweep() = %+v, %v, want nothing deleted", done, err)
		}
		s.clock.move(12 * time.Hour)
	}
	if got := s.stored(t); len(got) != 1 {
		t.Errorf("stored are %q, want the archive", got)
	}
}

func indexFile(s *site) string {
	return filepath.Join(s.dir, "index/mirror", host, "acme/cloud.json~")
}

// A sweep compares releases with their upstream, so that a change is noticed although
// every client is served from the store.
func TestSweepCompares(t *testing.T) {
	signer := registrytest.NewSigner(t)
	r := registrytest.NewRelease(t, signer, "acme/cloud", "1.0.0", 0, amd64)
	s := open(t, newUpstream(t, r), t.TempDir())
	s.installs(t, r, amd64)
	s.upstream.Publish(registrytest.NewRelease(t, signer, "acme/cloud", "1.0.0", 1, amd64))
	for _, want := range []int{0, 1, 0} {
		if got, err := s.Sweep(t.Context(), 0); err != nil || got.Compared != want {
			t.Errorf("Sweep() = %+v, %v, want %d compared", got, err, want)
		}
		if want == 0 {
			s.clock.move(8 * 24 * time.Hour)
		} else {
			s.clock.move(time.Hour)
		}
	}
	if got := s.counts.alarmed(); len(got) != 1 {
		t.Errorf("alarms are %q, want one", got)
	}
	s.installs(t, r, amd64)
}

// A mirror that is killed in the middle of a pull leaves nothing half published, and the
// next one pulls again.
func TestCrash(t *testing.T) {
	if spec := os.Getenv("MIRROR_CRASH"); spec != "" {
		crash(t, spec)
		return
	}
	signer := registrytest.NewSigner(t)
	for name, tt := range map[string]struct {
		point   string // an act at which the mirror ends; it is killed during the download without one
		fetched int    // archives that the upstream sent in the end
	}{
		"during the download":                         {"", 2},
		"before the archive is stored":                {"crash:before:mirror.publish", 2},
		"after the archive was stored":                {"crash:after:mirror.publish", 1},
		"before the index says so":                    {"crash:before:mirror.record", 1},
		"after the index said so":                     {"crash:after:mirror.record", 1},
		"before the first file of the store is there": {"crash:before:1", 1},
		"before the second one":                       {"crash:before:2", 1},
		"before the third one":                        {"crash:before:3", 1},
		"before the fourth one":                       {"crash:before:4", 1},
		"before the fifth one":                        {"crash:before:5", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := registrytest.NewRelease(t, signer, "acme/cloud", "1.0.0", 300_000, amd64)
			u, dir, scratch := newUpstream(t, r), t.TempDir(), t.TempDir()
			arrived, gate := make(chan struct{}), make(chan struct{})
			if tt.point == "" {
				u.Fail(".zip", registrytest.Gate(arrived, gate))
			} else {
				close(gate)
			}
			acts := filepath.Join(t.TempDir(), "acts")
			ca := filepath.Join(t.TempDir(), "ca.pem")
			for file, text := range map[string][]byte{acts: nil, ca: u.Authority} {
				if err := os.WriteFile(file, text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCrash$")
			command.Env = append(os.Environ(), "TMPDIR="+t.TempDir(), "MIRROR_CRASH="+strings.Join([]string{u.URL, ca, dir, scratch}, " "))
			if tt.point != "" {
				point := tt.point
				if strings.Contains(point, "mirror.publish") {
					point += "/mirror/providers/" + host + "/acme/cloud/_"
				} else if strings.Contains(point, "mirror.record") {
					point += "/" + host + "/acme/cloud"
				}
				command.Env = append(command.Env, failpoint.Env+"="+point+"@"+acts)
			}
			var out bytes.Buffer
			command.Stdout, command.Stderr = &out, &out
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			if tt.point == "" {
				<-arrived
				if err := command.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				close(gate)
			}
			if err := command.Wait(); err == nil {
				t.Fatalf("the mirror did not end where it should: %s", out.String())
			}
			text, err := os.ReadFile(acts)
			if _, crashed := failpoint.Crashed(text); err != nil || crashed != (tt.point != "") {
				t.Fatalf("the mirror crashed: %v, %v; its acts: %s; it said: %s", crashed, err, text, out.String())
			}
			if left, err := filepath.Glob(scratch + "/*"); err != nil || len(left) > 0 {
				t.Errorf("%q is left, %v", left, err)
			}
			s := open(t, u, dir)
			for _, key := range s.stored(t) {
				data, err := fs.ReadFile(os.DirFS(dir), key+"~")
				if err != nil || !bytes.Equal(data, r.Archives[amd64]) {
					t.Errorf("half of an archive is stored: %d bytes, %v", len(data), err)
				}
			}
			s.installs(t, r, amd64)
			if got := u.Count(".zip"); got != tt.fetched {
				t.Errorf("the upstream sent the archive %d times, want %d", got, tt.fetched)
			}
			if got := s.counts.alarmed(); len(got) > 0 {
				t.Errorf("alarms are %q", got)
			}
		})
	}
}

// crash is the mirror that is killed, in a process of its own.
func crash(t *testing.T, spec string) {
	parts := strings.Fields(spec)
	u := &registrytest.Upstream{URL: parts[0]}
	authority, err := os.ReadFile(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	u.Authority = authority
	if err := failpoint.Arm(os.Getenv(failpoint.Env)); err != nil {
		t.Fatal(err)
	}
	s := open(t, u, parts[2], func(o *mirror.Options) { o.Scratch = parts[3] })
	p := provider(t, "acme/cloud")
	if _, err := s.Versions(t.Context(), tenant, p); err != nil {
		t.Fatal(err)
	}
	if _, err := s.read(t, p, "1.0.0", amd64); err != nil {
		t.Fatal(err)
	}
}
