package runner

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terrier-iac/terrier/internal/runner/disk"
	"github.com/terrier-iac/terrier/internal/runner/managed"
	"github.com/terrier-iac/terrier/internal/stack"
)

// withFree calls f while the process can have this many files open beyond those that it has.
func withFree(t *testing.T, free int, f func()) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	open := map[int]bool{}
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		_, err = unix.FcntlInt(uintptr(n), unix.F_GETFD, 0)
		open[n] = err == nil // the one of this list is closed
	}
	limit := 0
	for left := free; open[limit] || left > 0; limit++ {
		if !open[limit] {
			left--
		}
	}
	now := was
	now.Cur = uint64(limit)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &now); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
	}()
	f()
}

// A process that can open no more files knows nothing of the state of a dead run. However many
// it can open, the run is over only once its state is saved, and it is saved once it can be.
func TestAStateIsNotWipedBecauseItCannotBeRead(t *testing.T) {
	for name, tt := range map[string]struct {
		placed placement
		at     func(w *workDir) string // where the engine left the state
		saved  string
	}{
		"one that a backend refused": {
			placement{Run: "r", Writes: true},
			func(w *workDir) string { return w.path(dirWork, dirTree, "mod", errored) }, FileRescue,
		},
		"one of a workspace": {
			placement{Run: "r", Writes: true, Local: true, Workspace: "prod", Lineage: "a", Serial: 5},
			func(w *workDir) string { return w.path(dirWork, dirScratch, localFile("prod")) }, FileState,
		},
	} {
		t.Run(name, func(t *testing.T) {
			failed := 0
			for free := 0; ; free++ {
				dir := t.TempDir()
				p := reopened(t, dir)
				d := newDead(t, dir, "s")
				d.work.root = "mod"
				left := tt.at(d.work)
				if err := errors.Join(os.MkdirAll(d.work.path(dirWork, dirTree, "mod"), 0o700), os.MkdirAll(filepath.Dir(left), 0o700),
					os.Remove(d.work.path(dirWork, dirTree, errored)), d.work.place(tt.placed, nil), os.WriteFile(left, stateOf("a", 7), 0o600)); err != nil {
					t.Fatal(err)
				}
				var recovering, err error
				withFree(t, free, func() {
					recovering = recoverState(d.work, filepath.Dir(d.run), dyingLimit)
				})
				if saved, missing := os.ReadFile(filepath.Join(d.run, tt.saved)); recovering == nil && !bytes.Equal(saved, stateOf("a", 7)) {
					t.Errorf("with %d files the directory may be wiped, and the state is %q, %v", free, saved, missing)
				}
				withFree(t, free, func() { _, err = p.Current("s") })
				if err != nil {
					failed++
				}
				r, again := p.Current("s")
				if again != nil || r.Phase != Done || r.Outcome != stack.Killed {
					t.Fatalf("after %d files: Current() = %+v, %v, want a killed run", free, r, again)
				}
				if saved, err := os.ReadFile(filepath.Join(d.run, tt.saved)); err != nil || !bytes.Equal(saved, stateOf("a", 7)) {
					t.Errorf("after %d files the state is %q, %v", free, saved, err)
				}
				if id := r.Rescued; tt.saved == FileRescue && (id == nil || id.Serial != 7) || tt.saved == FileState && r.State.Serial != 7 {
					t.Errorf("after %d files the report has the states %+v and %+v", free, r.State, id)
				}
				if err == nil {
					break
				}
			}
			if failed < 3 {
				t.Errorf("%d attempts failed, want one for each file that is open at once", failed)
			}
		})
	}
}

