package protocol_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/registry"
	"github.com/terrier-iac/terrier/internal/registry/protocol"
	"github.com/terrier-iac/terrier/internal/registry/registrytest"
	"github.com/terrier-iac/terrier/internal/registry/registrytest/enginetest"
	"github.com/terrier-iac/terrier/internal/registry/rights"
)

// A list that a replica keeps is never that of an earlier index: what another replica
// publishes, retracts and restores counts at once, for lists and for the tags of them.
func TestKeptListsAreNeverStale(t *testing.T) {
	one := start(t)
	two, signer := startOn(t, one.store), registrytest.NewSigner(t)
	release := func(version string) *registrytest.Release {
		return registrytest.NewRelease(t, signer, "team/cloud", version, 100, here)
	}
	for name, tt := range map[string]struct {
		path    string
		publish func(version string)
	}{
		"a module":   {"modules/team/vpc/aws", func(version string) { one.push(t, "team/vpc/aws", version, saying(t, version)) }},
		"a provider": {"providers/team/cloud", func(version string) { one.publish(t, signer, release(version)) }},
	} {
		t.Run(name, func(t *testing.T) {
			known := "" // the tag of the list that a client of the second replica has
			wants := func(after string, has, lacks []string) {
				t.Helper()
				list := "/v1/" + tt.path + "/versions"
				mine, theirs := one.ask(t, "GET", list, reader, nil), two.ask(t, "GET", list, reader, nil, "If-None-Match", known)
				theirs.want(t, http.StatusOK, "")
				known = theirs.Header.Get("ETag")
				if mine.body != theirs.body || mine.Header.Get("ETag") != known || known == "" {
					t.Errorf("after %s the replicas have %s and %s, tagged %s and %s", after, mine.body, theirs.body, mine.Header.Get("ETag"), known)
				}
				open, _, _ := strings.Cut(theirs.body, `"retracted"`)
				for _, version := range has {
					if !strings.Contains(open, `"version":"`+version+`"`) {
						t.Errorf("after %s the list misses %s: %s", after, version, open)
					}
				}
				for _, version := range lacks {
					if strings.Contains(open, `"version":"`+version+`"`) {
						t.Errorf("after %s the list has %s: %s", after, version, open)
					}
				}
				again := two.ask(t, "GET", list, reader, nil, "If-None-Match", `"other", `+known)
				again.want(t, http.StatusNotModified, "")
				if again.body != "" || again.Header.Get("ETag") != known || again.Header.Get("Cache-Control") != "private, no-cache" {
					t.Errorf("what the client has already is answered with %q and %v", again.body, again.Header)
				}
			}
			tt.publish("1.0.0")
			wants("the first version", []string{"1.0.0"}, []string{"1.1.0"})
			tt.publish("1.1.0")
			wants("the second one", []string{"1.0.0", "1.1.0"}, nil)
			one.ask(t, "POST", "/v1/"+tt.path+"/1.1.0/retract", admin, strings.NewReader(`{"reason":"it deletes"}`)).want(t, http.StatusNoContent, "")
			wants("a retraction", []string{"1.0.0"}, []string{"1.1.0"})
			two.ask(t, "POST", "/v1/"+tt.path+"/1.1.0/restore", admin, nil).want(t, http.StatusNoContent, "")
			wants("its end", []string{"1.0.0", "1.1.0"}, nil)
			// An operator who deletes the index has it made again.
			two.ask(t, "POST", "/v1/"+tt.path+"/1.1.0/retract", admin, strings.NewReader(`{"reason":"it deletes"}`)).want(t, http.StatusNoContent, "")
			wants("another retraction", []string{"1.0.0"}, []string{"1.1.0"})
			if err := one.store.Delete(t.Context(), "index/"+tt.path+".json"); err != nil {
				t.Fatal(err)
			}
			wants("the index was made again", []string{"1.0.0", "1.1.0"}, nil)
		})
	}
}

