package inspect

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry"
	"github.com/terrier-iac/terrier/internal/registry/room"
)

var network = map[string]string{
	"README.md":                  "# Network\n",
	"main.tf":                    `variable "cidr" {}`,
	"modules/subnet/main.tf":     `output "id" { value = 1 }`,
	"modules/subnet/README.md":   "A subnet.",
	"modules/notes/README.md":    "No configuration is here.",
	"examples/basic/main.tf":     `module "network" { source = "../.." }`,
	"examples/basic/outputs.tf":  `output "x" { value = 1 }`,
	"examples/basic/secrets.pem": "not shown",
	"internal/main.tf":           `variable "not_a_submodule" {}`,
}

func tarGz(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	zipped := gzip.NewWriter(&b)
	w := tar.NewWriter(zipped)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(files[name])), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, files[name]); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zipped(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f, err := w.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(f, files[name]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// stand is a registry in a directory, and a reader of its modules.
type stand struct {
	t        *testing.T
	store    blob.Versions
	registry *registry.Registry
	reader   *Reader
	now      time.Time
}

func newStand(t *testing.T) *stand {
	t.Helper()
	store, err := blob.OpenVersionedFiles(t.TempDir(), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	s := &stand{t: t, store: store, registry: registry.New(store, registry.Options{Scratch: t.TempDir()}), now: time.Now()}
	scratch := t.TempDir()
	s.reader = NewReader(s.registry, scratch, room.Of(scratch), func() time.Time { return s.now })
	return s
}

// stored puts an archive into the store as another program would, which checks nothing.
func (s *stand) stored(name, ending string, content []byte) (address.Module, registry.ModuleVersion) {
	s.t.Helper()
	m := address.Module{Namespace: "net", Name: name, System: "aws"}
	if err := s.store.Put(s.t.Context(), registry.ModuleKey(m, "net-"+name+"-aws-1.0.0"+ending), bytes.NewReader(content)); err != nil {
		s.t.Fatal(err)
	}
	v, err := s.registry.ModuleVersion(s.t.Context(), m, "1.0.0")
	if err != nil {
		s.t.Fatal(err)
	}
	return m, v
}

func TestDocumentationOfAnArchive(t *testing.T) {
	for ending, pack := range map[string]func(*testing.T, map[string]string) []byte{".tar.gz": tarGz, ".zip": zipped} {
		t.Run(ending, func(t *testing.T) {
			s := newStand(t)
			m := address.Module{Namespace: "net", Name: "network", System: "aws"}
			v, err := s.registry.PublishModule(t.Context(), m, "1.0.0", registry.Upload{By: "ann", Content: bytes.NewReader(pack(t, network))})
			if err != nil {
				t.Fatal(err)
			}
			got, err := s.reader.Module(t.Context(), m, v)
			if err != nil {
				t.Fatal(err)
			}
			if got.Root.Readme != "# Network\n" || len(got.Root.Inputs) != 1 || got.Root.Inputs[0].Name != "cidr" || got.Root.Problem != "" {
				t.Errorf("the module is %+v", got.Root)
			}
			if len(got.Submodules) != 1 || got.Submodules[0].Path != "modules/subnet" || len(got.Submodules[0].Outputs) != 1 || got.Submodules[0].Readme != "A subnet." {
				t.Errorf("the submodules are %+v", got.Submodules)
			}
			if len(got.Examples) != 1 || len(got.Examples[0].Files) != 2 || got.Examples[0].Files[0] != (File{"main.tf", network["examples/basic/main.tf"]}) {
				t.Errorf("the examples are %+v", got.Examples)
			}

			// An archive is read once: what was made of it stays, also if the archive is gone.
			if err := s.store.Delete(t.Context(), registry.ModuleKey(m, v.File)); err != nil {
				t.Fatal(err)
			}
			if again, err := s.reader.Module(t.Context(), m, v); err != nil || again.Root.Readme != got.Root.Readme {
				t.Errorf("the second time it is %+v, %v", again, err)
			}
		})
	}
}

// A hostile archive has one clear error in the place of its documentation, which stays, and
// the next module has its own.
func TestHostileArchives(t *testing.T) {
	many := map[string]string{}
	for i := range 60_000 {
		many[fmt.Sprintf("f%d.tf", i)] = ""
	}
	for name, tt := range map[string]struct {
		ending  string
		content func(*testing.T) []byte
		says    string
	}{
		"a zip bomb": {".zip", func(t *testing.T) []byte {
			return zipped(t, map[string]string{"main.tf": strings.Repeat("\x00", 3<<20)})
		}, "larger than"},
		"a bomb of many files": {".tar.gz", func(t *testing.T) []byte {
			return tarGz(t, map[string]string{"a.bin": strings.Repeat("\x00", 3<<19), "b.bin": strings.Repeat("\x00", 3<<19), "c.bin": strings.Repeat("\x00", 3<<19)})
		}, "larger than"},
		"60,000 files":          {".tar.gz", func(t *testing.T) []byte { return tarGz(t, many) }, "more than 50000 files"},
		"a name that leads out": {".tar.gz", func(t *testing.T) []byte { return tarGz(t, map[string]string{"../../etc/main.tf": "x"}) }, "below the root"},
		"deep directories": {".tar.gz", func(t *testing.T) []byte {
			return tarGz(t, map[string]string{strings.Repeat("d/", 200) + "main.tf": "x"})
		}, "nested"},
		"one that is cut off":       {".tar.gz", func(t *testing.T) []byte { b := tarGz(t, network); return b[:len(b)/2] }, "reading the archive"},
		"no archive at all":         {".zip", func(*testing.T) []byte { return []byte("hello") }, "neither a zip archive"},
		"a format that is not read": {".tar.xz", func(*testing.T) []byte { return []byte("hello") }, "published as"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t)
			s.reader.limits.unpacked = archive.Limits{Bytes: 4 << 20, File: 2 << 20}
			m, v := s.stored("hostile", tt.ending, tt.content(t))
			for range 2 {
				_, err := s.reader.Module(t.Context(), m, v)
				if fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("the error is %v, want an Invalid one that says %q", err, tt.says)
				}
			}
			m = address.Module{Namespace: "net", Name: "good", System: "aws"}
			v, err := s.registry.PublishModule(t.Context(), m, "1.0.0", registry.Upload{Content: bytes.NewReader(tarGz(t, network))})
			if err != nil {
				t.Fatal(err)
			}
			if got, err := s.reader.Module(t.Context(), m, v); err != nil || len(got.Root.Inputs) != 1 {
				t.Errorf("the next module is %+v, %v", got, err)
			}
		})
	}
}

