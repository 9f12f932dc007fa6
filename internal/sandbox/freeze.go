package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

const freezeTime = time.Second // for a program to stop

// Freeze stops the program itself, and none of what it started, until Thaw. It
// returns once no thread of it runs any more; with an error it runs on.
func (p *Process) Freeze() error {
	if err := p.sendStop(syscall.SIGSTOP); err != nil {
		return err
	}
	err := p.awaitStopped()
	if err != nil {
		return errors.Join(err, p.Thaw())
	}
	return nil
}

// Thaw lets a program that was frozen go on.
func (p *Process) Thaw() error { return p.sendStop(syscall.SIGCONT) }

func (p *Process) sendStop(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return fmt.Errorf("process %d has ended", p.pid)
	}
	if err := p.backend.signal(s); err != nil {
		return fmt.Errorf("sending %s to process %d: %w", s, p.pid, err)
	}
	return nil
}

// awaitStopped looks twice at least: a thread that was seen stopped may have
// started another one just before.
func (p *Process) awaitStopped() error {
	var before []string
	for deadline := time.Now().Add(freezeTime); time.Now().Before(deadline); time.Sleep(time.Millisecond / 4) {
		threads, stopped, err := threadsOf(p.pid)
		switch {
		case err != nil:
			return err
		case !stopped:
			before = nil
		case before != nil && slices.Equal(before, threads):
			return nil
		default:
			before = threads
		}
	}
	return fmt.Errorf("process %d does not stop", p.pid)
}

// threadsOf lists the threads of a process, and reports whether none can run.
func threadsOf(pid int) (threads []string, stopped bool, err error) {
	threads, err = filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		return nil, false, fmt.Errorf("process %d has no threads that can be seen", pid)
	}
	stopped = true
	for _, task := range threads {
		stat, err := os.ReadFile(task)
		if err != nil {
			stopped = false // it ended meanwhile
			continue
		}
		// The state follows the name, which may hold anything.
		_, after, _ := bytes.Cut(stat[max(0, bytes.LastIndexByte(stat, ')')):], []byte(") "))
		stopped = stopped && len(after) > 0 && bytes.IndexByte([]byte("TtZX"), after[0]) >= 0
	}
	return threads, stopped, nil
}
