package bucket_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/blob/blobtest"
	"github.com/terrier-iac/terrier/internal/blob/bucket"
	"github.com/terrier-iac/terrier/internal/fault"
)

// between is a bucket of S3 behind a handler that may change requests and answers.
func between(t *testing.T, o bucket.Options, handle func(w http.ResponseWriter, r *http.Request, s3 http.Handler)) *bucket.Store {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("records"); err != nil {
		t.Fatal(err)
	}
	s3 := gofakes3.New(backend).Server()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handle(w, r, s3) }))
	t.Cleanup(s.Close)
	o.Environ = func(name string) string {
		return map[string]string{"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}[name]
	}
	o.Scratch = t.TempDir()
	if o.Limit == 0 {
		o.Limit = limit
	}
	place, err := bucket.Parse("s3://records/x?path-style=true&endpoint="+url.QueryEscape(s.URL), o.Environ)
	if err != nil {
		t.Fatal(err)
	}
	store, err := bucket.Open(place, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// A server that does not look at versions is found out before anything depends on it, by
// those that need versions.
func TestServersWithoutVersions(t *testing.T) {
	conditions := []string{"If-Match", "If-None-Match"}
	ignores := func(header ...string) func(http.ResponseWriter, *http.Request, http.Handler) {
		return func(w http.ResponseWriter, r *http.Request, s3 http.Handler) {
			for _, name := range header {
				r.Header.Del(name)
			}
			s3.ServeHTTP(w, r)
		}
	}
	for name, handle := range map[string]func(http.ResponseWriter, *http.Request, http.Handler){
		"it ignores all conditions":      ignores(conditions...),
		"it ignores that a value exists": ignores("If-None-Match"),
		"it ignores a version":           ignores("If-Match"),
		"it refuses conditions": func(w http.ResponseWriter, r *http.Request, s3 http.Handler) {
			if slices.ContainsFunc(conditions, func(name string) bool { return r.Header.Get(name) != "" }) {
				s3Answer(http.StatusNotImplemented, "NotImplemented", "")(w)
				return
			}
			s3.ServeHTTP(w, r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := between(t, bucket.Options{Versions: true, Flag: "--registry-store"}, handle)
			err := store.Check(t.Context())
			if fault.Reason(err, "") != bucket.ReasonVersions || !strings.Contains(fmt.Sprint(err), "--registry-store s3://records/x") {
				t.Errorf("Check() = %v, want %s with the flag and the bucket", err, bucket.ReasonVersions)
			}
			if keys, err := store.List(t.Context(), ""); err != nil || len(keys) > 0 {
				t.Errorf("after the check there is %v, %v, want nothing", keys, err)
			}
			if err := between(t, bucket.Options{}, handle).Check(t.Context()); err != nil {
				t.Errorf("Check() for records alone = %v, want no error", err)
			}
		})
	}
}

// lose lets a write through and loses its answer, so many times. meanwhile is called
// before the next attempt.
func lose(times int, meanwhile func(r *http.Request, s3 http.Handler)) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, r *http.Request, s3 http.Handler) {
		if r.Method != http.MethodPut || times == 0 {
			s3.ServeHTTP(w, r)
			return
		}
		times--
		s3.ServeHTTP(httptest.NewRecorder(), r)
		if meanwhile != nil {
			meanwhile(r, s3)
		}
		if times%2 == 0 {
			drop(w)
		} else {
			s3Answer(http.StatusInternalServerError, "InternalError", "")(w)
		}
	}
}

