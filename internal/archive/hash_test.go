package archive_test

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/terrier-iac/terrier/internal/archive"
)

// The hash of a package is the one that init writes into the lock file; what it
// is made of is the checksum database's definition of h1.
func TestHashPackage(t *testing.T) {
	const want = "h1:sqhM8Zx93My7oOv/5LPfU2xD2rw6YeFWFE9lbtNLr4E="
	pkg := fstest.MapFS{"b": {Data: []byte("two")}, "a/c": {Data: []byte("one")}}
	if got, err := archive.HashPackage(pkg); err != nil || got != want {
		t.Errorf("HashPackage() = %s, %v, want %s", got, err, want)
	}
	// An engine hashes what it unpacked, so directories do not count.
	packed := zipOf(t, "a/", "", "b", "two", "a/c", "one")
	if got, err := archive.HashZip(bytes.NewReader(packed), int64(len(packed))); err != nil || got != want {
		t.Errorf("HashZip() = %s, %v, want %s", got, err, want)
	}
	pkg["a/link"] = &fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte("c")}
	if got, err := archive.HashPackage(pkg); err == nil {
		t.Errorf("HashPackage() with a link = %s, want an error", got)
	}
}

func TestHashZipRefuses(t *testing.T) {
	good := zipOf(t, "a", strings.Repeat("x", 100))
	// The list of files says how large a file is: here, that it is larger than all
	// packages may be.
	bomb := bytes.Clone(good)
	header := bytes.Index(bomb, []byte("PK\x01\x02"))
	copy(bomb[header+24:], []byte{0xfe, 0xff, 0xff, 0xff})
	var many []string
	for i := range 10_001 {
		many = append(many, fmt.Sprint(i), "")
	}
	for name, text := range map[string][]byte{
		"text":                       []byte("<html>not found</html>"),
		"nothing":                    nil,
		"an archive cut off":         good[:len(good)-10],
		"a size that is not true":    bomb,
		"a name that is there twice": zipOf(t, "a", "x", "a", "y"),
		"too many files":             zipOf(t, many...),
	} {
		if got, err := archive.HashZip(bytes.NewReader(text), int64(len(text))); err == nil {
			t.Errorf("%s: HashZip() = %s, want an error", name, got)
		}
	}
}

// zipOf packs files, named and filled in turns.
func zipOf(t testing.TB, files ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	var errs []error
	for i := 0; i < len(files); i += 2 {
		w, err := z.Create(files[i])
		if err == nil {
			_, err = w.Write([]byte(files[i+1]))
		}
		errs = append(errs, err)
	}
	if err := errors.Join(append(errs, z.Close())...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
