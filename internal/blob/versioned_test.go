package blob_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/blob/blobtest"
	"github.com/terrier-iac/terrier/internal/fault"
)

func versioned(t *testing.T, dir string, limit int64) *blob.VersionedFiles {
	t.Helper()
	f, err := blob.OpenVersionedFiles(dir, limit)
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

func TestVersionedFiles(t *testing.T) {
	blobtest.RunVersions(t, func(t *testing.T) blob.Versions { return versioned(t, t.TempDir(), limit) })
}

// A version is the same after a restart, and tells values of one size and one time apart,
// whether they are small or large.
func TestVersionsOfFiles(t *testing.T) {
	for name, size := range map[string]int{"small": 3, "large": 9 << 20} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			f := versioned(t, dir, 10<<20)
			first := blobtest.Replace(t, f, "a", blob.None, bytes.Repeat([]byte("1"), size))
			again := versioned(t, dir, 10<<20)
			if v := blobtest.Open(t, again, "a"); v.Version != first || v.Size != int64(size) {
				t.Errorf("after a restart the version is %q and the size %d, want %q and %d", v.Version, v.Size, first, size)
			}
			at := time.Unix(1_000_000_000, 0)
			if err := os.Chtimes(filepath.Join(dir, "a~"), at, at); err != nil {
				t.Fatal(err)
			}
			first = blobtest.Open(t, f, "a").Version
			second := blobtest.Replace(t, f, "a", first, bytes.Repeat([]byte("2"), size))
			if err := os.Chtimes(filepath.Join(dir, "a~"), at, at); err != nil {
				t.Fatal(err)
			}
			now := blobtest.Open(t, f, "a").Version
			if now == first || second == first {
				t.Errorf("another value of the same size and time has the version %q, too", now)
			}
			if _, err := f.Replace(t.Context(), "a", first, strings.NewReader("3")); fault.Reason(err, "") != blob.Changed {
				t.Errorf("Replace() of the first value = %v, want %s", err, blob.Changed)
			}
			blobtest.Replace(t, again, "a", now, []byte("3"))
		})
	}
}

// Several processes count up one number, and each increment is there at the end.
func TestProcessesUpdateOneFile(t *testing.T) {
	const child = "TERRIER_TEST_BLOB_COUNT"
	const processes, each = 3, 20
	count := func(dir string) {
		f := versioned(t, dir, limit)
		for range each {
			if err := blobtest.Increment(t.Context(), f, "dir/count"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if dir := os.Getenv(child); dir != "" {
		count(dir)
		return
	}
	dir := t.TempDir()
	var group sync.WaitGroup
	for range processes - 1 {
		group.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProcessesUpdateOneFile$")
			cmd.Env = append(os.Environ(), child+"="+dir)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	count(dir)
	group.Wait()
	if got := string(blobtest.Get(t, versioned(t, dir, limit), "dir/count")); got != strconv.Itoa(processes*each) {
		t.Errorf("after %d increments the count is %s", processes*each, got)
	}
}

// A writer waits while another process has the lock of its key, and no longer than its
// context. Reading waits for no lock. A lock whose file was removed is no lock.
func TestLocksOfVersions(t *testing.T) {
	dir := t.TempDir()
	f := versioned(t, dir, limit)
	version := blobtest.Replace(t, f, "a", blob.None, []byte("old"))
	names, err := filepath.Glob(filepath.Join(dir, ".lock", "*"))
	if err != nil || len(names) != 1 {
		t.Fatalf("the locks are %v, %v, want that of the key", names, err)
	}
	other, err := os.OpenFile(names[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := syscall.Flock(int(other.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	for what, write := range map[string]func(context.Context) error{
		"Replace": func(ctx context.Context) error {
			_, err := f.Replace(ctx, "a", version, strings.NewReader("new"))
			return err
		},
		"Put":    func(ctx context.Context) error { return f.Put(ctx, "a", strings.NewReader("new")) },
		"Delete": func(ctx context.Context) error { return f.Delete(ctx, "a") },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := write(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s() while another process has the lock = %v, want that of the context", what, err)
		}
		cancel()
	}
	if got := string(blobtest.Get(t, f, "a")); got != "old" || blobtest.Open(t, f, "a").Version != version {
		t.Errorf("after it the value is %q, want the old one", got)
	}
	if entries, err := os.ReadDir(filepath.Join(dir, ".partial")); err != nil || len(entries) > 0 {
		t.Errorf("%v is half written, %v, want nothing", entries, err)
	}
	if keys, err := f.List(t.Context(), ""); err != nil || len(keys) != 1 {
		t.Errorf("List() = %v, %v, want the value alone", keys, err)
	}
	if err := os.RemoveAll(filepath.Join(dir, ".lock")); err != nil {
		t.Fatal(err)
	}
	blobtest.Replace(t, f, "a", version, []byte("new"))
}