// A list is kept for all callers, and each of them needs the right to read it.
func TestKeptListsNeedRights(t *testing.T) {
	s := start(t)
	s.push(t, "secret/vpc/aws", "1.0.0", saying(t, "secret"))
	const list = "/v1/modules/secret/vpc/aws/versions"
	a := s.ask(t, "GET", list, admin, nil)
	a.want(t, http.StatusOK, "")
	tag := a.Header.Get("ETag")
	s.ask(t, "GET", list, reader, nil, "If-None-Match", tag).want(t, http.StatusForbidden, "bob may not read")
	s.ask(t, "GET", list, "", nil, "If-None-Match", tag).want(t, http.StatusUnauthorized, "no token")
	// The details that users ask for are not in what is kept, and no cache keeps them.
	more := s.ask(t, "GET", list+"?details=true", admin, nil)
	if !strings.Contains(more.body, `"by":"ann"`) || more.Header.Get("ETag") != "" || more.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("the list with details is %s, with %v", more.body, more.Header)
	}
	if b := s.ask(t, "GET", list, admin, nil, "Range", "bytes=0-3"); b.StatusCode != http.StatusOK || b.body != a.body || strings.Contains(b.body, "ann") {
		t.Errorf("a part of the list is %d %s, want the whole", b.StatusCode, b.body)
	}
}

// The warning of a retraction ends after 90 days, in a list that is kept as well.
func TestKeptWarningsEnd(t *testing.T) {
	s, signer := start(t), registrytest.NewSigner(t)
	began := time.Now()
	at := func(days int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.now = began.Add(time.Duration(days) * 24 * time.Hour)
	}
	for _, version := range []string{"1.0.0", "1.1.0", "1.2.0"} {
		s.publish(t, signer, registrytest.NewRelease(t, signer, "team/cloud", version, 100, here))
	}
	for days, version := range map[int]string{0: "1.1.0", 50: "1.0.0"} {
		at(days)
		s.ask(t, "POST", "/v1/providers/team/cloud/"+version+"/retract", admin, strings.NewReader(`{"reason":"it deletes"}`)).want(t, http.StatusNoContent, "")
	}
	for _, tt := range []struct {
		days int
		want string
	}{{89, "1.1.0 1.0.0"}, {91, "1.0.0"}, {139, "1.0.0"}, {141, ""}} {
		at(tt.days)
		var list struct{ Warnings []string }
		a := s.ask(t, "GET", "/v1/providers/team/cloud/versions", reader, nil)
		if err := json.Unmarshal([]byte(a.body), &list); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, warning := range list.Warnings {
			got = append(got, strings.Fields(warning)[1])
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("after %d days the warnings are of %v, want %s", tt.days, got, tt.want)
		}
	}
}

// RG-18: the lists of 10,000 versions need no list of the store, and the index is read once
// however many clients ask: from then on a request compares its version.
func TestRequestsReadAnIndexOnce(t *testing.T) {
	files, err := blob.OpenVersionedFiles(t.TempDir(), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = files.Close() })
	fill(t, files, 10_000)
	if err := files.Put(t.Context(), "modules/team/many/demo/team-many-demo-24.19.19.tar.gz", bytes.NewReader(saying(t, "hello"))); err != nil {
		t.Fatal(err)
	}
	store := &counting{Versions: files}
	s := startOn(t, store)
	for _, path := range many {
		store.read.Store(0)
		var all errgroup.Group
		for range 20 {
			all.Go(func() error {
				n, err := s.versionsAt(t.Context(), path)
				if err == nil && n != 10_000 {
					err = fmt.Errorf("%s has %d versions, want 10,000", path, n)
				}
				return err
			})
		}
		if err := all.Wait(); err != nil {
			t.Fatal(err)
		}
		if n := store.read.Load(); n != 1 {
			t.Errorf("20 clients of %s read its index %d times, want once", path, n)
		}
	}
	for _, path := range []string{"/v1/modules/team/many/demo/24.19.19/download", "/v1/providers/team/many/24.19.19/download/linux/amd64"} {
		s.ask(t, "GET", path, reader, nil).want(t, http.StatusOK, "")
	}
	if n := store.lists.Load(); n != 0 {
		t.Errorf("requests made %d lists of the store, want none", n)
	}
	if got := s.engine(reader, "").Says(t, enginetest.Using(t, s.host()+"/team/many/demo", "24.19.19")); got != "hello" {
		t.Errorf("the module says %q", got)
	}
}

// versionsAt counts the versions of a list.
func (s *service) versionsAt(ctx context.Context, path string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, "GET", s.URL+path, nil)
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer "+reader)
	a, err := s.Do(r)
	if err != nil {
		return 0, err
	}
	text, err := io.ReadAll(a.Body)
	if err := errors.Join(err, a.Body.Close()); err != nil || a.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s is answered with %s: %w", path, a.Status, err)
	}
	return bytes.Count(text, []byte(`"version":`)), nil
}

// counting is a store that counts lists, writes, and values below index/ that are read.
type counting struct {
	blob.Versions
	lists, read, writes atomic.Int64
}

