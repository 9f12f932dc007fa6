package disk

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWatchTells(t *testing.T) {
	for name, clock := range map[string]bool{"by the kernel": false, "by the clock": true} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f")
			f, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			w := NewWatch(path)
			if clock {
				_ = w.events.Close()
				w.events = nil
			}
			if _, err := f.WriteString("x"); err != nil {
				t.Fatal(err)
			}
			if !w.Wait() {
				t.Error("Wait() = false although the file was written")
			}
			w.Close()
			if w.Wait() {
				t.Error("Wait() = true after Close()")
			}
		})
	}
}

// A file that is replaced by a rename tells the watch of its directory.
func TestWatchOfADirectory(t *testing.T) {
	dir := t.TempDir()
	w := NewWatch(dir)
	defer w.Close()
	if err := Write(filepath.Join(dir, "f"), []byte("x")); err != nil {
		t.Fatal(err)
	}
	if !w.Wait() {
		t.Error("Wait() = false although a file was made")
	}
}