// An attempt that meets what an earlier one wrote has succeeded, and one that meets the
// value of another process has not.
func TestLostAnswers(t *testing.T) {
	for name, value := range map[string][]byte{"small": []byte("mine"), "large": bytes.Repeat([]byte("mine"), 1<<19), "empty": nil} {
		t.Run(name, func(t *testing.T) {
			store := between(t, bucket.Options{}, lose(3, nil))
			version := blobtest.Replace(t, store, "a", blob.None, value)
			if v := blobtest.Open(t, store, "a"); v.Version != version {
				t.Errorf("Replace() = version %q, want that of the value, %q", version, v.Version)
			}
		})
	}
	others := func(value string) func(*http.Request, http.Handler) {
		return func(r *http.Request, s3 http.Handler) {
			other := httptest.NewRequestWithContext(r.Context(), http.MethodPut, r.URL.Path, strings.NewReader(value))
			other.Header.Set("Content-Length", fmt.Sprint(len(value)))
			s3.ServeHTTP(httptest.NewRecorder(), other)
		}
	}
	for _, value := range []string{"a longer value", "none"} {
		store := between(t, bucket.Options{}, lose(1, others(value)))
		if now, err := store.Replace(t.Context(), "a", blob.None, strings.NewReader("mine")); fault.Reason(err, "") != blob.Changed {
			t.Errorf("Replace() = %q, %v, want that another process wrote", now, err)
		}
		if got := string(blobtest.Get(t, store, "a")); got != value {
			t.Errorf("the value is %q, want %q", got, value)
		}
	}
	// The value was there before, which no lost answer explains.
	store := between(t, bucket.Options{}, func(w http.ResponseWriter, r *http.Request, s3 http.Handler) { s3.ServeHTTP(w, r) })
	blobtest.Put(t, store, "a", []byte("same"))
	if _, err := store.Replace(t.Context(), "a", blob.None, strings.NewReader("same")); fault.Reason(err, "") != blob.Changed {
		t.Errorf("Replace() by an equal value = %v, want a conflict", err)
	}
}

