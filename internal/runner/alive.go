package runner

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
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
	alive, err := held(lock)
	if err != nil || !alive {
		f.Close()
		return nil, err
	}
	return f, nil
}

// awaitDeath returns when the supervisor is dead, or ctx has ended.
func awaitDeath(ctx context.Context, pid int, lock string) error {
	f, err := handle(pid, lock)
	if err != nil || f == nil {
		return err
	}
	defer f.Close()
	defer context.AfterFunc(ctx, func() { f.Close() })()
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	// The handle becomes readable when the process has died. The first look is
	// made at once, the others when the runtime's poller says so.
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
