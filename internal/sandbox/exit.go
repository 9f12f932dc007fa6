package sandbox

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

// Exit is how a program ended and what it used, its finished children
// included.
type Exit struct {
	Code   int            // its exit code; 128 + Signal when a signal ended it
	Signal syscall.Signal // 0 when it ended by itself
	CPU    time.Duration  // user and system
	Wall   time.Duration
	MaxRSS int64  // bytes, of its largest process
	Memory Memory // of its sandbox, or of its session until then
}

// OK reports whether the program ended by itself with code 0.
func (e Exit) OK() bool { return e.Code == 0 && e.Signal == 0 }

// String says it in a few words, for messages.
func (e Exit) String() string {
	if e.Signal != 0 {
		return "ended by signal " + e.Signal.String()
	}
	return fmt.Sprintf("exit code %d", e.Code)
}

func exitOf(s *os.ProcessState, wall time.Duration) Exit {
	e := Exit{Wall: wall, CPU: s.UserTime() + s.SystemTime()}
	if usage, ok := s.SysUsage().(*syscall.Rusage); ok {
		e.MaxRSS = usage.Maxrss * 1024 // Linux counts KiB
	}
	status, _ := s.Sys().(syscall.WaitStatus)
	return e.with(status)
}

// with sets how the program ended.
func (e Exit) with(status syscall.WaitStatus) Exit {
	if status.Signaled() {
		e.Signal = status.Signal()
		e.Code = 128 + int(e.Signal)
		return e
	}
	e.Signal, e.Code = 0, status.ExitStatus()
	return e
}
