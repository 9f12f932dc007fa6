package mirror_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry/mirror"
	"github.com/terrier-iac/terrier/internal/registry/registrytest"
	"github.com/terrier-iac/terrier/internal/registry/room"
)

// RG-12: whatever is wrong with the upstream, stored versions are installed; the error for
// others names the upstream.
func TestUpstreamIsDown(t *testing.T) {
	signer := registrytest.NewSigner(t)
	for name, f := range map[string]registrytest.Fault{
		"500":               registrytest.Status(500),
		"503":               registrytest.Status(503),
		"429":               registrytest.Status(429),
		"403":               registrytest.Status(403),
		"404":               registrytest.Status(404),
		"a page":            registrytest.Status(200),
		"silence":           registrytest.Hang,
		"one byte":          registrytest.Drip,
		"answers cut off":   registrytest.CutOff,
		"a redirect loop":   registrytest.Loop,
		"answers changed":   registrytest.Changed,
		"answers too short": registrytest.Short,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := registrytest.NewRelease(t, signer, "acme/cloud", "1.0.0", 1000, amd64, arm64)
			newer := registrytest.NewRelease(t, signer, "acme/cloud", "2.0.0", 1000, amd64)
			u, dir := newUpstream(t, r, newer), t.TempDir()
			open(t, u, dir).installs(t, r, amd64)

			s := open(t, u, dir, impatient)
			u.Fail("", f)
			p := provider(t, "acme/cloud")
			// The newest version is not here, so a constraint has to find the one that is.
			if got, err := s.Versions(t.Context(), tenant, p); err != nil || !slices.Equal(got, []address.Version{"1.0.0"}) {
				t.Errorf("Versions() = %v, %v, want the stored one", got, err)
			}
			s.installs(t, r, amd64)
			if reasons := s.counts.reasons(); len(reasons) == 0 || slices.Contains(reasons, "Internal") {
				t.Errorf("the failures are counted as %q, want the reason", reasons)
			}
			for what, err := range map[string]error{
				"another version":  second(s.Version(t.Context(), tenant, p, "2.0.0")),
				"another platform": second(s.read(t, p, "1.0.0", arm64)),
				"another provider": second(s.Versions(t.Context(), tenant, provider(t, "acme/other"))),
			} {
				if err == nil || !strings.Contains(err.Error(), host) || strings.Contains(err.Error(), "https://") {
					t.Errorf("%s: the error is %v, want one that names the upstream", what, err)
				}
			}
			u.Heal()
			s.clock.move(time.Hour)
			s = open(t, u, dir)
			s.installs(t, newer, amd64)
			s.installs(t, r, arm64)
		})
	}
}

// RG-12: an upstream that is not there at all, and a download that stops halfway.
func TestUpstreamIsGone(t *testing.T) {
	r := registrytest.NewRelease(t, registrytest.NewSigner(t), "acme/cloud", "1.0.0", 1000, amd64, arm64)
	u, dir := newUpstream(t, r), t.TempDir()
	open(t, u, dir).installs(t, r, amd64)
	p := provider(t, "acme/cloud")
	gone := open(t, u, dir, impatient, setUpstream(func(u *mirror.Upstream) { u.URL = "https://127.0.0.1:1/" }))
	gone.installs(t, r, amd64)
	if _, err := gone.read(t, p, "1.0.0", arm64); fault.Of(err) != fault.Later || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("an archive that is not stored: %v", err)
	}
	silent := open(t, u, dir, setUpstream(func(u *mirror.Upstream) { u.IdleTimeout = mirror.Duration(time.Second) }))
	u.Fail(".zip", registrytest.Drip)
	if _, err := silent.read(t, p, "1.0.0", arm64); fault.Of(err) != fault.Later || !strings.Contains(err.Error(), "not a byte within 1s") {
		t.Errorf("a download that stops: %v", err)
	}
	if got := silent.stored(t); len(got) != 1 {
		t.Errorf("%q is stored, want the first archive alone", got)
	}
}