func (c *counting) Put(ctx context.Context, key string, r io.Reader) error {
	c.writes.Add(1)
	return c.Versions.Put(ctx, key, r)
}

func (c *counting) Replace(ctx context.Context, key string, old blob.Version, r io.Reader) (blob.Version, error) {
	c.writes.Add(1)
	return c.Versions.Replace(ctx, key, old, r)
}

func (c *counting) Delete(ctx context.Context, key string) error {
	c.writes.Add(1)
	return c.Versions.Delete(ctx, key)
}

func (c *counting) List(ctx context.Context, prefix string) ([]string, error) {
	c.lists.Add(1)
	return c.Versions.List(ctx, prefix)
}

func (c *counting) Open(ctx context.Context, key string) (blob.Value, error) {
	v, err := c.Versions.Open(ctx, key)
	if err == nil && strings.HasPrefix(key, "index/") {
		v.ReadSeekCloser = &countedReads{ReadSeekCloser: v.ReadSeekCloser, read: &c.read}
	}
	return v, err
}

type countedReads struct {
	io.ReadSeekCloser
	read *atomic.Int64
	once bool
}

func (c *countedReads) Read(p []byte) (int, error) {
	if !c.once {
		c.once = true
		c.read.Add(1)
	}
	return c.ReadSeekCloser.Read(p)
}

// many are the lists of what fill stores.
var many = map[string]string{
	"module":   "/v1/modules/team/many/demo/versions",
	"provider": "/v1/providers/team/many/versions",
}

// fill stores a module and a provider with many versions.
func fill(t testing.TB, store blob.Versions, n int) {
	t.Helper()
	modules, providers := map[string]registry.ModuleVersion{}, map[string]registry.ProviderVersion{}
	for i := range n {
		v := fmt.Sprintf("%d.%d.%d", i/400, i/20%20, i%20)
		sum := fmt.Sprintf("%064d", i)
		modules[v] = registry.ModuleVersion{File: "team-many-demo-" + v + ".tar.gz", SHA256: sum, Size: 10_000, By: "ci"}
		packages := map[address.Platform]registry.Package{}
		for _, on := range []address.Platform{{OS: "darwin", Arch: "amd64"}, {OS: "darwin", Arch: "arm64"}, {OS: "linux", Arch: "amd64"}, {OS: "linux", Arch: "arm64"}, {OS: "windows", Arch: "amd64"}, {OS: "freebsd", Arch: "amd64"}} {
			packages[on] = registry.Package{SHA256: sum, Size: 10_000}
		}
		providers[v] = registry.ProviderVersion{Protocols: []string{"5.0"}, Packages: packages, By: "ci"}
	}
	put := func(key string, content any) {
		text, err := json.Marshal(map[string]any{"versions": content})
		if err == nil {
			err = store.Put(context.Background(), "index/"+key+".json", bytes.NewReader(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	put("modules/team/many/demo", modules)
	put("providers/team/many", providers)
}

// BenchmarkLists is a request for a list of 10,000 versions over files: as the index is, and the
// first one after a change of it, which reads the index and makes the list.
func BenchmarkLists(b *testing.B) {
	files, err := blob.OpenVersionedFiles(b.TempDir(), 1<<30)
	if err != nil {
		b.Fatal(err)
	}
	defer files.Close()
	fill(b, files, 10_000)
	open := func(b *testing.B) http.Handler {
		handler, err := protocol.New(protocol.Options{
			Registry: registry.New(files, registry.Options{Scratch: b.TempDir()}), Rights: callers{}, Signer: rights.NewSigner(rights.NewKey(), time.Now),
		})
		if err != nil {
			b.Fatal(err)
		}
		return handler
	}
	for name, path := range many {
		for _, encoding := range []string{"identity", "gzip"} {
			r := httptest.NewRequest("GET", path, nil)
			r.Header.Set("Authorization", "Bearer "+reader)
			r.Header.Set("Accept-Encoding", encoding)
			ask := func(b *testing.B, handler http.Handler) {
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, r)
				if w.Code != http.StatusOK {
					b.Fatal(w.Code, w.Body)
				}
			}
			b.Run(name+"/"+encoding, func(b *testing.B) {
				b.ReportAllocs()
				for handler := open(b); b.Loop(); {
					ask(b, handler)
				}
			})
			b.Run(name+"/"+encoding+"/first", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					ask(b, open(b))
				}
			})
		}
	}
}
