package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner/disk"
	"github.com/terrier-iac/terrier/internal/runner/managed"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit/apart"
)

// dead is an apply whose supervisor died, as it is found in a data directory. Its engine had
// found no other place for the state than the work directory.
type dead struct {
	work *workDir
	run  string // RUN
}

const errored = "errored.tfstate"

func newDead(t *testing.T, dir, key string) dead {
	t.Helper()
	l := layout{dir}
	d := dead{&workDir{dir: l.stack(key), root: "."}, l.run(key, "r")}
	report, err := json.Marshal(Report{Version: ReportVersion, ID: "r", Stack: key, Kind: stack.ApplyRun, Phase: Applying, Started: time.Unix(1, 0)})
	if err := errors.Join(err, os.MkdirAll(d.work.path(dirWork, dirTree), 0o700), os.MkdirAll(d.run, 0o700), WriteReport(d.run, report),
		d.work.place(placement{Run: "r", Writes: true}, nil), os.WriteFile(d.work.path(dirWork, dirTree, errored), stateOf("a", 7), 0o600)); err != nil {
		t.Fatal(err)
	}
	return d
}

func reopened(t *testing.T, dir string) *Processes {
	t.Helper()
	p, err := New(Config{Dir: dir, Now: func() time.Time { return time.Unix(9, 0) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	return p
}

// rescued checks that a dead run was taken over, with the state that its engine left.
func (d dead) rescued(t *testing.T, p *Processes, key string) {
	t.Helper()
	r, err := p.Current(key)
	if err != nil || r.Phase != Done || r.Outcome != stack.Killed || r.Rescued == nil || r.Rescued.Serial != 7 {
		t.Errorf("Current() = %+v, %v, want a killed run and its state", r, err)
	}
	if left, err := os.ReadFile(filepath.Join(d.run, FileRescue)); err != nil || !bytes.Equal(left, stateOf("a", 7)) {
		t.Errorf("the state is %q, %v", left, err)
	}
	if _, err := os.Stat(d.work.path(filePlacement)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the work directory was not wiped: %v", err)
	}
}

// What the end of the machine, and what a module, may leave beside the state of a dead run
// keeps neither the platform from starting nor the run from being taken over.
func TestWhatADeadRunLeftIsNoObstacle(t *testing.T) {
	for name, tt := range map[string]struct {
		leave  func(d dead, at string) error
		forged bool // there is no state of an engine
	}{
		"nothing": {leave: func(dead, string) error { return nil }},
		"a list of processes that was cut": {leave: func(d dead, _ string) error {
			return os.WriteFile(filepath.Join(d.run, fileTrace), nil, 0o600)
		}},
		"a list of processes of zeros": {leave: func(d dead, _ string) error {
			return os.WriteFile(filepath.Join(d.run, fileTrace), make([]byte, 64), 0o600)
		}},
		"space that was held": {leave: func(d dead, _ string) error {
			_, err := disk.NewReserve(d.run, 100)
			return err
		}},
		"a directory": {forged: true, leave: func(_ dead, at string) error { return errors.Join(os.Remove(at), os.Mkdir(at, 0o700)) }},
		"a pipe":      {forged: true, leave: func(_ dead, at string) error { return errors.Join(os.Remove(at), unix.Mkfifo(at, 0o600)) }},
		"a link out":  {forged: true, leave: func(_ dead, at string) error { return errors.Join(os.Remove(at), os.Symlink("/etc/passwd", at)) }},
		"a link to nowhere": {forged: true, leave: func(_ dead, at string) error {
			return errors.Join(os.Remove(at), os.Symlink("nowhere", at))
		}},
		"a link to itself":  {forged: true, leave: func(_ dead, at string) error { return errors.Join(os.Remove(at), os.Symlink(errored, at)) }},
		"more than a state": {forged: true, leave: func(_ dead, at string) error { return os.Truncate(at, managed.MaxBytes+1) }},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			d := newDead(t, dir, "s")
			if err := tt.leave(d, d.work.path(dirWork, dirTree, errored)); err != nil {
				t.Fatal(err)
			}
			p := reopened(t, dir)
			if !tt.forged {
				d.rescued(t, p, "s")
				return
			}
			if r, err := p.Current("s"); err != nil || r.Outcome != stack.Killed || r.Rescued != nil {
				t.Errorf("Current() = %+v, %v, want a killed run without a state", r, err)
			}
		})
	}
}

// A state that cannot be saved now stays where it is until it can be. Meanwhile its stack
// alone waits: other stacks and the platform go on.
func TestAStateThatCannotBeSavedIsNotWiped(t *testing.T) {
	dir := t.TempDir()
	d, other := newDead(t, dir, "s"), newDead(t, dir, "t")
	obstacle := filepath.Join(d.run, FileRescue, "obstacle")
	if err := os.MkdirAll(obstacle, 0o700); err != nil {
		t.Fatal(err)
	}
	p := reopened(t, dir)
	for range 2 {
		if r, err := p.Current("s"); err == nil {
			t.Fatalf("Current() = %+v, want why the state is not saved", r)
		}
		if err := p.Start(t.Context(), Job{ID: "next", Stack: "s", Kind: stack.PlanRun}); err == nil {
			t.Fatal("a run was started over a state that is not saved")
		}
	}
	other.rescued(t, p, "t")
	if all, err := p.List(); err == nil || !Listed(err) || !strings.Contains(err.Error(), "the run of s: ") || len(all) != 1 || all[0].Stack != "t" {
		t.Errorf("List() = %+v, %v, want the other run, and an error about this one", all, err)
	}

	// Neither does a supervisor that comes upon it.
	job := Job{ID: "next", Stack: "s", Kind: stack.PlanRun}
	if err := os.MkdirAll(layout{dir}.run("s", "next"), 0o700); err != nil {
		t.Fatal(err)
	}
	r, err := Supervise(t.Context(), job, Supervisor{Dir: dir, Now: time.Now, Ready: func(error) {}})
	if err != nil || r.Outcome != stack.Failed {
		t.Errorf("Supervise() = %+v, %v, want a failed run", r, err)
	}
	if err := errors.Join(RemoveRun(layout{dir}.run("s", "next")), os.RemoveAll(filepath.Dir(obstacle))); err != nil {
		t.Fatal(err)
	}
	d.rescued(t, p, "s")
}

// F42: on a disk that is full a dead run has the space that it held.
func TestTheStateOfADeadRunHasTheSpaceThatItHeld(t *testing.T) {
	dir := apart.Disk(t, 24, 0o711)
	if dir == "" {
		return
	}
	d := newDead(t, dir, "s")
	if _, err := disk.NewReserve(d.run, 4<<20); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, fileOwner), []byte(AsProcesses+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	large := fmt.Appendf(nil, `{"version":4,"serial":7,"lineage":"a","outputs":{},"resources":[],"pad":%q}`, strings.Repeat("x", 4<<20))
	if err := os.WriteFile(d.work.path(dirWork, dirTree, errored), large, 0o600); err != nil {
		t.Fatal(err)
	}
	fill, err := os.Create(filepath.Join(dir, "fill"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(fill, bytes.NewReader(make([]byte, 64<<20))); !disk.IsNoSpace(err) {
		t.Fatalf("filling the disk: %v", err)
	}
	if err := fill.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := reopened(t, dir).Current("s")
	if err != nil || r.Outcome != stack.Killed || r.Rescued == nil || r.Rescued.Serial != 7 {
		t.Errorf("Current() = %+v, %v (%s), want a killed run and its state", r, err, fault.Of(err))
	}
}

// A module may make any directory of its own unwritable, as a cache of Go modules is. Its
// runs are wiped all the same, and its stack is removed.
func TestUnwritableDirectoriesAreWiped(t *testing.T) {
	dir := t.TempDir()
	d := newDead(t, dir, "s")
	cache, tree := d.work.path(dirWork, dirScratch, "cache"), d.work.path(dirWork, dirTree)
	unwritable := func() error {
		return errors.Join(os.MkdirAll(filepath.Join(cache, "mod"), 0o700), os.WriteFile(filepath.Join(cache, "mod", "file"), nil, 0o400),
			os.Chmod(filepath.Join(cache, "mod"), 0o500), os.Chmod(cache, 0o500), os.Chmod(tree, 0o500), os.Chmod(d.work.path(dirWork), 0o500))
	}
	if err := unwritable(); err != nil {
		t.Fatal(err)
	}
	apart.Unprivileged(t, func() {
		d.rescued(t, reopened(t, dir), "s")
		if err := d.work.rebuild(Tree{}, "", nil); err != nil {
			t.Errorf("rebuild() = %v", err)
		}
		if err := unwritable(); err != nil {
			t.Error(err)
		}
		p := reopened(t, dir)
		if err := p.Remove("s"); err != nil {
			t.Errorf("Remove() = %v", err)
		}
	})
	if _, err := os.Stat(d.work.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory of the stack is there after Remove(): %v", err)
	}
}

// A run that goes on and could not be read when the platform started, as when it had no file
// left to open, is found later. Its end is announced as any other is.
func TestTheEndOfARunThatCouldNotBeReadAtFirst(t *testing.T) {
	supervisor := exec.Command("cat")
	input, err := supervisor.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := supervisor.Start(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	run := layout{dir}.run("s", "r")
	if err := os.MkdirAll(run, 0o700); err != nil {
		t.Fatal(err)
	}
	// WriteReport replaces it at once: no look finds the run without a report.
	if err := os.WriteFile(filepath.Join(run, fileReport), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	lock, err := disk.TryLock(filepath.Join(run, fileLock))
	if err != nil || lock == nil {
		t.Fatalf("TryLock() = %v, %v", lock, err)
	}
	t.Cleanup(func() { _ = lock.Close() })
	p, err := New(Config{Dir: dir, LateLimit: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	if r, err := p.Current("s"); err == nil {
		t.Fatalf("Current() = %+v, want that it cannot be read", r)
	}
	report, err := json.Marshal(Report{Version: ReportVersion, ID: "r", Stack: "s", Kind: stack.PlanRun, Phase: Planning, PID: supervisor.Process.Pid, Started: time.Unix(1, 0)})
	if err := errors.Join(err, WriteReport(run, report), input.Close(), supervisor.Wait()); err != nil {
		t.Fatal(err)
	}
	select {
	case key := <-p.Ended():
		if key != "s" {
			t.Errorf("the end of %q is announced", key)
		}
	case <-time.After(5 * time.Minute):
		t.Fatal("the end of the run is not announced")
	}
}

// Without a list of its runs the platform does not start: it knows of none that goes on.
func TestRunsThatCannotBeListed(t *testing.T) {
	dir := t.TempDir()
	if err := reopened(t, dir).Close(); err != nil {
		t.Fatal(err)
	}
	runs := layout{dir}.runs()
	if err := os.Chmod(runs, 0o300); err != nil {
		t.Fatal(err)
	}
	apart.Unprivileged(t, func() {
		if p, err := New(Config{Dir: dir}); err == nil {
			t.Errorf("New() = %v, want that the runs cannot be listed", errors.Join(errors.New("a runner"), p.Close()))
		}
	})
	if err := os.Chmod(runs, 0o700); err != nil {
		t.Fatal(err)
	}
}
