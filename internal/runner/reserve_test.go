package runner

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/runner/disk"
	"github.com/terrier-iac/terrier/internal/runner/managed"
	"github.com/terrier-iac/terrier/internal/testkit/apart"
)

// onFullDisk runs the calling test with a small disk of its own that another process
// fills whenever it has room, and returns its directory and a function that fills
// it; elsewhere it returns nothing.
func onFullDisk(t *testing.T, megabytes int) (dir string, fill func()) {
	t.Helper()
	dir = apart.Disk(t, megabytes, 0o711)
	return dir, func() { t.Helper(); occupy(t, filepath.Join(dir, "thief")) }
}

// occupy takes all room that there is, and whatever comes free until the test
// ends. It returns when there is none for the first time.
func occupy(t *testing.T, path string) {
	t.Helper()
	thief, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	full, stop := make(chan struct{}), make(chan struct{})
	var stealing, once = sync.WaitGroup{}, sync.Once{}
	stealing.Go(func() {
		page := make([]byte, 4096)
		for {
			if _, err := thief.Write(page); err != nil {
				once.Do(func() { close(full) })
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	t.Cleanup(func() { close(stop); stealing.Wait(); _ = thief.Close() })
	<-full
}

// version is a state of about this size.
func version(serial, size int) []byte {
	return fmt.Appendf(nil, `{"version":4,"lineage":"l","serial":%d,"resources":[],"check_results":"%s"}`, serial, strings.Repeat("x", size))
}

// F42: the reserved room of a run is never free for another process, so that on a
// disk that is filled at every moment the state is saved each time, whether it grows
// or shrinks, and so are events, log and report.
func TestReservedRoomStaysReserved(t *testing.T) {
	dir, fill := onFullDisk(t, 24)
	if dir == "" {
		return
	}
	const kib = 1 << 10
	first := version(1, 900*kib)
	if err := disk.Write(filepath.Join(dir, FileState), first); err != nil {
		t.Fatal(err)
	}
	space, err := disk.NewReserve(dir, len(first))
	if err != nil || space == nil {
		t.Fatalf("disk.NewReserve() = %v, %v", space, err)
	}
	j := &reportFile{dir: dir, reserve: space, report: Report{ID: "apply-1"}}
	if err := j.update(func(*Report) {}); err != nil {
		t.Fatal(err)
	}
	s, err := managed.NewStore(filepath.Join(dir, FileState), first, true, func(id StateID, _ *managed.File) {
		if err := j.update(func(r *Report) { r.State, r.Message = id, strings.Repeat("m", int(id.Serial%3)*3*kib) }); err != nil {
			t.Errorf("the report of serial %d: %v", id.Serial, err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Reserve = space
	rec, err := newRecorder(dir, 0, plan.NewRedactor(nil), nil, space)
	if err != nil {
		t.Fatal(err)
	}
	fill()

	for i, size := range []int{900, 1000, 1100, 600, 1000, 1200, 100, 1000, 1100, 1200, 900, 1200} {
		data := version(2+i, size*kib)
		if err := s.Accept(data); err != nil {
			t.Fatalf("serial %d of %d KiB: %v", 2+i, size, err)
		}
		if got, err := os.ReadFile(filepath.Join(dir, FileState)); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("serial %d of %d KiB is not what is there: %d bytes, %v", 2+i, size, len(got), err)
		}
		var kept Report
		if err := disk.ReadJSON(filepath.Join(dir, fileReport), &kept); err != nil || kept.State != j.content().State {
			t.Fatalf("after serial %d the report is of %d, %v", 2+i, kept.State.Serial, err)
		}
		rec.logf("serial %d is kept %s", 2+i, strings.Repeat(".", 10*kib))
	}
	if err := rec.close(); err != nil {
		t.Errorf("the log: %v", err)
	}
	if log, err := os.ReadFile(filepath.Join(dir, FileLog)); err != nil || bytes.Count(log, []byte("is kept")) != 12 {
		t.Errorf("the log has %d lines, %v", bytes.Count(log, []byte("is kept")), err)
	}
	space.Free()
	if left, err := filepath.Glob(filepath.Join(dir, disk.ReserveFiles+"*")); err != nil || len(left) > 0 {
		t.Errorf("%q is left, %v", left, err)
	}
}
