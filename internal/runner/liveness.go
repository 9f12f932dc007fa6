package runner

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terrier-iac/terrier/internal/runner/disk"
	"github.com/terrier-iac/terrier/internal/stack"
)

// A supervisor is known by its process ID, which the kernel may give to another
// process, and by its lock, which is certain. Both together are safe: a handle
// on the process is opened first, and if the lock is still held then, the
// handle is the supervisor's.

// handle returns a handle on a live supervisor, or nil if it is dead.
func handle(pid int, lock string) (*os.File, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("opening process %d: %w", pid, err)
	}
	f := os.NewFile(uintptr(fd), "supervisor")
	alive, err := disk.IsLocked(lock)
	if err != nil || !alive {
		f.Close()
		return nil, err
	}
	return f, nil
}

// awaitDeath returns when the supervisor is dead, or ctx has ended.
func awaitDeath(ctx context.Context, pid int, lock string) error {
	f, err := handle(pid, lock)
	if err != nil {
		return errors.Join(err, pollDeath(ctx, lock))
	}
	if f == nil {
		return nil
	}
	defer f.Close()
	defer context.AfterFunc(ctx, func() { f.Close() })()
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	// The handle becomes readable when the process has died. The first test is made
	// at once, the others when the runtime's poller says so.
	err = raw.Read(func(fd uintptr) bool {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, 0)
		return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// pollDeath is awaitDeath where the kernel gives no handle on a process.
func pollDeath(ctx context.Context, lock string) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		if alive, err := disk.IsLocked(lock); err != nil || !alive {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// signalRun sends a signal to a supervisor: SIGTERM asks it to stop.
func signalRun(pid int, lock string, signal unix.Signal) error {
	f, err := handle(pid, lock)
	if err != nil || f == nil {
		return err
	}
	defer f.Close()
	err = unix.PidfdSendSignal(int(f.Fd()), signal, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// lateRuns knows of runs how long they have been as they are, by the clock of this process
// that no one sets. A supervisor keeps the limits of its run by itself. One that a program of
// the run has stopped, or that waits for what never comes, does not, and neither ends when it
// is asked to. It is killed, and everything in its sandbox with it.
type lateRuns struct {
	mu   sync.Mutex
	seen map[string]sighting // by key
}

// sighting is what this process has seen of one run.
type sighting struct {
	id        string
	phase     Phase
	since     time.Time // as the report has it
	first     time.Time // when this process saw the run in that phase first
	cancelled time.Time // when it asked the run to stop; zero if it did not
	killed    string    // why it killed the run
}

// afterChange is what may follow a change that was cancelled: its outputs and its state are
// read, since they are of what it did.
const afterChange = 2 * defaultPlan

// longStep is how many times the limit of a step a run that changes nothing may stay in its
// phase: a step may be made again, and be followed by others.
const longStep = 4

// late says why a run is to be killed; empty if it has time. A run that may change something is
// never killed for what it may still be doing: a user cancels it first. The steps after an apply
// may, and one phase has all of them, with their retries and pauses.
func (s sighting) late(r Report, now time.Time, more time.Duration) string {
	limit := r.Until.Sub(r.Since)
	if limit <= 0 {
		limit = defaultPlan // a phase without a step that has one
	}
	grace := cmp.Or(r.Grace, DefaultGrace) + more
	if r.Kind.Writes() {
		grace += afterChange
	}
	changes := r.Kind.Writes() || r.Kind == stack.StepsRun
	switch {
	case !s.cancelled.IsZero() && now.Sub(s.cancelled) > grace:
		return fmt.Sprintf("it had not ended %s after it was cancelled", now.Sub(s.cancelled).Round(time.Second))
	case !changes && now.Sub(s.first) > longStep*limit+more:
		return fmt.Sprintf("it had not ended %s after that began, and the limit of a step is %s", now.Sub(s.first).Round(time.Second), limit)
	default:
		return ""
	}
}

// cancelled notes that a run was asked to stop.
func (l *lateRuns) cancelled(key, id string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.of(key, id)
	if s.cancelled.IsZero() {
		s.cancelled = now
	}
	l.seen[key] = s
}

func (l *lateRuns) of(key, id string) sighting {
	if l.seen == nil {
		l.seen = map[string]sighting{}
	}
	if s := l.seen[key]; s.id == id {
		return s
	}
	return sighting{id: id}
}

// see takes the reports of all runs, and returns why some of them are to be killed, by key.
func (l *lateRuns) see(reports []Report, now time.Time, more time.Duration) map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen, late := map[string]sighting{}, map[string]string{}
	for key, s := range l.seen {
		if !s.cancelled.IsZero() && now.Sub(s.cancelled) < more {
			seen[key] = s // it may have begun after the reports were read
		}
	}
	for _, r := range reports {
		if r.Phase == Done {
			delete(seen, r.Key())
			continue
		}
		s := l.of(r.Key(), r.ID)
		if s.first.IsZero() || s.phase != r.Phase || !s.since.Equal(r.Since) {
			s.phase, s.since, s.first = r.Phase, r.Since, now
		}
		if why := s.late(r, now, more); why != "" {
			s.killed, late[r.Key()] = why, why
		}
		seen[r.Key()] = s
	}
	l.seen = seen
	return late
}

// killed is why a run was killed; empty if it was not.
func (l *lateRuns) killed(key, id string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of(key, id).killed
}

// trace identifies a process of a run beyond its supervisor's death. An engine
// dies with its supervisor, but a moment later, and until then it may
// still write.
type trace struct {
	PID   int    `json:"pid"`
	Start string `json:"start"` // when it was started, as the kernel counts: it tells two bearers of one ID apart
}

// traceOf returns the trace of a process that is alive.
func traceOf(pid int) (trace, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return trace{}, err
	}
	// The name of the program may hold anything but ends at the last
	// parenthesis.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const start = 22 - 3 // starttime is field 22; the first of fields is field 3
	if len(fields) <= start {
		return trace{}, fmt.Errorf("process %d has an unreadable state", pid)
	}
	return trace{PID: pid, Start: string(fields[start])}, nil
}

// tracesIn reads the traces in the directory of a run. A file that cannot be read as such was
// cut by the end of the machine, which no process has survived: it is not made durable, and
// takes its name in one step.
func tracesIn(dir string) (traces []trace, err error) {
	data, err := os.ReadFile(filepath.Join(dir, fileTrace))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if json.Unmarshal(data, &traces) != nil {
		return nil, nil
	}
	return traces, nil
}

// dyingLimit is how long the processes of a dead run are waited for, each.
const dyingLimit = 10 * time.Second

// dying are the dead runs whose processes did not end within dyingLimit. Each was waited for
// once: a process that waits for a disk or a file system may never end, and those that look for
// its run hold a lock meanwhile. The zero dying has none.
type dying struct{ runs sync.Map }

// await calls end with how long to wait for the processes of a run.
func (d *dying) await(run string, end func(patience time.Duration) error) error {
	patience := dyingLimit
	if _, again := d.runs.Load(run); again {
		patience = 0
	}
	err := end(patience)
	if errors.Is(err, errDying) {
		d.runs.Store(run, true)
	} else {
		d.runs.Delete(run)
	}
	return err
}

// errDying says that a process was killed, and is still there.
var errDying = errors.New("it does not die")

// ensureDead returns once the process is dead, and makes sure that it will be. The error is
// errDying if it is not dead by then.
func (t trace) ensureDead(patience time.Duration) error {
	if t.PID == 0 {
		return nil
	}
	fd, err := unix.PidfdOpen(t.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening process %d: %w", t.PID, err)
	}
	defer unix.Close(fd)
	if now, err := traceOf(t.PID); err != nil || now != t {
		return nil // it is gone, and its ID is another's
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("killing process %d: %w", t.PID, err)
	}
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(patience.Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("waiting for process %d: %w", t.PID, err)
		case n == 0:
			return fmt.Errorf("process %d of a dead run: %w", t.PID, errDying)
		}
		return nil
	}
}
