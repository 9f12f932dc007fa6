package source

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
)

const (
	abc256 = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	abc512 = "sha512:ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f"
)

func newCache(t *testing.T, most int64) *Cache {
	t.Helper()
	c, err := NewCache(t.TempDir(), loopback(t), most)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// artifacts serves the same content everywhere and counts requests.
func artifacts(t *testing.T, handle http.HandlerFunc) (url string, hits *atomic.Int32) {
	t.Helper()
	hits = new(atomic.Int32)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		handle(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/a.tar.gz", hits
}

func abc(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "abc") }

func TestCacheGet(t *testing.T) {
	url, hits := artifacts(t, abc)
	c := newCache(t, 100)
	for i := range 2 {
		path, err := c.Get(context.Background(), Artifact{URL: url, Digest: abc256, Size: 3})
		if err != nil {
			t.Fatal(err)
		}
		if content, err := os.ReadFile(path); err != nil || string(content) != "abc" {
			t.Errorf("time %d: the file holds %q, %v", i, content, err)
		}
	}
	if got := hits.Load(); got != 1 {
		t.Errorf("%d downloads, want 1", got)
	}
	path, err := c.Get(context.Background(), Artifact{URL: url, Digest: abc512})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("abd"), 0o600); err != nil {
		t.Fatal(err)
	}
	if path, err = c.Get(context.Background(), Artifact{URL: url, Digest: abc512}); err != nil {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(path); err != nil || string(content) != "abc" {
		t.Errorf("after damage on the disk the file holds %q, %v", content, err)
	}
}

func TestCacheRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		handle   http.HandlerFunc
		artifact Artifact
		kind     fault.Kind
		reason   string
	}{
		"another content":               {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "abd") }, Artifact{Digest: abc256}, fault.Broken, reasonCorrupt},
		"a cut content":                 {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ab") }, Artifact{Digest: abc256, Size: 3}, fault.Broken, reasonCorrupt},
		"more than it says":             {abc, Artifact{Digest: abc256, Size: 1}, fault.Broken, reasonCorrupt},
		"more than the cache takes":     {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, strings.Repeat("x", 101)) }, Artifact{Digest: abc256}, fault.Invalid, outbound.ReasonTooLarge},
		"more than that by its own say": {abc, Artifact{Digest: abc256, Size: 101}, fault.Invalid, outbound.ReasonTooLarge},
		"an artifact that is gone":      {http.NotFound, Artifact{Digest: abc256}, fault.Missing, ReasonArtifact},
		"a server that fails":           {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, Artifact{Digest: abc256}, fault.Broken, ""},
		"no digest":                     {abc, Artifact{}, fault.Invalid, ReasonArtifact},
		"a short digest":                {abc, Artifact{Digest: "sha256:abcd"}, fault.Invalid, ReasonArtifact},
		"a digest that leads out":       {abc, Artifact{Digest: "sha256:../../" + strings.Repeat("a", 58)}, fault.Invalid, ReasonArtifact},
		"a weak digest":                 {abc, Artifact{Digest: "md5:900150983cd24fb0d6963f7d28e17f72"}, fault.Invalid, ReasonArtifact},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCache(t, 100)
			tt.artifact.URL, _ = artifacts(t, tt.handle)
			path, err := c.Get(context.Background(), tt.artifact)
			if fault.Of(err) != tt.kind || fault.Reason(err, "") != tt.reason {
				t.Errorf("Get() = %q, %v, want kind %s and reason %q", path, err, tt.kind, tt.reason)
			}
			files, err := filepath.Glob(filepath.Join(c.dir, "*", "*"))
			if err != nil || len(files) != 0 {
				t.Errorf("kept: %v, %v", files, err)
			}
		})
	}
}

func TestCacheSharesDownloads(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	url, hits := artifacts(t, func(w http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-release
		abc(w, r)
	})
	c := newCache(t, 100)
	a := Artifact{URL: url, Digest: abc256}
	// The first caller starts the download and gives up.
	ctx, cancel := context.WithCancel(context.Background())
	first := make(chan error, 1)
	go func() { _, err := c.Get(ctx, a); first <- err }()
	<-arrived
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("Get() of the caller that gave up = %v, want Canceled", err)
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := c.Get(context.Background(), a); err != nil {
				t.Errorf("Get() = %v", err)
			}
		})
	}
	close(release)
	all.Wait()
	if got := hits.Load(); got != 1 {
		t.Errorf("%d downloads, want 1", got)
	}
}

func TestCachePrune(t *testing.T) {
	url, _ := artifacts(t, abc)
	c := newCache(t, 100)
	paths := map[string]string{}
	for _, digest := range []string{abc256, abc512} {
		path, err := c.Get(context.Background(), Artifact{URL: url, Digest: digest})
		if err != nil {
			t.Fatal(err)
		}
		paths[digest] = path
	}
	there := func(digest string) bool { _, err := os.Stat(paths[digest]); return err == nil }
	if err := c.Prune(time.Now().Add(-time.Hour), func(string) bool { return false }); err != nil || !there(abc256) || !there(abc512) {
		t.Errorf("Prune() = %v and removed what is new", err)
	}
	if err := c.Prune(time.Now().Add(time.Hour), func(d string) bool { return d == abc512 }); err != nil || there(abc256) || !there(abc512) {
		t.Errorf("Prune() = %v, want just the unwanted one gone", err)
	}
}

// What was used lately stays, however long ago it was fetched: a run that was given its path has
// not opened it yet.
func TestCacheKeepsWhatIsUsed(t *testing.T) {
	url, hits := artifacts(t, abc)
	for name, use := range map[string]func(*Cache) error{
		"fetched again": func(c *Cache) error {
			_, err := c.Get(t.Context(), Artifact{URL: url, Digest: abc256})
			return err
		},
		"found by its digest": func(c *Cache) error {
			_, err := c.Path(abc256)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCache(t, 100)
			long := time.Now().Add(-48 * time.Hour)
			for _, digest := range []string{abc256, abc512} {
				path, err := c.Get(t.Context(), Artifact{URL: url, Digest: digest})
				if err == nil {
					err = os.Chtimes(path, long, long)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			before := hits.Load()
			if err := use(c); err != nil || hits.Load() != before {
				t.Fatalf("using it = %v, after %d requests", err, hits.Load()-before)
			}
			if err := c.Prune(time.Now().Add(-24*time.Hour), func(string) bool { return false }); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Path(abc256); err != nil {
				t.Errorf("what was used is gone: %v", err)
			}
			if _, err := c.Path(abc512); err == nil {
				t.Error("what was not used for two days is there")
			}
		})
	}
}