// What is wrong with a part is said there, and the rest of the documentation stays.
func TestPartsThatCannotBeRead(t *testing.T) {
	files := maps.Clone(network)
	files["modules/deep/main.tf"] = "locals { x = " + strings.Repeat("[", 50_000) + strings.Repeat("]", 50_000) + " }"
	files["modules/large/main.tf"] = "# " + strings.Repeat("x", 2<<20)
	files["modules/latin/main.tf"], files["modules/latin/README.md"] = "variable \"x\" {}", "caf\xe9 <script>alert(1)</script>"
	for i := range 150 {
		files[fmt.Sprintf("modules/x%03d/main.tf", i)] = "# nothing"
	}
	s := newStand(t)
	m, v := s.stored("odd", ".tar.gz", tarGz(t, files))
	got, err := s.reader.Module(t.Context(), m, v)
	if err != nil || len(got.Root.Inputs) != 1 || got.Root.Problem != "" {
		t.Fatalf("the module is %+v, %v", got.Root, err)
	}
	parts := map[string]Part{}
	for _, p := range got.Submodules {
		parts[p.Path] = p
	}
	if p := parts["modules/deep"]; !strings.Contains(p.Problem, "nested") {
		t.Errorf("of nested brackets it says %q", p.Problem)
	}
	if p := parts["modules/large"]; !strings.Contains(p.Problem, "the limit is 1024 KiB") {
		t.Errorf("of a large file it says %q, in %v", p.Problem, slices.Sorted(maps.Keys(parts)))
	}
	if p := parts["modules/latin"]; p.Readme != "caf\uFFFD <script>alert(1)</script>" || len(p.Inputs) != 1 {
		t.Errorf("the text of another encoding is %+v", p)
	}
	if got.Omitted == 0 || len(got.Submodules)+len(got.Examples) != mostParts {
		t.Errorf("%d parts are documented and %d are left out", len(got.Submodules)+len(got.Examples), got.Omitted)
	}
}

// An archive that takes too long is not read at each request, and not forgotten for ever.
func TestAnArchiveThatTakesTooLong(t *testing.T) {
	s := newStand(t)
	s.reader.limits.time = time.Nanosecond
	m, v := s.stored("slow", ".tar.gz", tarGz(t, network))
	if _, err := s.reader.Module(t.Context(), m, v); fault.Of(err) != fault.Later {
		t.Fatalf("the error is %v, want a Later one", err)
	}
	s.reader.limits.time = mostTime
	if _, err := s.reader.Module(t.Context(), m, v); fault.Reason(err, "") != reasonSlow {
		t.Errorf("at once the error is %v, want the same", err)
	}
	s.now = s.now.Add(slowFor + time.Second)
	if _, err := s.reader.Module(t.Context(), m, v); err != nil {
		t.Errorf("later the error is %v, want none", err)
	}
}
