package sandbox

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

// sessionInit is the first process of a session. It starts the programs, as its
// children, and reports how each of them ended. It has the same rights as the
// programs and holds no secret. A program that kills it ends the session.
type sessionInit struct {
	conn conn
	born chan struct{} // a child was started

	mu       sync.Mutex // held from the start of a child until it is known
	programs map[int]int
}

// runInit starts programs until the starter closes the connection. The session
// ends with the init process: with its process id namespace, or with the
// processes that its reaper kills.
func runInit(l conn) error {
	// The init process adopts the orphans of the session, also where it does not
	// have process id 1.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("becoming the reaper: %w", err)
	}
	// Received and dropped: a program of the session must not end it by a polite
	// signal. An ignored signal would stay ignored in the programs.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	w := &sessionInit{conn: l, born: make(chan struct{}, 1), programs: map[int]int{}}
	go w.reap()
	for {
		m, body, fds, err := l.receiveAll()
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
// init process, since the death of that thread would kill the program.
func (w *sessionInit) start(body []byte, fds []int) {
	var a startRequest
	if json.Unmarshal(body, &a) != nil || len(fds) != 3 {
		_ = w.conn.sendJSON(failed, startReply{ID: a.ID, Error: "the request is not readable"})
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	handle := -1
	pid, err := syscall.ForkExec(string(a.Path), textsOf(a.Argv), &syscall.ProcAttr{
		Env:   textsOf(a.Env),
		Dir:   string(a.Dir),
		Files: []uintptr{uintptr(fds[0]), uintptr(fds[1]), uintptr(fds[2])},
		Sys:   &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, PidFD: &handle},
	})
	if err != nil {
		_ = w.conn.sendJSON(failed, startReply{ID: a.ID, Error: fmt.Sprintf("executing %s: %v", a.Path, err)})
		return
	}
	w.programs[pid] = a.ID
	_ = w.conn.sendJSON(started, startReply{ID: a.ID, PID: pid}, handle)
	if handle >= 0 {
		_ = unix.Close(handle)
	}
	select {
	case w.born <- struct{}{}:
	default:
	}
}

// reap waits for every child, and reports the end of those that are programs.
func (w *sessionInit) reap() {
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
			_ = w.conn.sendJSON(ended, endNotice{
				ID: id, Status: status, MaxRSS: usage.Maxrss * 1024, // Linux counts KiB
				CPU: time.Duration(usage.Utime.Nano() + usage.Stime.Nano()),
			})
		}
		w.mu.Unlock()
	}
}
