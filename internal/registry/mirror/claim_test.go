package mirror_test

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry/mirror"
	"github.com/terrier-iac/terrier/internal/registry/registrytest"
)

const claimKey = "waiting/claims/mirror/providers/" + host + "/acme/cloud/terraform-provider-cloud_1.0.0_" + amd64 + ".zip"

// looked is a store that says when a process has read the claim of another one.
type looked struct {
	blob.Versions
	once sync.Once
	at   chan struct{}
}

func (l *looked) Open(ctx context.Context, key string) (blob.Value, error) {
	v, err := l.Versions.Open(ctx, key)
	if err == nil && strings.HasPrefix(key, "waiting/claims/") {
		l.once.Do(func() { close(l.at) })
	}
	return v, err
}

// RG-11: several processes with one store, which are asked for the same new archive at the
// same time, send one request to the upstream.
func TestColdPullOfReplicas(t *testing.T) {
	r := registrytest.NewRelease(t, registrytest.NewSigner(t), "acme/cloud", "1.0.0", 200_000, amd64)
	dir := t.TempDir()
	s := open(t, newUpstream(t, r), dir)
	p := provider(t, "acme/cloud")
	arrived, gate := make(chan struct{}), make(chan struct{})
	s.upstream.Fail(".zip", registrytest.Gate(arrived, gate))
	var all sync.WaitGroup
	reads := func(s *site) {
		all.Go(func() {
			if data, err := s.read(t, p, "1.0.0", amd64); err != nil || !bytes.Equal(data, r.Archives[amd64]) {
				t.Errorf("a client got %d bytes, %v", len(data), err)
			}
		})
	}
	reads(s)
	<-arrived
	for range 3 {
		var o mirror.Options
		other := open(t, s.upstream, dir, func(of *mirror.Options) { o = *of })
		store := &looked{Versions: other.store, at: make(chan struct{})}
		m, err := mirror.New(store, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Close)
		other.Mirror = m
		reads(other)
		<-store.at
	}
	close(gate)
	all.Wait()
	if got := s.upstream.Count(".zip"); got != 1 {
		t.Errorf("the upstream got %d requests for the archive, want 1", got)
	}
	if _, err := s.store.Open(t.Context(), claimKey); fault.Of(err) != fault.Missing {
		t.Errorf("the claim is left: %v", err)
	}
}

// A process that was killed during a download leaves a claim that nothing writes any more.
// Another one takes its place. So does one that waited for a download that failed.
func TestClaimsEnd(t *testing.T) {
	r := registrytest.NewRelease(t, registrytest.NewSigner(t), "acme/cloud", "1.0.0", 10_000, amd64)
	dir := t.TempDir()
	short := func(o *mirror.Options) { o.Claim = 200 * time.Millisecond }
	s := open(t, newUpstream(t, r), dir, short)
	p := provider(t, "acme/cloud")
	s.put(t, claimKey, []byte("killed 3"))
	s.upstream.Fail(".zip", registrytest.Status(500))
	if _, err := s.read(t, p, "1.0.0", amd64); err == nil {
		t.Error("an upstream that fails is a download")
	}
	if _, err := s.store.Open(t.Context(), claimKey); fault.Of(err) != fault.Missing {
		t.Errorf("the claim of a download that failed is left: %v", err)
	}
	s.upstream.Heal()
	s.put(t, claimKey, []byte("killed 3"))
	other := open(t, s.upstream, dir, short)
	if data, err := other.read(t, p, "1.0.0", amd64); err != nil || !bytes.Equal(data, r.Archives[amd64]) {
		t.Errorf("a client got %d bytes, %v", len(data), err)
	}
}