// A disk that fills up is left to others: new archives are refused, and stored ones are
// served.
func TestDiskIsFull(t *testing.T) {
	r := registrytest.NewRelease(t, registrytest.NewSigner(t), "acme/cloud", "1.0.0", 100_000, amd64, arm64)
	var free atomic.Int64
	free.Store(1 << 30)
	s := open(t, newUpstream(t, r), t.TempDir(), func(o *mirror.Options) {
		o.Room = room.New(func() (int64, int64, error) { return free.Load(), 1 << 30, nil })
	})
	s.installs(t, r, amd64)
	free.Store(1<<30/20 + 150_000) // less than twice the archive above what is left to others
	if _, err := s.read(t, provider(t, "acme/cloud"), "1.0.0", arm64); fault.Reason(err, "") != room.ReasonFull || fault.Of(err) != fault.Later {
		t.Errorf("a download without room: %v, want %s", err, room.ReasonFull)
	}
	s.installs(t, r, amd64)

	// An upstream that does not say the size of the archive gets no more room.
	s.upstream.Fail(".zip", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		_ = http.NewResponseController(w).Flush() // so that no length is sent
		next.ServeHTTP(w, r)
	})
	s.clock.move(time.Minute)
	if _, err := s.read(t, provider(t, "acme/cloud"), "1.0.0", arm64); fault.Reason(err, "") != room.ReasonFull || fault.Of(err) != fault.Later {
		t.Errorf("a download of no known size without room: %v, want %s", err, room.ReasonFull)
	}
	free.Store(1 << 30)
	s.clock.move(time.Minute)
	s.installs(t, r, arm64)
}

// An upstream that wants fewer requests gets none for the time that it says.
func TestUpstreamLimitsRequests(t *testing.T) {
	u := newUpstream(t)
	s := open(t, u, t.TempDir())
	u.Fail("", registrytest.Status(429))
	for _, name := range []string{"acme/a", "acme/b", "acme/c"} {
		if _, err := s.Versions(t.Context(), tenant, provider(t, name)); fault.Reason(err, "") != mirror.ReasonLimited {
			t.Errorf("%s: the error is %v, want %s", name, err, mirror.ReasonLimited)
		}
	}
	if got := len(u.Asked()); got != 1 {
		t.Errorf("the upstream got %d requests, want 1", got)
	}
}

// A server of archives that wants fewer requests gets none for the time that it says. The
// registry is asked all the same, so that other tenants find their providers.
func TestServerOfArchivesLimitsRequests(t *testing.T) {
	signer := registrytest.NewSigner(t)
	r := registrytest.NewRelease(t, signer, "acme/cloud", "1.0.0", 0, amd64, arm64)
	u := newUpstream(t, r, registrytest.NewRelease(t, signer, "acme/other", "1.0.0", 0, amd64))
	s := open(t, u, t.TempDir())
	u.Fail(".zip", registrytest.Status(429))
	for _, on := range []string{amd64, arm64} {
		_, err := s.read(t, provider(t, "acme/cloud"), "1.0.0", on)
		if fault.Reason(err, "") != mirror.ReasonLimited || !strings.Contains(err.Error(), "which has files of "+host) {
			t.Errorf("the archive for %s: %v, want %s of the server of archives", on, err, mirror.ReasonLimited)
		}
	}
	if got := u.Count(".zip"); got != 1 {
		t.Errorf("the server of archives got %d requests for archives, want 1", got)
	}
	if _, err := s.Versions(t.Context(), "team-b", provider(t, "acme/other")); err != nil {
		t.Errorf("the versions of another provider: %v", err)
	}
	u.Heal()
	s.clock.move(time.Minute)
	s.installs(t, r, amd64, arm64)
}

// A tenant that asks for names that the upstream does not have is refused after some; its
// known providers install, and other tenants ask for what they like.
func TestTenantAsksForUnknownNames(t *testing.T) {
	signer := registrytest.NewSigner(t)
	r := registrytest.NewRelease(t, signer, "acme/cloud", "1.0.0", 0, amd64)
	newer := registrytest.NewRelease(t, signer, "acme/newer", "1.0.0", 0, amd64)
	u := newUpstream(t, r, newer)
	s := open(t, u, t.TempDir())
	s.installs(t, r, amd64)
	before := u.Count("/versions")
	refused := 0
	for i := range 200 {
		p := provider(t, fmt.Sprintf("acme/none%d", i))
		var err error
		if i%2 == 0 {
			_, err = s.Versions(t.Context(), tenant, p)
		} else {
			_, err = s.Version(t.Context(), tenant, p, "1.0.0")
		}
		switch {
		case fault.Reason(err, "") == mirror.ReasonTenant && fault.Of(err) == fault.Later:
			refused++
		case fault.Of(err) != fault.Missing:
			t.Fatalf("%s: %v, want Missing or %s", p, err, mirror.ReasonTenant)
		}
	}
	if asked := u.Count("/versions") - before; refused == 0 || asked+refused != 200 {
		t.Errorf("of 200 unknown names the upstream was asked for %d and %d were refused, want some refused", asked, refused)
	}
	s.installs(t, r, amd64)
	if _, err := s.Versions(t.Context(), "team-b", provider(t, "acme/newer")); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	s.clock.move(time.Hour)
	if _, err := s.Versions(t.Context(), tenant, provider(t, "acme/newest")); fault.Of(err) != fault.Missing {
		t.Errorf("an unknown name an hour later: %v, want Missing", err)
	}
}
