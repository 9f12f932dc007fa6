package blobtest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
)

// Writers is how many write to one key at once.
const Writers = 50

// RunVersions tests the stores that open makes, as Run does, and their versions.
func RunVersions(t *testing.T, open func(t *testing.T) blob.Versions) {
	Run(t, func(t *testing.T) blob.Store { return open(t) })
	for name, test := range map[string]func(*testing.T, blob.Versions){
		"an open value says what it is":             says,
		"each value has a version":                  versions,
		"a value that was not read is not replaced": conflicts,
		"a failed replacement changes nothing":      failedReplace,
		"one of many makes a value":                 made,
		"no update is lost":                         updates,
		"an update may leave a value":               unchanged,
		"a range is read alone":                     ranges,
		"a value serves ranges over HTTP":           served,
		"a range is never of two values":            mixed,
		"a list has all pages":                      pages,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

// Replace replaces a value and fails the test if it cannot.
func Replace(t *testing.T, s blob.Versions, key string, old blob.Version, value []byte) blob.Version {
	t.Helper()
	now, err := s.Replace(t.Context(), key, old, bytes.NewReader(value))
	if err != nil || now == blob.None {
		t.Fatalf("Replace(%s, %q) = %q, %v, want a version", key, old, now, err)
	}
	return now
}

// Open opens a value until the end of the test, and fails the test if it cannot.
func Open(t *testing.T, s blob.Versions, key string) blob.Value {
	t.Helper()
	v, err := s.Open(t.Context(), key)
	if err != nil {
		t.Fatalf("Open(%s): %v", key, err)
	}
	t.Cleanup(func() { _ = v.Close() })
	return v
}

func says(t *testing.T, s blob.Versions) {
	for _, size := range []int{0, 1, 1<<20 + 7} {
		key := fmt.Sprintf("sizes/of-%d", size)
		want := pattern(size, byte(size))
		version := Replace(t, s, key, blob.None, want)
		v := Open(t, s, key)
		if v.Version != version || v.Size != int64(size) || v.Modified.Year() < 2020 || v.Modified.After(time.Now().Add(time.Hour)) {
			t.Errorf("a value of %d bytes has the version %q, %d bytes and the time %v, want the version %q", size, v.Version, v.Size, v.Modified, version)
		}
		if got, err := io.ReadAll(v); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes came back as %d others, %v", size, len(got), err)
		}
		if got := Get(t, s, key); !bytes.Equal(got, want) {
			t.Errorf("Get() of %d bytes = %d others", size, len(got))
		}
	}
	for _, key := range []string{"nowhere", "sizes", "sizes/of-1/below"} {
		if _, err := s.Open(t.Context(), key); fault.Of(err) != fault.Missing {
			t.Errorf("Open(%s) error = %v, want Missing", key, err)
		}
	}
	for _, key := range []string{"", "../a", "a b", ".lock/01"} {
		_, err := s.Open(t.Context(), key)
		_, errReplace := s.Replace(t.Context(), key, blob.None, strings.NewReader("x"))
		if fault.Of(err) != fault.Invalid || fault.Of(errReplace) != fault.Invalid {
			t.Errorf("Open(%q) = %v, Replace() = %v, want Invalid", key, err, errReplace)
		}
	}
}

func versions(t *testing.T, s blob.Versions) {
	seen := map[blob.Version]string{}
	version := blob.None
	for _, value := range []string{"one", "two", "six", ""} { // of one size, too
		version = Replace(t, s, "a", version, []byte(value))
		if other, ok := seen[version]; ok {
			t.Errorf("%q and %q have the version %s", value, other, version)
		}
		seen[version] = value
		if v := Open(t, s, "a"); v.Version != version {
			t.Errorf("Open() of %q = version %q, want %q", value, v.Version, version)
		}
	}
	Put(t, s, "a", []byte("put"))
	if v := Open(t, s, "a"); seen[v.Version] != "" || v.Version == version {
		t.Errorf("after Put() the version is %q, which was that of %q", v.Version, seen[v.Version])
	}
}

// changed checks that a replacement was refused, and that the value stays.
func changed(t *testing.T, s blob.Versions, what, key string, old blob.Version, want string) {
	t.Helper()
	_, err := s.Replace(t.Context(), key, old, strings.NewReader("new"))
	if fault.Of(err) != fault.Conflict || fault.Reason(err, "") != blob.Changed || !strings.Contains(fmt.Sprint(err), key) {
		t.Errorf("Replace() of %s = %v, want a conflict that names %s", what, err, key)
	}
	got, err := Read(t.Context(), s, key)
	if want == "" && fault.Of(err) == fault.Missing {
		return
	}
	if err != nil || string(got) != want {
		t.Errorf("after Replace() of %s there is %q, %v, want %q", what, got, err, want)
	}
}

func conflicts(t *testing.T, s blob.Versions) {
	first := Replace(t, s, "dir/a", blob.None, []byte("first"))
	changed(t, s, "a value that is there, as if it were not", "dir/a", blob.None, "first")
	second := Replace(t, s, "dir/a", first, []byte("second"))
	changed(t, s, "a value that was replaced", "dir/a", first, "second")
	if err := s.Delete(t.Context(), "dir/a"); err != nil {
		t.Fatal(err)
	}
	changed(t, s, "a value that was deleted", "dir/a", second, "")
	Replace(t, s, "dir/a", blob.None, []byte("third"))
	changed(t, s, "a value that was deleted and made again", "dir/a", second, "third")
	third := Open(t, s, "dir/a").Version
	Put(t, s, "dir/a", []byte("put"))
	changed(t, s, "a value that was put", "dir/a", third, "put")
	changed(t, s, "a value that never was", "dir/b", third, "")
}

func failedReplace(t *testing.T, s blob.Versions) {
	version := Replace(t, s, "a", blob.None, []byte("old"))
	broken := func() io.Reader { return io.MultiReader(bytes.NewReader(pattern(200_000, 2)), errReader{}) }
	for key, old := range map[string]blob.Version{"a": version, "b/new": blob.None} {
		if _, err := s.Replace(t.Context(), key, old, broken()); !errors.Is(err, errBroken) {
			t.Errorf("Replace(%s) error = %v, want that of the reader", key, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := io.MultiReader(bytes.NewReader(pattern(200_000, 3)), cancelReader{cancel}, bytes.NewReader(pattern(200_000, 4)))
	if _, err := s.Replace(ctx, "a", version, r); !errors.Is(err, context.Canceled) {
		t.Errorf("Replace() error = %v, want that of the context", err)
	}
	if v := Open(t, s, "a"); v.Version != version || string(Get(t, s, "a")) != "old" {
		t.Errorf("after failed replacements the version is %q, want the old value with %q", v.Version, version)
	}
	keys, err := s.List(t.Context(), "")
	if err != nil || !slices.Equal(keys, []string{"a"}) {
		t.Errorf("List() = %v, %v; want only the old key", keys, err)
	}
}

func made(t *testing.T, s blob.Versions) {
	var group sync.WaitGroup
	var won atomic.Int64
	for i := range Writers {
		group.Go(func() {
			version, err := s.Replace(t.Context(), "dir/new", blob.None, strings.NewReader(strconv.Itoa(i)))
			if fault.Reason(err, "") == blob.Changed {
				return
			}
			if err != nil || version == blob.None {
				t.Errorf("Replace() = %q, %v, want a version or a conflict", version, err)
			}
			if before := won.Swap(int64(i) + 1); before != 0 {
				t.Errorf("%d and %d have made the value", before-1, i)
			}
		})
	}
	group.Wait()
	if got := string(Get(t, s, "dir/new")); got != strconv.FormatInt(won.Load()-1, 10) {
		t.Errorf("the value is that of %s, want that of the winner, %d", got, won.Load()-1)
	}
}

// Increment counts up the number that a key holds.
func Increment(ctx context.Context, s blob.Versions, key string) error {
	return blob.Update(ctx, s, key, 100, func(old []byte) ([]byte, error) {
		n, err := strconv.Atoi(cmp.Or(string(old), "0"))
		return []byte(strconv.Itoa(n + 1)), err
	})
}

func updates(t *testing.T, s blob.Versions) {
	var group sync.WaitGroup
	for range Writers {
		group.Go(func() {
			if err := Increment(t.Context(), s, "dir/count"); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if got := string(Get(t, s, "dir/count")); got != strconv.Itoa(Writers) {
		t.Errorf("after %d increments the count is %s", Writers, got)
	}
}

func unchanged(t *testing.T, s blob.Versions) {
	update := func(change func(old []byte) ([]byte, error)) error {
		return blob.Update(t.Context(), s, "a", 10, change)
	}
	if err := update(func(old []byte) ([]byte, error) { return nil, errBroken }); !errors.Is(err, errBroken) {
		t.Errorf("Update() error = %v, want that of the change", err)
	}
	if _, err := s.Open(t.Context(), "a"); fault.Of(err) != fault.Missing {
		t.Errorf("after it Open() = %v, want no value", err)
	}
	if err := update(func(old []byte) ([]byte, error) { return old, nil }); err != nil {
		t.Error(err)
	}
	if _, err := s.Open(t.Context(), "a"); fault.Of(err) != fault.Missing {
		t.Errorf("after an update that makes no value Open() = %v, want no value", err)
	}
	if err := update(func(old []byte) ([]byte, error) { return []byte{}, nil }); err != nil {
		t.Fatal(err)
	}
	version := Open(t, s, "a").Version
	if err := update(func(old []byte) ([]byte, error) { return old, nil }); err != nil {
		t.Fatal(err)
	}
	if now := Open(t, s, "a").Version; now != version {
		t.Errorf("an update that changes nothing has made the version %q of %q", now, version)
	}
	Put(t, s, "a", make([]byte, 11))
	if err := update(func(old []byte) ([]byte, error) { return nil, nil }); fault.Reason(err, "") != blob.TooLarge {
		t.Errorf("Update() of a value that is too large = %v, want %s", err, blob.TooLarge)
	}
}

func ranges(t *testing.T, s blob.Versions) {
	want := pattern(1<<20+7, 9)
	Replace(t, s, "a", blob.None, want)
	v := Open(t, s, "a")
	size := int64(len(want))
	for _, r := range []struct {
		whence         int
		offset, length int64
		from           int64
	}{
		{io.SeekStart, 0, 10, 0},
		{io.SeekCurrent, 90, 100, 100}, // after the ten that were read
		{io.SeekStart, 1 << 20, 7, 1 << 20},
		{io.SeekEnd, -5, 5, size - 5},
		{io.SeekStart, 0, size, 0},
		{io.SeekStart, 300_000, 300_000, 300_000},
		{io.SeekCurrent, -600_000, 1000, 0},
	} {
		at, err := v.Seek(r.offset, r.whence)
		if err != nil || at != r.from {
			t.Fatalf("Seek(%d, %d) = %d, %v, want %d", r.offset, r.whence, at, err, r.from)
		}
		got := make([]byte, r.length)
		if _, err := io.ReadFull(v, got); err != nil || !bytes.Equal(got, want[r.from:r.from+r.length]) {
			t.Errorf("%d bytes from %d are others, %v", r.length, r.from, err)
		}
	}
	for _, at := range []int64{size, size + 100} {
		if _, err := v.Seek(at, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		if n, err := v.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("Read() from %d = %d, %v, want the end", at, n, err)
		}
	}
	if at, err := v.Seek(-1, io.SeekStart); err == nil {
		t.Errorf("Seek(-1) = %d, want an error", at)
	}
	if at, err := v.Seek(0, 7); err == nil {
		t.Errorf("Seek() from nowhere = %d, want an error", at)
	}
}

func served(t *testing.T, s blob.Versions) {
	want := pattern(300_000, 11)
	Replace(t, s, "archive.zip", blob.None, want)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, err := s.Open(r.Context(), "archive.zip")
		if err != nil {
			t.Error(err)
			return
		}
		defer v.Close()
		w.Header().Set("Content-Type", "application/zip")
		http.ServeContent(w, r, "", v.Modified, v)
	})
	for header, of := range map[string]struct {
		status int
		want   []byte
	}{
		"":                       {http.StatusOK, want},
		"bytes=0-0":              {http.StatusPartialContent, want[:1]},
		"bytes=100-199":          {http.StatusPartialContent, want[100:200]},
		"bytes=299000-":          {http.StatusPartialContent, want[299000:]},
		"bytes=-500":             {http.StatusPartialContent, want[len(want)-500:]},
		"bytes=299999-400000":    {http.StatusPartialContent, want[299999:]},
		"bytes=300000-":          {http.StatusRequestedRangeNotSatisfiable, []byte("invalid range: failed to overlap\n")},
		"bytes=100-199,0-299999": {http.StatusOK, want}, // more than the value has
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		if header != "" {
			r.Header.Set("Range", header)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != of.status || !bytes.Equal(w.Body.Bytes(), of.want) {
			t.Errorf("Range %q = %d with %d bytes, want %d with %d", header, w.Code, w.Body.Len(), of.status, len(of.want))
		}
	}
}

func mixed(t *testing.T, s blob.Versions) {
	old := pattern(300_000, 12)
	version := Replace(t, s, "a", blob.None, old)
	v := Open(t, s, "a")
	Replace(t, s, "a", version, bytes.Repeat([]byte{0xff}, len(old)))
	if _, err := v.Seek(1000, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(v)
	if fault.Reason(err, "") == blob.Changed && len(got) == 0 {
		return
	}
	if err != nil || !bytes.Equal(got, old[1000:]) {
		t.Errorf("of a value that was replaced %d bytes come, %v, want those of the old one, or %s", len(got), err, blob.Changed)
	}
}

func pages(t *testing.T, s blob.Versions) {
	const keys = 1100 // a page has a thousand
	var want []string
	var group sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i := range keys {
		key := fmt.Sprintf("many/%04d", i)
		want = append(want, key)
		group.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if err := s.Put(t.Context(), key, strings.NewReader("x")); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	Put(t, s, "many-more/x", nil)
	got, err := s.List(t.Context(), "many/")
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("List() = %d keys, %v, want %d", len(got), err, keys)
	}
	if got, err := s.List(t.Context(), "many/010"); err != nil || !slices.Equal(got, want[100:110]) {
		t.Errorf("List() of a part = %v, %v, want ten keys", got, err)
	}
}
