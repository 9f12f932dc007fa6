package archive_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/fault"
)

// entry is one entry of an archive that a test packs.
type packedEntry struct {
	name, content string
	link          bool
}

func gzipped(t *testing.T, entries ...packedEntry) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: 0o644, Size: int64(len(e.content)), Typeflag: tar.TypeReg}
		if strings.HasSuffix(e.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if e.link {
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, "/etc/passwd", 0
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := w.Write([]byte(e.content)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// plain is gzipped without the compression.
func plain(t *testing.T, entries ...packedEntry) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(gzipped(t, entries...)))
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func zipped(t *testing.T, entries ...packedEntry) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		if e.link {
			h.SetMode(fs.ModeSymlink | 0o777)
		}
		w, err := z.CreateHeader(h)
		if err == nil && e.content != "" {
			_, err = w.Write([]byte(e.content))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestInspect(t *testing.T) {
	type packer func(*testing.T, ...packedEntry) []byte
	for format, pack := range map[archive.Format]packer{archive.TarGz: gzipped, archive.PlainTar: plain, archive.Zip: zipped} {
		for name, tt := range map[string]struct {
			entries []packedEntry
			limits  archive.Limits
			want    []string
			says    string // of the error
		}{
			"files and directories":           {entries: []packedEntry{{name: "main.tf", content: "x"}, {name: "sub/"}, {name: "sub/a.tf", content: "y"}}, want: []string{"main.tf", "sub/a.tf"}},
			"a directory after its file":      {entries: []packedEntry{{name: "sub/a.tf", content: "y"}, {name: "sub/"}}, want: []string{"sub/a.tf"}},
			"names with a dot before them":    {entries: []packedEntry{{name: "./"}, {name: "./main.tf", content: "x"}}, want: []string{"main.tf"}},
			"an empty file":                   {entries: []packedEntry{{name: "main.tf"}}, want: []string{"main.tf"}},
			"a name that leads up":            {entries: []packedEntry{{name: "../main.tf", content: "x"}}, says: "does not stay below the root"},
			"an absolute name":                {entries: []packedEntry{{name: "/main.tf", content: "x"}}, says: "does not stay below the root"},
			"a symbolic link":                 {entries: []packedEntry{{name: "main.tf", link: true}}, says: "only directories and regular files"},
			"a name that occurs twice":        {entries: []packedEntry{{name: "main.tf", content: "x"}, {name: "./main.tf", content: "y"}}, says: "occurs twice"},
			"a file below a file":             {entries: []packedEntry{{name: "a", content: "x"}, {name: "a/b", content: "y"}}, says: `"a" is a file`},
			"a file in place of a directory":  {entries: []packedEntry{{name: "a/b", content: "x"}, {name: "a", content: "y"}}, says: "occurs twice"},
			"more files than allowed":         {entries: []packedEntry{{name: "a"}, {name: "b"}, {name: "c"}}, limits: archive.Limits{Entries: 2}, says: "more than 2 files"},
			"more directories than allowed":   {entries: []packedEntry{{name: "a/b/c"}}, limits: archive.Limits{Entries: 2}, says: "more than 2 files"},
			"a file larger than allowed":      {entries: []packedEntry{{name: "a", content: "xxxx"}}, limits: archive.Limits{File: 3}, says: "larger than 3 bytes"},
			"all files larger than allowed":   {entries: []packedEntry{{name: "a", content: "xx"}, {name: "b", content: "xx"}}, limits: archive.Limits{Bytes: 3}, says: "larger than 3 bytes"},
			"directories deeper than allowed": {entries: []packedEntry{{name: "a/b/c/d"}}, limits: archive.Limits{Depth: 2}, says: "nested more than 2"},
		} {
			t.Run(string(format)+" "+name, func(t *testing.T) {
				data := pack(t, tt.entries...)
				got, files, err := archive.Inspect(bytes.NewReader(data), int64(len(data)), tt.limits)
				if tt.says != "" {
					if fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), tt.says) {
						t.Fatalf("Inspect() = %v, %v, want an error that says %q", files, err, tt.says)
					}
					if err := archive.ToZip(bytes.NewReader(data), int64(len(data)), io.Discard, tt.limits); fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), tt.says) {
						t.Fatalf("ToZip() = %v, want an error that says %q", err, tt.says)
					}
					return
				}
				if err != nil || got != format || !slices.Equal(files, tt.want) {
					t.Errorf("Inspect() = %s %v, %v, want %s %v", got, files, err, format, tt.want)
				}
				var zip bytes.Buffer
				if err := archive.ToZip(bytes.NewReader(data), int64(len(data)), &zip, tt.limits); err != nil {
					t.Fatal(err)
				}
				if got, files, err := archive.Inspect(bytes.NewReader(zip.Bytes()), int64(zip.Len()), tt.limits); err != nil || got != archive.Zip || !slices.Equal(files, tt.want) {
					t.Errorf("ToZip() makes %s %v, %v, want %v", got, files, err, tt.want)
				}
			})
		}
	}
}

func TestInspectRefusesADamagedArchive(t *testing.T) {
	content := strings.Repeat("resource ", 1000)
	for name, data := range map[string][]byte{"tar.gz": gzipped(t, packedEntry{name: "main.tf", content: content}), "zip": zipped(t, packedEntry{name: "main.tf", content: content})} {
		for what, broken := range map[string][]byte{
			"cut off": data[:len(data)/2],
			"changed": append(append(bytes.Clone(data[:40]), data[40]^0xff), data[41:]...),
			"empty":   nil,
			"a page":  []byte("<html>not found</html>"),
			"a tar":   make([]byte, 1024),
		} {
			if _, files, err := archive.Inspect(bytes.NewReader(broken), int64(len(broken)), archive.Limits{}); fault.Of(err) != fault.Invalid {
				t.Errorf("Inspect() of a %s that is %s = %v, %v, want Invalid", name, what, files, err)
			}
		}
	}
}

// fullDisk takes no more than so many bytes.
type fullDisk int

var errFull = errors.New("no space left on device")

func (f *fullDisk) Write(p []byte) (int, error) {
	if *f -= fullDisk(len(p)); *f < 0 {
		return 0, errFull
	}
	return len(p), nil
}

// A disk that is full is not the fault of the archive.
func TestToZipOnAFullDisk(t *testing.T) {
	data := gzipped(t, packedEntry{name: "main.tf", content: strings.Repeat("resource ", 10_000)})
	for _, room := range []fullDisk{0, 10, 50_000, 90_050} {
		if err := archive.ToZip(bytes.NewReader(data), int64(len(data)), &room, archive.Limits{}); !errors.Is(err, errFull) || fault.Of(err) == fault.Invalid {
			t.Errorf("ToZip() = %v, want that the disk is full", err)
		}
	}
}
