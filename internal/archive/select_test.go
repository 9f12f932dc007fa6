package archive

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/terrier-iac/terrier/internal/fault"
)

func tarOfNames(t *testing.T, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		h.Mode, h.Size = 0o600, 0
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(h.Name))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := io.WriteString(w, h.Name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestSelectCopiesTheFilesOfADirectory(t *testing.T) {
	from := tarOfNames(t,
		tar.Header{Name: "bin/", Typeflag: tar.TypeDir}, tar.Header{Name: "./bin/a", Typeflag: tar.TypeReg}, tar.Header{Name: "bin/deep/b", Typeflag: tar.TypeReg},
		tar.Header{Name: "bin/link", Linkname: "/etc/passwd", Typeflag: tar.TypeSymlink}, tar.Header{Name: "../../bin/c", Typeflag: tar.TypeReg}, tar.Header{Name: "etc/d", Typeflag: tar.TypeReg})
	var first, second bytes.Buffer
	for _, to := range []*bytes.Buffer{&first, &second} {
		if n, err := Select(bytes.NewReader(from), "bin", to, Limits{}); n != 2 || err != nil {
			t.Fatalf("Select() = %d, %v, want 2", n, err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the same files make other bytes")
	}
	dir := t.TempDir()
	if err := Extract(&first, dir, Limits{}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"a": "./bin/a", "c": "../../bin/c"} {
		path := filepath.Join(dir, "bin", name)
		text, err := os.ReadFile(path)
		info, err2 := os.Stat(path)
		if err != nil || err2 != nil || string(text) != want || info.Mode().Perm()&0o100 == 0 {
			t.Errorf("%s is %q, %v, %v", name, text, err, err2)
		}
	}
	if _, err := Select(bytes.NewReader(from), "bin", io.Discard, Limits{Entries: 1}); fault.Of(err) != fault.Invalid {
		t.Errorf("beyond the limit: %v, want Invalid", err)
	}
	if _, err := Select(bytes.NewReader([]byte("no archive at all, however long it is")), "bin", io.Discard, Limits{}); fault.Of(err) != fault.Invalid {
		t.Errorf("no archive: %v, want Invalid", err)
	}
}

func TestHasFindsARegularFile(t *testing.T) {
	from := tarOfNames(t, tar.Header{Name: "d/", Typeflag: tar.TypeDir}, tar.Header{Name: "./a", Typeflag: tar.TypeReg}, tar.Header{Name: "d/b", Typeflag: tar.TypeReg})
	for name, want := range map[string]bool{"a": true, "d/b": true, "b": false, "d": false} {
		if got, err := Has(bytes.NewReader(from), name, Limits{}); got != want || err != nil {
			t.Errorf("Has(%q) = %v, %v, want %v", name, got, err, want)
		}
	}
	for _, bad := range [][]byte{from[:700], []byte("no archive at all, however long it is")} {
		if got, err := Has(bytes.NewReader(bad), "none", Limits{}); got || fault.Of(err) != fault.Invalid {
			t.Errorf("Has() of a broken archive = %v, %v, want Invalid", got, err)
		}
	}
}
