package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// warden is the first program of a room: it starts the others, beside itself,
// and tells how they end. It has no right that they do not have, and nothing to
// hide from them; what they could do to it is to end it, and the room with it.
type warden struct {
	line line
	born chan struct{} // a child was started

	mu       sync.Mutex // held from the start of a child until it is known
	programs map[int]int
}

// ward starts programs until nobody is on the line. Its end is the end of the
// room: of its process id namespace, or of what its keeper keeps.
func ward(l line) error {
	// Orphans of the room fall to the warden, also where it is not its init.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("becoming the reaper: %w", err)
	}
	// Received and dropped: whoever kills politely in the room must not end it,
	// and what is ignored would stay so in the programs.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	w := &warden{line: l, born: make(chan struct{}, 1), programs: map[int]int{}}
	go w.reap()
	for {
		m, body, fds, err := l.hearAll()
		if err != nil {
			return nil
		}
		if m == start {
			w.start(body, fds)
		}
		closeAll(fds)
	}
}

// start starts one program. It runs on the one thread that lives as long as the
// warden, since that thread's death would kill the program.
func (w *warden) start(body []byte, fds []int) {
	var a admission
	if json.Unmarshal(body, &a) != nil || len(fds) != 3 {
		_ = w.line.sayJSON(failed, arrival{ID: a.ID, Error: "the orders are not readable"})
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	handle := -1
	pid, err := syscall.ForkExec(string(a.Path), textsOf(a.Argv), &syscall.ProcAttr{
		Env:   textsOf(a.Env),
		Files: []uintptr{uintptr(fds[0]), uintptr(fds[1]), uintptr(fds[2])},
		Sys:   &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, PidFD: &handle},
	})
	if err != nil {
		_ = w.line.sayJSON(failed, arrival{ID: a.ID, Error: fmt.Sprintf("executing %s: %v", a.Path, err)})
		return
	}
	w.programs[pid] = a.ID
	_ = w.line.sayJSON(started, arrival{ID: a.ID, PID: pid}, handle)
	if handle >= 0 {
		_ = unix.Close(handle)
	}
	select {
	case w.born <- struct{}{}:
	default:
	}
}

// reap takes every child that ends, and tells of those that are programs.
func (w *warden) reap() {
	for {
		var status syscall.WaitStatus
		var usage syscall.Rusage
		pid, err := syscall.Wait4(-1, &status, 0, &usage)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil: // no child
			<-w.born
			continue
		}
		w.mu.Lock()
		if id, ok := w.programs[pid]; ok {
			delete(w.programs, pid)
			_ = w.line.sayJSON(ended, departure{
				ID: id, Status: status, MaxRSS: usage.Maxrss * 1024, // Linux counts KiB
				CPU: time.Duration(usage.Utime.Nano() + usage.Stime.Nano()),
			})
		}
		w.mu.Unlock()
	}
}
