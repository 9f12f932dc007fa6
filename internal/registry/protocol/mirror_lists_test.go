package protocol_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/registry/mirror"
	"github.com/terrier-iac/terrier/internal/registry/protocol"
	"github.com/terrier-iac/terrier/internal/registry/registrytest"
)

const cloudIndex = protocol.MirrorPath + private + "/acme/cloud/index.json"

// document is a document of the mirror as a tenant gets it: its status, its tag, and its
// versions.
func (s *served) document(ctx context.Context, path, tenant, known string) (status int, tag string, versions []string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, nil)
	if err != nil {
		return 0, "", nil, err
	}
	r.Header.Set("Authorization", "Bearer token-"+tenant)
	if known != "" {
		r.Header.Set("If-None-Match", known)
	}
	a, err := s.Client().Do(r)
	if err != nil {
		return 0, "", nil, err
	}
	text, err := io.ReadAll(a.Body)
	if err := errors.Join(err, a.Body.Close()); err != nil || a.StatusCode != http.StatusOK {
		return a.StatusCode, a.Header.Get("ETag"), nil, err
	}
	var said struct{ Versions map[string]struct{} }
	err = json.Unmarshal(text, &said)
	return a.StatusCode, a.Header.Get("ETag"), slices.Sorted(maps.Keys(said.Versions)), err
}

// RG-12, RG-14: what the mirror keeps of index.json is for tenants with the same rules alone,
// and never of an earlier index, of other rules or of a time when the upstream answered.
func TestKeptListsOfTheMirror(t *testing.T) {
	signer := registrytest.NewSigner(t)
	release := func(v string) *registrytest.Release {
		return registrytest.NewRelease(t, signer, "acme/cloud", v, 100, here)
	}
	u := registrytest.New(t)
	u.Publish(release("1.0.0"), release("2.0.0"))
	s := serveMirror(t, u,
		mirror.Rule{Tenants: []string{"old*"}, Allow: []mirror.Pattern{{Provider: "*/acme/*", Versions: "< 2.0.0"}}},
		mirror.Rule{Tenants: []string{"closed"}, Deny: []mirror.Pattern{{Provider: "*/acme/*"}}},
	)
	known := map[string]string{} // the tag of the list that a tenant has
	wants := func(when string, of map[string]string) {
		t.Helper()
		for range 2 { // the second answer is what was kept
			for tenant, want := range of {
				status, tag, versions, err := s.document(t.Context(), cloudIndex, tenant, "")
				if err != nil || status != http.StatusOK || strings.Join(versions, " ") != want || tag == "" {
					t.Errorf("%s: %s gets %d %v, %v, tagged %q; want %s", when, tenant, status, versions, err, tag, want)
				}
				known[tenant] = tag
				if status, _, _, err := s.document(t.Context(), cloudIndex, tenant, tag); status != http.StatusNotModified || err != nil {
					t.Errorf("%s: %s has the list, and is answered with %d, %v", when, tenant, status, err)
				}
			}
		}
	}
	wants("at first", map[string]string{"team-a": "1.0.0 2.0.0", "team-b": "1.0.0 2.0.0", "old-a": "1.0.0", "old-b": "1.0.0"})
	if known["team-a"] != known["team-b"] || known["team-a"] == known["old-a"] {
		t.Errorf("the tags are %v, want one for each list", known)
	}
	for _, tag := range []string{"", known["team-a"]} {
		if status, _, _, err := s.document(t.Context(), cloudIndex, "closed", tag); status != http.StatusForbidden || err != nil {
			t.Errorf("a tenant to whom the provider is denied gets %d, %v", status, err)
		}
	}
	// An archive that is stored, and a new version of the upstream.
	s.get(t, s.archive(t, private, "1.0.0", here), "", http.StatusOK)
	u.Publish(release("1.1.0"))
	s.ahead.Add(int64(time.Hour))
	wants("after a new version", map[string]string{"team-a": "1.0.0 1.1.0 2.0.0", "old-a": "1.0.0 1.1.0"})
	u.Fail("", registrytest.Status(502))
	s.ahead.Add(int64(time.Hour))
	wants("without the upstream", map[string]string{"team-a": "1.0.0", "old-a": "1.0.0"})
	u.Heal()
	s.ahead.Add(int64(time.Hour))
	wants("with the upstream again", map[string]string{"team-a": "1.0.0 1.1.0 2.0.0", "old-a": "1.0.0 1.1.0"})
}

// RG-18: a replica reads the index of a provider once, however many clients ask for its
// versions at the same time, and again only after it has changed.
func TestTheMirrorReadsAnIndexOnce(t *testing.T) {
	files, err := blob.OpenVersionedFiles(t.TempDir(), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = files.Close() })
	u := manyReleases(t, 1000)
	store := &counting{Versions: files}
	serveMirrorOf(t, store, u).get(t, cloudIndex, "token-team-a", http.StatusOK) // writes the index
	s := serveMirrorOf(t, store, u)
	store.read.Store(0)
	store.lists.Store(0)
	var all errgroup.Group
	for i := range 20 {
		all.Go(func() error {
			status, _, versions, err := s.document(t.Context(), cloudIndex, fmt.Sprintf("team-%d", i), "")
			if err == nil && (status != http.StatusOK || len(versions) != 1000) {
				err = fmt.Errorf("a client gets %d with %d versions", status, len(versions))
			}
			return err
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	if read, lists := store.read.Load(), store.lists.Load(); read != 1 || lists != 0 {
		t.Errorf("20 clients had the index read %d times, with %d lists; want once, and none", read, lists)
	}
}

// manyReleases is an upstream with many versions of a provider.
func manyReleases(t registrytest.T, n int) *registrytest.Upstream {
	u := registrytest.New(t)
	for i := range n {
		u.Publish(&registrytest.Release{Namespace: "acme", Type: "cloud", Version: fmt.Sprintf("%d.%d.%d", i/400, i/20%20, i%20), Protocols: []string{"5.0"}, Archives: map[string][]byte{here: {0}}})
	}
	return u
}

// BenchmarkMirrorList is a request for index.json of a provider with 10,000 versions and 20
// rules, over files.
func BenchmarkMirrorList(b *testing.B) {
	files, err := blob.OpenVersionedFiles(b.TempDir(), 1<<30)
	if err != nil {
		b.Fatal(err)
	}
	defer files.Close()
	var deny []mirror.Pattern
	for i := range 20 {
		deny = append(deny, mirror.Pattern{Provider: "*/acme/cloud", Versions: fmt.Sprintf(">= 100.%d.0, < 100.%d.1", i, i)})
	}
	handler := serveMirrorOf(b, files, manyReleases(b, 10_000), mirror.Rule{Deny: deny}).Config.Handler
	for _, encoding := range []string{"identity", "gzip"} {
		r := httptest.NewRequest("GET", cloudIndex, nil)
		r.Header.Set("Authorization", "Bearer token-team-a")
		r.Header.Set("Accept-Encoding", encoding)
		b.Run(encoding, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, r)
				if w.Code != http.StatusOK {
					b.Fatal(w.Code, w.Body)
				}
			}
		})
	}
}
