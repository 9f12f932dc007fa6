package testkit

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/blob"
)

// shared is where records are that several controllers share. It is nil where they are in
// the data directory.
type shared struct {
	dir string
	key blob.Key
}

// ShareRecords has the records of a platform, its audit log among them, be those in dir,
// which a key of the Secret of keys sealed.
func ShareRecords(p *Platform, dir string, key []byte) error {
	k, err := blob.NewKey(key)
	if err != nil {
		return err
	}
	p.sharedRecords = &shared{dir, k}
	return nil
}

// at is the directory of the records of a platform whose data directory is data.
func (s *shared) at(data string) string {
	if s != nil {
		return s.dir
	}
	return filepath.Join(data, "records")
}

// opens is the key of the records.
func (s *shared) opens(data string) (blob.Key, error) {
	if s != nil {
		return s.key, nil
	}
	return blob.LoadKey(filepath.Join(data, "secrets", "records"))
}

// audit is a directory with the audit log: that of the platform, or a copy of the segments
// in the records.
func (s *shared) audit(tb testing.TB, p *Platform) string {
	tb.Helper()
	if s == nil {
		return filepath.Join(p.Dir, "audit")
	}
	segments, err := filepath.Glob(filepath.Join(s.dir, "audit", "*~"))
	if err != nil {
		tb.Fatal(err)
	}
	dir := tb.TempDir()
	for _, path := range segments {
		name := strings.TrimSuffix(filepath.Base(path), "~")
		if err := os.WriteFile(filepath.Join(dir, name), p.Record(tb, "audit/"+name), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	return dir
}

// Record reads one sealed record of the platform, nil if there is none.
func (p *Platform) Record(tb testing.TB, key string) []byte {
	tb.Helper()
	lock, err := p.sharedRecords.opens(p.Dir)
	if err != nil {
		tb.Fatalf("reading the key of the records: %v", err)
	}
	r, err := blob.Seal(onlyRead{p.sharedRecords.at(p.Dir)}, lock).Get(tb.Context(), key)
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
