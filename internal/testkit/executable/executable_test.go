package executable

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// Programs are written and run while others are started all the time.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	var work sync.WaitGroup
	for worker := range 8 {
		work.Go(func() {
			for n := range 60 {
				path := filepath.Join(dir, fmt.Sprintf("%d-%d", worker, n))
				if err := Write(path, []byte("#!/bin/sh\nexec echo ran\n"), 0o700); err != nil {
					t.Error(err)
					return
				}
				if out, err := exec.CommandContext(t.Context(), path).CombinedOutput(); err != nil || string(out) != "ran\n" {
					t.Errorf("%s: %v: %q", path, err, out)
					return
				}
			}
		})
	}
	work.Wait()
}
