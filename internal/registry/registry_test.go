package registry_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"maps"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"go.uber.org/goleak"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/blob/bucket"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// watched is a store that counts lists, and fails where a test wants it to.
type watched struct {
	blob.Versions
	mu    sync.Mutex
	lists []string
	older []string // keys that lists have besides, as of a large bucket
	fail  func(op, key string) error
	opens func(key string) // before a value is opened; nil: nothing
}

func (w *watched) Open(ctx context.Context, key string) (blob.Value, error) {
	if w.opens != nil {
		w.opens(key)
	}
	return w.Versions.Open(ctx, key)
}

func (w *watched) List(ctx context.Context, prefix string) ([]string, error) {
	w.mu.Lock()
	w.lists = append(w.lists, prefix)
	w.mu.Unlock()
	keys, err := w.Versions.List(ctx, prefix)
	for _, key := range w.older {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	return keys, err
}

// listed are the prefixes that were listed since the last call.
func (w *watched) listed() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() { w.lists = nil }()
	return w.lists
}

func (w *watched) failing(f func(op, key string) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail = f
}

func (w *watched) may(op, key string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fail == nil {
		return nil
	}
	return w.fail(op, key)
}

func (w *watched) Put(ctx context.Context, key string, r io.Reader) error {
	if err := w.may("put", key); err != nil {
		return err
	}
	return w.Versions.Put(ctx, key, r)
}

func (w *watched) Replace(ctx context.Context, key string, old blob.Version, r io.Reader) (blob.Version, error) {
	if err := w.may("replace", key); err != nil {
		return blob.None, err
	}
	return w.Versions.Replace(ctx, key, old, r)
}

// place is a registry of a test, its store and its clock.
type place struct {
	*registry.Registry
	store *watched
	now   time.Time
}

func newPlace(t *testing.T) *place {
	t.Helper()
	files, err := blob.OpenVersionedFiles(t.TempDir(), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = files.Close() })
	return placeIn(t, files)
}

func placeIn(t *testing.T, store blob.Versions) *place {
	t.Helper()
	p := &place{store: &watched{Versions: store}, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	p.restart(t)
	return p
}

// everywhere runs a test in a directory and in a bucket.
func everywhere(t *testing.T, test func(*testing.T, *place)) {
	t.Run("files", func(t *testing.T) { test(t, newPlace(t)) })
	t.Run("s3", func(t *testing.T) {
		backend := s3mem.New()
		if err := backend.CreateBucket("registry"); err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(gofakes3.New(backend).Server())
		t.Cleanup(server.Close)
		environ := func(name string) string {
			return map[string]string{"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}[name]
		}
		at, err := bucket.Parse("s3://registry/x?path-style=true&endpoint="+url.QueryEscape(server.URL), environ)
		if err != nil {
			t.Fatal(err)
		}
		store, err := bucket.Open(at, bucket.Options{Environ: environ, Scratch: t.TempDir(), Limit: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		test(t, placeIn(t, store))
	})
}

// restart opens the registry again, as another process would.
func (p *place) restart(t *testing.T) {
	t.Helper()
	p.Registry = registry.New(p.store, registry.Options{Scratch: t.TempDir(), MaxArchive: 1 << 20, Now: func() time.Time { return p.now }})
}

// keep stores a value as another program did.
func (p *place) keep(t *testing.T, key string, content []byte) {
	t.Helper()
	if err := p.store.Versions.Put(t.Context(), key, bytes.NewReader(content)); err != nil {
		t.Fatal(err)
	}
}

func (p *place) bytes(t *testing.T, key string) []byte {
	t.Helper()
	a, err := p.OpenArchive(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := io.ReadAll(a)
	if err != nil || int64(len(b)) != a.Size {
		t.Fatalf("reading %s: %d bytes, %v, want %d", key, len(b), err, a.Size)
	}
	return b
}

func module(t *testing.T, text string) address.Module {
	t.Helper()
	m, err := address.ParseModule(text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// tarGz packs files in the order of their names.
func tarGz(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(files)) {
		errs = append(errs, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(files[name])), Typeflag: tar.TypeReg}))
		_, err := io.WriteString(w, files[name])
		errs = append(errs, err)
	}
	if err := errors.Join(append(errs, w.Close(), z.Close())...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func unzipped(t *testing.T, content []byte) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

func zipOf(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(files)) {
		w, err := z.Create(name)
		if err == nil {
			_, err = io.WriteString(w, files[name])
		}
		errs = append(errs, err)
	}
	if err := errors.Join(append(errs, z.Close())...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// archiveOf is the archive of a module whose content is a text.
func archiveOf(t *testing.T, text string) []byte {
	t.Helper()
	return tarGz(t, map[string]string{"main.tf": "# " + text + "\n"})
}

func upload(content []byte) registry.Upload {
	return registry.Upload{By: "ci", Content: bytes.NewReader(content)}
}

func wantFault(t *testing.T, err error, kind fault.Kind, reason, says string) {
	t.Helper()
	if err == nil || fault.Of(err) != kind || fault.Reason(err, "") != reason || !strings.Contains(err.Error(), says) {
		t.Errorf("got the error %v (%s, %s), want one of %s, %s that says %q", err, fault.Of(err), fault.Reason(err, ""), kind, reason, says)
	}
}
