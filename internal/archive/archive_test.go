package archive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/terrier-iac/terrier/internal/fault"
)

// entry is one entry of an archive under test.
type entry struct {
	name, content string
	kind          byte
	link          string
	mode          int64
	size          int64 // claimed; 0 means that of the content
}

func tarOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Linkname: e.link, Mode: e.mode, Size: int64(len(e.content))}
		if e.kind == 0 {
			h.Typeflag = tar.TypeReg
		}
		if e.size != 0 {
			h.Size = e.size
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil && !errors.Is(err, tar.ErrWriteTooLong) {
		// A claimed size that is larger than the content cannot be flushed;
		// the archive then ends in the middle, as intended.
		return b.Bytes()
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipOf(t testing.TB, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// tree returns what is below dir: contents of files, "dir" for directories,
// "-> target" for links, with an "x " in front of what may be executed.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	got := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		name, _ := filepath.Rel(dir, p)
		switch d.Type() {
		case fs.ModeDir:
			got[name] = "dir"
		case fs.ModeSymlink:
			target, err := os.Readlink(p)
			got[name] = "-> " + target
			return err
		default:
			content, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			got[name] = string(content)
			if info.Mode()&0o111 != 0 {
				got[name] = "x " + got[name]
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestExtract(t *testing.T) {
	entries := tarOf(t,
		entry{kind: tar.TypeXGlobalHeader, name: "pax_global_header"},
		entry{name: "./", kind: tar.TypeDir, mode: 0o700},
		entry{name: "./main.tf", content: "a", mode: 0o4755},
		entry{name: "modules/net/main.tf", content: "b", mode: 0o600},
		entry{name: "modules/", kind: tar.TypeDir},
		entry{name: "empty/", kind: tar.TypeDir},
	)
	want := map[string]string{
		"main.tf": "x a", "modules": "dir", "modules/net": "dir", "modules/net/main.tf": "b", "empty": "dir",
	}
	for name, archive := range map[string][]byte{"tar": entries, "tar.gz": gzipOf(t, entries)} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := Extract(bytes.NewReader(archive), dir, Limits{}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, tree(t, dir)); diff != "" {
				t.Errorf("the tree differs (-want +got):\n%s", diff)
			}
			info, err := os.Stat(filepath.Join(dir, "main.tf"))
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode()&(fs.ModeSetuid|0o022) != 0 {
				t.Errorf("main.tf has mode %v, want neither setuid nor writable by others", info.Mode())
			}
		})
	}
}

func TestExtractRefuses(t *testing.T) {
	small := Limits{Entries: 8, Bytes: 4096, File: 2048, Depth: 4}
	deep := strings.Repeat("d/", 5) + "f"
	many := make([]entry, 9)
	for i := range many {
		many[i] = entry{name: string(rune('a' + i))}
	}
	zeros := strings.Repeat("\x00", 2048)
	valid := tarOf(t, entry{name: "a", content: zeros})
	flipped := gzipOf(t, valid)
	flipped[len(flipped)-5] ^= 1 // in the checksum
	headers := bytes.Repeat(tarOf(t, entry{kind: tar.TypeXGlobalHeader, name: "g"})[:1024], 200)

	for name, archive := range map[string][]byte{
		"a name that goes up":                         tarOf(t, entry{name: "../evil"}),
		"a name that goes up in its middle":           tarOf(t, entry{name: "a/../../evil"}),
		"a name that goes up and comes back":          tarOf(t, entry{name: "a/../b"}),
		"an absolute name":                            tarOf(t, entry{name: "/tmp/evil"}),
		"an absolute directory":                       tarOf(t, entry{name: "/evil/", kind: tar.TypeDir}),
		"an empty name":                               tarOf(t, entry{name: ""}),
		"control characters in a name":                tarOf(t, entry{name: "a\x1b[2Jb"}),
		"a part of a name that no file system takes":  tarOf(t, entry{name: strings.Repeat("n", 256)}),
		"a symbolic link":                             tarOf(t, entry{name: "l", kind: tar.TypeSymlink, link: "a"}),
		"a symbolic link and a file through it":       tarOf(t, entry{name: "l", kind: tar.TypeSymlink, link: "/tmp"}, entry{name: "l/evil"}),
		"a hard link":                                 tarOf(t, entry{name: "l", kind: tar.TypeLink, link: "/etc/passwd"}),
		"a character device":                          tarOf(t, entry{name: "null", kind: tar.TypeChar}),
		"a block device":                              tarOf(t, entry{name: "sda", kind: tar.TypeBlock}),
		"a named pipe":                                tarOf(t, entry{name: "pipe", kind: tar.TypeFifo}),
		"a file twice":                                tarOf(t, entry{name: "a", content: "1"}, entry{name: "./a", content: "2"}),
		"a directory twice":                           tarOf(t, entry{name: "a/", kind: tar.TypeDir}, entry{name: "a/", kind: tar.TypeDir}),
		"a file where a directory is":                 tarOf(t, entry{name: "a/b"}, entry{name: "a"}),
		"a directory where a file is":                 tarOf(t, entry{name: "a"}, entry{name: "a/b"}),
		"a file that is the root":                     tarOf(t, entry{name: "."}),
		"too many entries":                            tarOf(t, many...),
		"too many implied directories":                tarOf(t, entry{name: "a/b/c/f"}, entry{name: "d/e/f/g"}, entry{name: "h"}),
		"too deep":                                    tarOf(t, entry{name: deep}),
		"a file that is too large":                    tarOf(t, entry{name: "a", content: zeros + "x"}),
		"a file that claims to be too large":          tarOf(t, entry{name: "a", size: 1 << 40}),
		"files that are too large together":           tarOf(t, entry{name: "a", content: zeros}, entry{name: "b", content: zeros}, entry{name: "c", content: "x"}),
		"a small archive that unpacks to a large one": gzipOf(t, tarOf(t, entry{name: "a", content: strings.Repeat("\x00", 10<<20)})),
		"a tail that unpacks to a large one":          gzipOf(t, append(bytes.Clone(valid), make([]byte, 10<<20)...)),
		"nothing but headers":                         gzipOf(t, headers),
		"a cut tar stream":                            valid[:1000],
		"a cut gzip stream":                           gzipOf(t, valid)[:20],
		"a wrong checksum":                            flipped,
		"no archive at all":                           []byte(strings.Repeat("<html>", 200)),
		"a gzip header and nothing more":              {0x1f, 0x8b},
	} {
		t.Run(name, func(t *testing.T) {
			outer := t.TempDir()
			dir := filepath.Join(outer, "in", "root")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			err := Extract(bytes.NewReader(archive), dir, small)
			if got := fault.Of(err); got != fault.Invalid {
				t.Errorf("Extract() = %v, of kind %q, want Invalid", err, got)
			}
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(map[string]string{"in": "dir"}, tree(t, outer)); diff != "" {
				t.Errorf("something outside the root changed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExtractFollowsNoPlantedLink(t *testing.T) {
	outside := t.TempDir()
	for name, archive := range map[string][]byte{
		"through a link to a directory": tarOf(t, entry{name: "link/evil", content: "x"}),
		"over a link to a file":         tarOf(t, entry{name: "file", content: "x"}),
		"a directory over a link":       tarOf(t, entry{name: "link/", kind: tar.TypeDir}),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for link, target := range map[string]string{"link": outside, "file": filepath.Join(outside, "evil")} {
				if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
					t.Fatal(err)
				}
			}
			if err := Extract(bytes.NewReader(archive), dir, Limits{}); fault.Of(err) != fault.Invalid {
				t.Errorf("Extract() = %v, want an Invalid fault", err)
			}
			if got := tree(t, outside); len(got) != 0 {
				t.Errorf("written through the link: %v", got)
			}
		})
	}
}

func TestTreeRefuses(t *testing.T) {
	outside := t.TempDir()
	for name, use := range map[string]func(*Tree) error{
		"a file through a link of its own": func(tree *Tree) error {
			return errors.Join(tree.Symlink("l", outside), tree.Write("l/evil", false, 1, strings.NewReader("x")))
		},
		"a link through a link": func(tree *Tree) error {
			return errors.Join(tree.Symlink("l", outside), tree.Symlink("l/evil", "x"))
		},
		"a file over a link": func(tree *Tree) error {
			return errors.Join(tree.Symlink("l", filepath.Join(outside, "evil")), tree.Write("l", false, 1, strings.NewReader("x")))
		},
		"a link outside":                   func(tree *Tree) error { return tree.Symlink("../l", "x") },
		"a file that is longer than said":  func(tree *Tree) error { return tree.Write("f", false, 1, strings.NewReader("xx")) },
		"a file that is shorter than said": func(tree *Tree) error { return tree.Write("f", false, 2, strings.NewReader("x")) },
		"the root as a file":               func(tree *Tree) error { return tree.Write(".", false, 0, strings.NewReader("")) },
	} {
		t.Run(name, func(t *testing.T) {
			tree, err := NewTree(t.TempDir(), Limits{})
			if err != nil {
				t.Fatal(err)
			}
			defer tree.Close()
			if err := use(tree); fault.Of(err) != fault.Invalid {
				t.Errorf("got %v, want an Invalid fault", err)
			}
		})
	}
	if got := tree(t, outside); len(got) != 0 {
		t.Errorf("written outside: %v", got)
	}
}

func TestExtractBlamesTheReader(t *testing.T) {
	archive := gzipOf(t, tarOf(t, entry{name: "a", content: strings.Repeat("text ", 1000)}))
	broken := io.MultiReader(bytes.NewReader(archive[:len(archive)/2]), iotest.ErrReader(os.ErrDeadlineExceeded))
	err := Extract(broken, t.TempDir(), Limits{})
	if !errors.Is(err, os.ErrDeadlineExceeded) || fault.Of(err) != fault.Broken {
		t.Errorf("Extract() = %v, of kind %q, want the reader's error, Broken", err, fault.Of(err))
	}
}

// FuzzExtract lets any archive loose on a root and looks at everything around
// it afterwards.
func FuzzExtract(f *testing.F) {
	for _, seed := range [][]byte{
		tarOf(f, entry{name: "a/b", content: "x"}),
		gzipOf(f, tarOf(f, entry{name: "a/b", content: "x"}, entry{name: "c/", kind: tar.TypeDir})),
		tarOf(f, entry{name: "../canary", content: "x"}),
		tarOf(f, entry{name: "a/../../canary", content: "x"}),
		tarOf(f, entry{name: "l", kind: tar.TypeSymlink, link: ".."}, entry{name: "l/canary", content: "x"}),
		tarOf(f, entry{name: "planted/canary", content: "x"}),
		tarOf(f, entry{name: "l", kind: tar.TypeLink, link: "../canary"}, entry{name: "l", content: "x"}),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, archive []byte) {
		outer := t.TempDir()
		root := filepath.Join(outer, "root")
		canary := filepath.Join(outer, "canary")
		if err := errors.Join(os.Mkdir(root, 0o755), os.WriteFile(canary, []byte("sings"), 0o644), os.Symlink("..", filepath.Join(root, "planted"))); err != nil {
			t.Fatal(err)
		}
		limits := Limits{Entries: 50, Bytes: 1 << 16, File: 1 << 15, Depth: 8}
		err := Extract(bytes.NewReader(archive), root, limits)
		if got := fault.Of(err); err != nil && got != fault.Invalid {
			t.Errorf("Extract() = %v, of kind %q, want Invalid", err, got)
		}
		inside := tree(t, root)
		if len(inside) > limits.Entries+1 {
			t.Errorf("%d entries were made, want at most %d", len(inside), limits.Entries)
		}
		if err := os.RemoveAll(root); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]string{"canary": "sings"}, tree(t, outer)); diff != "" {
			t.Errorf("something outside the root changed (-want +got):\n%s", diff)
		}
	})
}
