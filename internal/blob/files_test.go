package blob_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/blob/blobtest"
	"github.com/terrier-iac/terrier/internal/fault"
)

const limit = 4 << 20

func files(t *testing.T, dir string) *blob.Files {
	t.Helper()
	f, err := blob.OpenFiles(dir, limit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func TestFiles(t *testing.T) {
	blobtest.Run(t, func(t *testing.T) blob.Store { return files(t, t.TempDir()) })
}

func TestFilesAreTheirOwnersOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "blobs")
	f := files(t, dir)
	blobtest.Put(t, f, "a/b/c", []byte("x"))
	for path, want := range map[string]os.FileMode{"": 0o700, "a": 0o700, "a/b": 0o700, "a/b/c~": 0o600} {
		info, err := os.Stat(filepath.Join(dir, path))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%q has mode %v (%v), want %v", path, info.Mode(), err, want)
		}
	}
}

func TestEmptyDirectoriesGo(t *testing.T) {
	dir := t.TempDir()
	f := files(t, dir)
	blobtest.Put(t, f, "runs/1/log", nil)
	blobtest.Put(t, f, "runs/2/log", nil)
	for _, key := range []string{"runs/1/log", "runs/2/log"} {
		if err := f.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "runs")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory runs is still there (%v)", err)
	}
}

func TestFilesHaveALimit(t *testing.T) {
	f := files(t, t.TempDir())
	blobtest.Put(t, f, "a", bytes.Repeat([]byte("x"), limit))
	err := f.Put(t.Context(), "a", io.LimitReader(zeros{}, limit+1))
	if fault.Of(err) != fault.Invalid || fault.Reason(err, "") != blob.TooLarge {
		t.Errorf("Put() of one byte too many = %v, want %s", err, blob.TooLarge)
	}
	if got := blobtest.Get(t, f, "a"); len(got) != limit || got[0] != 'x' {
		t.Errorf("after it: %d bytes, want the old value", len(got))
	}
	if _, err := blob.OpenFiles(t.TempDir(), 0); err == nil {
		t.Error("OpenFiles() without a limit is accepted")
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// A planted link does not lead out of the directory.
func TestLinksAreNotFollowedOut(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	f := files(t, dir)
	if err := os.WriteFile(filepath.Join(outside, "secret~"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	if got, err := blobtest.Read(t.Context(), f, "out/secret"); err == nil {
		t.Errorf("Get() through a link = %q, want an error", got)
	}
	if err := f.Put(t.Context(), "out/planted", strings.NewReader("x")); err == nil {
		t.Error("Put() through a link is accepted")
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
		t.Errorf("outside holds %v (%v), want what was there", entries, err)
	}
}

// The process is killed while it writes: the old value is still there, and the
// next process clears away what was half written.
func TestAKilledPutLeavesTheOldValue(t *testing.T) {
	const child = "TERRIER_TEST_BLOB_DIR"
	if dir := os.Getenv(child); dir != "" {
		f, err := blob.OpenFiles(dir, limit)
		if err != nil {
			t.Fatal(err)
		}
		// The parent hears of it once a megabyte is read, and kills.
		err = f.Put(t.Context(), "a", io.MultiReader(io.LimitReader(zeros{}, 1<<20), announce{}))
		t.Fatalf("Put() returned: %v", err)
	}
	dir := t.TempDir()
	f := files(t, dir)
	blobtest.Put(t, f, "a", []byte("old"))

	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAKilledPutLeavesTheOldValue$")
	cmd.Env = append(os.Environ(), child+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len(halfway))); err != nil {
		t.Errorf("waiting for the child: %v", err)
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Fatal("the child ended by itself")
	}

	partial := filepath.Join(dir, ".partial")
	if entries, err := os.ReadDir(partial); err != nil || len(entries) != 1 {
		t.Fatalf("%v is half written (%v), want one file: the child was killed too late or too early", entries, err)
	}
	f = files(t, dir)
	if got := string(blobtest.Get(t, f, "a")); got != "old" {
		t.Errorf("Get() = %d bytes, want the old value", len(got))
	}
	if entries, err := os.ReadDir(partial); err != nil || len(entries) != 0 {
		t.Errorf("%v is still half written (%v), want it cleared", entries, err)
	}
}

// What another program left among the values that are being written stops nothing.
func TestAForeignEntryStaysHalfWritten(t *testing.T) {
	dir := t.TempDir()
	foreign := filepath.Join(dir, ".partial", "foreign", "below")
	if err := os.MkdirAll(foreign, 0o700); err != nil {
		t.Fatal(err)
	}
	f := files(t, dir)
	blobtest.Put(t, f, "a", []byte("value"))
	if got := string(blobtest.Get(t, f, "a")); got != "value" {
		t.Errorf("Get() = %q", got)
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Errorf("what is not ours was removed: %v", err)
	}
}

const halfway = "halfway\n"

// announce says that it is read, and then keeps the reader waiting for ever.
type announce struct{}

func (announce) Read([]byte) (int, error) {
	if _, err := os.Stdout.WriteString(halfway); err != nil {
		return 0, err
	}
	select {}
}

// A directory that was removed has no values, which does not mean that there are
// none. The error names its path. Once the directory exists again, it is used
// without a restart.
func TestARemovedDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "records")
	f := files(t, dir)
	put := func(key, value string) error { return f.Put(t.Context(), key, strings.NewReader(value)) }
	get := func(key string) (string, error) {
		r, err := f.Get(t.Context(), key)
		if err != nil {
			return "", err
		}
		defer r.Close()
		b, err := io.ReadAll(r)
		return string(b), err
	}
	if err := put("stacks/1/state", "one"); err != nil {
		t.Fatal(err)
	}
	away := dir + ".away"
	for _, take := range []struct {
		name string
		do   func() error
	}{
		{"moved", func() error { return os.Rename(dir, away) }},
		{"removed", func() error { return os.RemoveAll(dir) }},
	} {
		if err := take.do(); err != nil {
			t.Fatal(err)
		}
		_, errGet := get("stacks/1/state")
		_, errList := f.List(t.Context(), "stacks/")
		for what, err := range map[string]error{
			"Get": errGet, "List": errList, "Put": put("stacks/2/state", "two"), "Delete": f.Delete(t.Context(), "stacks/1/state"),
		} {
			if fault.Reason(err, "") != blob.Gone || fault.Of(err) != fault.Later || !strings.Contains(err.Error(), dir) {
				t.Errorf("%s in a directory that was %s = %v, want that %s is gone", what, take.name, err, dir)
			}
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := get("stacks/1/state"); fault.Of(err) != fault.Missing {
			t.Errorf("Get() in a new one = %v, want the value missing", err)
		}
		if err := put("stacks/2/state", "two"); err != nil {
			t.Errorf("Put() in a new one = %v", err)
		}
	}

	if err := errors.Join(os.RemoveAll(dir), os.Rename(away, dir)); err != nil {
		t.Fatal(err)
	}
	if got, err := get("stacks/1/state"); got != "one" || err != nil {
		t.Errorf("once it was put back Get() = %q, %v", got, err)
	}
	if keys, err := f.List(t.Context(), ""); len(keys) != 1 || err != nil {
		t.Errorf("once it was put back List() = %q, %v", keys, err)
	}
	if err := os.RemoveAll(filepath.Join(dir, ".partial")); err != nil {
		t.Fatal(err)
	}
	if err := put("stacks/3/state", "three"); err != nil {
		t.Errorf("Put() after somebody tidied up = %v", err)
	}
}
