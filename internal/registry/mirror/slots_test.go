package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/registry/mirror"
	"github.com/terrier-iac/terrier/internal/registry/registrytest"
)

// Tenants whose downloads do not end leave slots to other tenants, and an upstream leaves
// some to other upstreams. Downloads that wait for a slot end with their last client.
func TestDownloadsAreFair(t *testing.T) {
	signer := registrytest.NewSigner(t)
	slow := make([]*registrytest.Release, 16)
	for i := range slow {
		slow[i] = registrytest.NewRelease(t, signer, "acme/slow", fmt.Sprintf("1.%d.0", i), 0, amd64)
	}
	quick := registrytest.NewRelease(t, signer, "acme/quick", "1.0.0", 0, amd64)
	u, second := newUpstream(t, append(slow, quick)...), newUpstream(t, quick)
	const secondHost = "second.example.com"
	s := open(t, u, t.TempDir(), func(o *mirror.Options) {
		o.Pulls = 4
		o.Settings.Upstreams[secondHost] = mirror.Upstream{URL: second.URL, CAFile: o.Settings.Upstreams[host].CAFile}
	})
	arrived, gate := make(chan struct{}), make(chan struct{})
	for _, r := range slow {
		if _, err := s.Version(t.Context(), tenant, provider(t, "acme/slow"), address.Version(r.Version)); err != nil {
			t.Fatal(err)
		}
	}
	u.Fail(amd64+".zip", registrytest.Gate(arrived, gate))

	clients, leave := context.WithCancel(t.Context())
	left := make(chan error)
	flood := func(tenant string, releases []*registrytest.Release) {
		for _, r := range releases {
			go func() {
				_, err := s.OpenArchive(clients, tenant, mirror.ArchiveKey(provider(t, "acme/slow"), address.Version(r.Version), platform(t, amd64)))
				left <- err
			}()
		}
	}
	flood("team-a", slow[:8])
	<-arrived
	<-arrived
	flood("team-b", slow[8:])
	select { // one is left for the upstream, although team-a wants it
	case <-arrived:
	case err := <-left:
		t.Fatal(err)
	}
	other := make(chan error)
	go func() {
		_, err := s.OpenArchive(t.Context(), "team-c", mirror.ArchiveKey(address.Provider{Host: secondHost, Namespace: "acme", Type: "quick"}, "1.0.0", platform(t, amd64)))
		other <- err
	}()
	select {
	case err := <-other:
		if err != nil {
			t.Errorf("an archive of another upstream: %v", err)
		}
	case <-arrived:
		t.Fatal("one upstream has all slots")
	}
	leave()
	for range slow {
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("a client that left got %v", err)
		}
	}
	// team-c is next at the upstream: no download is in front of it that no client wants.
	close(gate)
	s.installs(t, quick, amd64)
	s.installs(t, slow[7], amd64)
	if got := u.Count(amd64 + ".zip"); got > 5 {
		t.Errorf("the upstream got %d requests for archives, want those of 3 downloads that had begun, and of 2 after them", got)
	}
	for _, r := range slow {
		s.installs(t, r, amd64)
	}
}
