package blob

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A file system without locks is told from a file that another process has locked:
// waiting for that process would never end.
func TestLocksThatFail(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	open := func() *os.File {
		f, err := os.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	first, second := open(), open()
	if ok, err := locked(first); !ok || err != nil {
		t.Errorf("locked() = %v, %v, want the lock", ok, err)
	}
	if ok, err := locked(second); ok || err != nil {
		t.Errorf("locked() of a file that is locked = %v, %v, want neither the lock nor an error", ok, err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if ok, err := locked(second); ok || !errors.Is(err, syscall.EBADF) || !strings.Contains(err.Error(), "flock") {
		t.Errorf("locked() of a file that cannot be locked = %v, %v, want why", ok, err)
	}
}

// Making a file for a value ends with the context.
func TestPartialFilesEndWithTheContext(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, name, err := createPartial(ctx, root); !errors.Is(err, context.Canceled) {
		t.Errorf("createPartial() = %s, %v, want that of the context", name, err)
	}
}
