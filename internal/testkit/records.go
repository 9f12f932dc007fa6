package testkit

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/terrier-iac/terrier/internal/blob"
)

// Record reads one sealed record of the platform, nil if there is none.
func (p *Platform) Record(tb testing.TB, key string) []byte {
	tb.Helper()
	lock, err := blob.LoadKey(filepath.Join(p.Dir, "secrets", "records"))
	if err != nil {
		tb.Fatalf("reading the key of the records: %v", err)
	}
	r, err := blob.Seal(onlyRead{filepath.Join(p.Dir, "records")}, lock).Get(tb.Context(), key)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		tb.Fatalf("opening the record %s: %v", key, err)
	}
	defer r.Close()
	content, err := io.ReadAll(r)
	if err != nil {
		tb.Fatalf("reading the record %s: %v", key, err)
	}
	return content
}

// onlyRead reads the files of a store that belongs to another process, which
// opening the store would disturb.
type onlyRead struct{ dir string }

var errOnlyRead = errors.New("the store belongs to the platform")

// Get opens the file of a key.
func (o onlyRead) Get(_ context.Context, key string) (io.ReadCloser, error) {
	return os.Open(filepath.Join(o.dir, filepath.FromSlash(key)+"~"))
}

// Put refuses.
func (o onlyRead) Put(context.Context, string, io.Reader) error { return errOnlyRead }

// Delete refuses.
func (o onlyRead) Delete(context.Context, string) error { return errOnlyRead }

// List refuses.
func (o onlyRead) List(context.Context, string) ([]string, error) { return nil, errOnlyRead }
