package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terrier-iac/terrier/internal/runner/disk"
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

// signalRun asks a supervisor to stop.
func signalRun(pid int, lock string) error {
	f, err := handle(pid, lock)
	if err != nil || f == nil {
		return err
	}
	defer f.Close()
	err = unix.PidfdSendSignal(int(f.Fd()), unix.SIGTERM, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
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

// ensureDead returns once the process is dead, and makes sure that it will be.
func (t trace) ensureDead() error {
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
	for deadline := 10_000; ; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, deadline)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("waiting for process %d: %w", t.PID, err)
		case n == 0:
			return fmt.Errorf("process %d of a dead run does not die", t.PID)
		}
		return nil
	}
}
