package disk

import (
	"os"
	"path/filepath"
	"testing"
)

// A run that died held space. It is freed, so that what is written of the run then does
// not meet a full disk.
func TestTheSpaceOfADeadRunIsFreed(t *testing.T) {
	dir := t.TempDir()
	space, err := NewReserve(dir, 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	if space == nil {
		t.Skip("the file system sets no space aside")
	}
	report := filepath.Join(dir, "run.json")
	if err := os.WriteFile(report, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // it can be repeated
		if err := ReleaseReserve(dir); err != nil {
			t.Fatal(err)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 || left[0].Name() != "run.json" {
		t.Errorf("the directory has %v (%v), want the report alone", left, err)
	}
}
