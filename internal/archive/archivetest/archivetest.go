// Package archivetest makes archives for tests. It is for tests only.
package archivetest

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/terrier-iac/terrier/internal/archive"
)

// Pack returns the path of an archive with these files, by their names.
func Pack(tb testing.TB, files map[string]string) string {
	tb.Helper()
	dir := tb.TempDir()
	for name, text := range files {
		at := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o700), os.WriteFile(at, []byte(text), 0o600)); err != nil {
			tb.Fatal(err)
		}
	}
	var b bytes.Buffer
	if err := archive.Pack(dir, nil, &b, archive.Limits{}); err != nil {
		tb.Fatal(err)
	}
	at := filepath.Join(tb.TempDir(), "archive.tar.gz")
	if err := os.WriteFile(at, b.Bytes(), 0o600); err != nil {
		tb.Fatal(err)
	}
	return at
}