// At the end of a run the state of its workspace stays where it is as long as it cannot be written
// down, whatever is in the way: the error of a write is no proof that there is no state.
func TestAStateOfAWorkspaceThatCannotBeWrittenStays(t *testing.T) {
	newest := func(run string) string { return filepath.Join(run, FileState) }
	for name, tt := range map[string]struct {
		left    []byte // by the engine; nothing if nil
		change  func(run string) error
		unsaved bool
		serial  int // of the state that is in the directory of the run; 0 if none is
	}{
		"nothing is in the way":            {stateOf("a", 7), func(string) error { return nil }, false, 7},
		"no state was left":                {nil, func(string) error { return nil }, false, 0},
		"the state is that of the start":   {stateOf("a", 5), func(string) error { return nil }, false, 0},
		"the state is of another lineage":  {stateOf("b", 7), func(string) error { return nil }, false, 0},
		"a directory is in the way":        {stateOf("a", 7), func(run string) error { return os.Mkdir(newest(run), 0o700) }, true, 0},
		"a directory is at the other name": {stateOf("a", 7), func(run string) error { return os.Mkdir(newest(run)+".tmp", 0o700) }, true, 0},
		"a link to itself is in the way":   {stateOf("a", 7), func(run string) error { return os.Symlink(FileState+".tmp", newest(run)+".tmp") }, true, 0},
		"the directory of the run is gone": {stateOf("a", 7), os.RemoveAll, true, 0},
		"the directory of the run is none": {stateOf("a", 7), func(run string) error { return errors.Join(os.RemoveAll(run), os.WriteFile(run, nil, 0o600)) }, true, 0},
		"the directory may not be written": {stateOf("a", 7), func(run string) error { return os.Chmod(run, 0o500) }, os.Geteuid() != 0, 7},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDead(t, t.TempDir(), "s")
			if err := os.Remove(d.work.path(dirWork, dirTree, errored)); err != nil {
				t.Fatal(err)
			}
			left := d.work.path(dirWork, dirScratch, localFile("prod"))
			err := os.MkdirAll(filepath.Dir(left), 0o700)
			if tt.left != nil {
				err = errors.Join(err, os.WriteFile(left, tt.left, 0o600))
			}
			if err = errors.Join(err, tt.change(d.run)); err != nil {
				t.Fatal(err)
			}
			store, err := managed.NewStore(newest(d.run), stateOf("a", 5), true, func(StateID, *managed.File) {})
			if err != nil {
				t.Fatal(err)
			}
			r := managedState{run: &run{job: Job{Kind: stack.ApplyRun, Workspace: "prod"}, work: d.work, dir: d.run}, store: store, locally: true}
			unsaved, err := r.collect()
			if unsaved != tt.unsaved || (err != nil) != tt.unsaved {
				t.Errorf("collect() = %v, %v, want unsaved = %v", unsaved, err, tt.unsaved)
			}
			if file, err := managed.Parse(read(t, newest(d.run))); !tt.unsaved && tt.serial > 0 && (err != nil || file.Serial != uint64(tt.serial)) {
				t.Errorf("the state is %+v, %v, want serial %d", file, err, tt.serial)
			}
			if kept := read(t, left); tt.left != nil && !bytes.Equal(kept, tt.left) {
				t.Errorf("the state of the engine is %q", kept)
			}
		})
	}
}

// read reads a file; nothing if it cannot be read.
func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Logf("%v", err)
	}
	return data
}

// What is known to hold no state is told apart from what cannot be read now.
func TestWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "state"), []byte("state"), 0o600), os.Mkdir(filepath.Join(dir, "dir"), 0o700),
		os.Symlink("loop", filepath.Join(dir, "loop")), os.Symlink("/etc/passwd", filepath.Join(dir, "out")), unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600)); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, name := range []string{"nothing", "dir", "loop", "out", "pipe", "state/below", "../out"} {
		if _, err := disk.ReadHostile(root, name, 100); !disk.NoFile(err) {
			t.Errorf("ReadHostile(%s) = %v, which is taken for a failure to read", name, err)
		}
	}
	if _, err := disk.ReadHostile(root, "state", 3); !disk.NoFile(err) {
		t.Errorf("ReadHostile() of a large file = %v", err)
	}
	withFree(t, 0, func() { _, err = disk.ReadHostile(root, "state", 100) })
	if disk.NoFile(err) || disk.NoFile(&fs.PathError{Op: "read", Path: "state", Err: unix.EIO}) || disk.NoFile(nil) {
		t.Errorf("a failure to read, as %v, is taken for no file", err)
	}
}

// A process of a dead run that does not die is waited for once. Those who look for the run after
// that learn at once that it is still there.
func TestAProcessThatDoesNotDieIsAwaitedOnce(t *testing.T) {
	var d dying
	var waited []time.Duration
	look := func(run string, dies bool) error {
		return d.await(run, func(patience time.Duration) error {
			waited = append(waited, patience)
			if dies {
				return nil
			}
			return errDying
		})
	}
	for range 3 {
		if err := look("a", false); !errors.Is(err, errDying) {
			t.Errorf("await() = %v, want that it does not die", err)
		}
	}
	if err := errors.Join(look("b", true), look("a", true), look("a", true)); err != nil {
		t.Error(err)
	}
	want := []time.Duration{dyingLimit, 0, 0, dyingLimit, 0, dyingLimit}
	for i := range want {
		if waited[i] != want[i] {
			t.Errorf("looks waited %v, want %v", waited, want)
			break
		}
	}
}