// A large value is not sent if it cannot be kept.
func TestLargeConflicts(t *testing.T) {
	var writes atomic.Int64
	store := between(t, bucket.Options{}, func(w http.ResponseWriter, r *http.Request, s3 http.Handler) {
		if r.Method == http.MethodPut {
			writes.Add(1)
		}
		s3.ServeHTTP(w, r)
	})
	large := func(b string) io.Reader { return strings.NewReader(strings.Repeat(b, 2<<20)) }
	first, err := store.Replace(t.Context(), "a", blob.None, large("1"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := store.Replace(t.Context(), "a", first, large("2"))
	if err != nil || second == first {
		t.Fatalf("Replace() = %q, %v, want another version than %q", second, err, first)
	}
	for _, old := range []blob.Version{blob.None, first} {
		if _, err := store.Replace(t.Context(), "a", old, large("3")); fault.Reason(err, "") != blob.Changed {
			t.Errorf("Replace() of the version %q = %v, want a conflict", old, err)
		}
	}
	if _, err := store.Replace(t.Context(), "b", first, large("3")); fault.Reason(err, "") != blob.Changed {
		t.Errorf("Replace() of a value that is not there = %v, want a conflict", err)
	}
	if writes.Load() != 2 {
		t.Errorf("the server got %d values, want the two that it keeps", writes.Load())
	}
}

// cut answers requests for objects with at most this many bytes of the body, and breaks
// off.
func cut(most int, before func(r *http.Request, s3 http.Handler)) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, r *http.Request, s3 http.Handler) {
		if r.Method != http.MethodGet {
			s3.ServeHTTP(w, r)
			return
		}
		before(r, s3)
		answer := httptest.NewRecorder()
		s3.ServeHTTP(answer, r)
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		body := answer.Body.Bytes()
		_, _ = w.Write(body[:min(most, len(body))])
		if len(body) > most {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	}
}

// A value whose connection breaks is read on from there.
func TestBrokenReads(t *testing.T) {
	want := make([]byte, 1<<20)
	if _, err := rand.Read(want); err != nil {
		t.Fatal(err)
	}
	nothing := func(*http.Request, http.Handler) {}
	store := between(t, bucket.Options{}, cut(100_000, nothing))
	blobtest.Put(t, store, "a", want)
	if got := blobtest.Get(t, store, "a"); !bytes.Equal(got, want) {
		t.Errorf("%d bytes came back, want all of them", len(got))
	}
	store = between(t, bucket.Options{}, cut(0, nothing))
	blobtest.Put(t, store, "a", want)
	if got, err := blobtest.Read(t.Context(), store, "a"); fault.Of(err) != fault.Later || fault.Reason(err, "") != bucket.ReasonUnreachable || len(got) > 0 {
		t.Errorf("of a value without a byte %d bytes came, %v, want %s", len(got), err, bucket.ReasonUnreachable)
	}
	for name, change := range map[string]func(r *http.Request){
		"replaced": func(r *http.Request) {
			r.Method, r.Body = http.MethodPut, io.NopCloser(bytes.NewReader(make([]byte, len(want))))
		},
		"deleted": func(r *http.Request) { r.Method = http.MethodDelete },
	} {
		store = between(t, bucket.Options{}, cut(100_000, func(r *http.Request, s3 http.Handler) {
			if r.Header.Get("Range") != "" {
				other := httptest.NewRequestWithContext(r.Context(), http.MethodGet, r.URL.Path, nil)
				other.Header.Set("Content-Length", fmt.Sprint(len(want)))
				change(other)
				s3.ServeHTTP(httptest.NewRecorder(), other)
			}
		}))
		blobtest.Put(t, store, "a", want)
		got, err := blobtest.Read(t.Context(), store, "a")
		if fault.Reason(err, "") != blob.Changed || !bytes.Equal(got, want[:len(got)]) {
			t.Errorf("of a value that was %s meanwhile %d bytes came, %v, want some of the old one, and %s", name, len(got), err, blob.Changed)
		}
	}
	store = between(t, bucket.Options{}, func(w http.ResponseWriter, r *http.Request, s3 http.Handler) {
		r.Header.Del("Range")
		s3.ServeHTTP(w, r)
	})
	blobtest.Put(t, store, "a", want)
	v := blobtest.Open(t, store, "a")
	if _, err := v.Seek(500_000, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(v); len(got) > 0 || fault.Reason(err, "") != bucket.ReasonUnreachable {
		t.Errorf("a server that knows no ranges gave %d bytes, %v, want none", len(got), err)
	}
}

// hole is a large value of zeros.
type hole struct{}

func (hole) ReadAt(p []byte, _ int64) (int, error) { clear(p); return len(p), nil }

// A value may be as large as the limit, of which some bytes are read.
func TestHugeValues(t *testing.T) {
	const size = 3 << 30
	store := between(t, bucket.Options{Limit: size}, func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		w.Header().Set("ETag", `"huge"`)
		http.ServeContent(w, r, "", time.Unix(1_700_000_000, 0), io.NewSectionReader(hole{}, 0, size))
	})
	v := blobtest.Open(t, store, "archive.zip")
	if v.Size != size || v.Version != "huge" || v.Modified.Unix() != 1_700_000_000 {
		t.Errorf("the value has %d bytes, the version %q and the time %v, want %d", v.Size, v.Version, v.Modified, size)
	}
	if _, err := v.Seek(-3, io.SeekEnd); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(v); err != nil || len(got) != 3 {
		t.Errorf("%d bytes came, %v, want the last three", len(got), err)
	}
	place, err := bucket.Parse("s3://records/x?region=eu-west-1", func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	for _, limit := range []int64{0, bucket.Most + 1} {
		if _, err := bucket.Open(place, bucket.Options{Limit: limit}); err == nil || !strings.Contains(err.Error(), "limit") {
			t.Errorf("Open() with a limit of %d bytes = %v, want an error", limit, err)
		}
	}
}

// No store lists the keys of another place in its bucket.
func TestPlacesOfOneBucket(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		var stores []*bucket.Store
		for _, prefix := range []string{"team", "team-2", "team/sub"} {
			store, err := s.open(t, strings.Replace(s.url, "{prefix}", prefix, 1))
			if err != nil {
				t.Fatal(err)
			}
			blobtest.Put(t, store, "of/"+strings.ReplaceAll(prefix, "/", "-"), nil)
			stores = append(stores, store)
		}
		for i, want := range [][]string{{"of/team", "sub/of/team-sub"}, {"of/team-2"}, {"of/team-sub"}} {
			if got, err := stores[i].List(t.Context(), ""); err != nil || !slices.Equal(got, want) {
				t.Errorf("List() of %s = %v, %v, want %v", stores[i], got, err, want)
			}
		}
	})
}
