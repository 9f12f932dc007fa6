package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// reap is the launcher where a sandbox has no process id namespace that would
// end all processes with the program. The reaper stays outside the sandbox as
// the parent that adopts every orphan of it. It forwards the handshake to a
// second launcher, which enters the sandbox, and kills the remaining processes
// when the program has ended or the starter is gone.
func reap(l conn, extra int) error {
	o, err := receiveSpec(l)
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("becoming the reaper: %w", err)
	}
	if err := o.makeScratch(); err != nil {
		return err
	}
	defer func() { _ = RemoveAll(o.Scratch) }()
	inner, err := innerLaunch(o, extra)
	if err != nil {
		return err
	}
	defer inner.close()
	if err := inner.cmd.Start(); err != nil {
		return fmt.Errorf("starting the inner launcher: %w", err)
	}
	program := inner.cmd.Process
	if err := forward(l, inner); err != nil {
		_ = program.Kill()
		endDescendants(program.Pid)
		return err
	}
	go func() {
		// The connection is closed: the starter has ended, or wants the end.
		_, _, _, _ = l.receive()
		_ = program.Kill()
	}()
	status := endDescendants(program.Pid)
	return l.send(ended, []byte(strconv.FormatUint(uint64(status), 10)), -1)
}

// makeScratch makes the private directories. What is there already is from a
// run that was killed together with its reaper.
func (o *spec) makeScratch() error {
	if err := RemoveAll(o.Scratch); err != nil {
		return fmt.Errorf("clearing the scratch directory: %w", err)
	}
	for _, dir := range []string{o.Scratch, filepath.Join(o.Scratch, "home")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return fmt.Errorf("making the scratch directory: %w", err)
		}
		if o.User != 0 {
			if err := os.Lchown(dir, o.User, o.User); err != nil {
				return fmt.Errorf("owning the scratch directory: %w", err)
			}
		}
	}
	return nil
}

// innerLaunch is the launch of the inner launcher, with our own streams.
func innerLaunch(o *spec, extra int) (*launch, error) {
	c := Command{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	for fd := 3; fd < 3+extra; fd++ {
		c.ExtraFiles = append(c.ExtraFiles, os.NewFile(uintptr(fd), "extra"))
	}
	l := &launch{spec: o, handle: -1}
	if err := l.connect(c, roleEnter); err != nil {
		return nil, err
	}
	// Not our session: the program could signal us with its group.
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return l, nil
}

// forward repeats the handshake with the inner launcher.
func forward(l conn, inner *launch) error {
	_ = inner.theirs.Close()
	inner.theirs = nil
	inner.pid = inner.cmd.Process.Pid
	if err := inner.conn.sendJSON(specified, inner.spec); err != nil {
		return err
	}
	if _, _, err := inner.expect(ready); err != nil {
		return err
	}
	if err := l.send(ready, nil, -1); err != nil {
		return err
	}
	m, rest, _, err := l.receive()
	if err != nil || m != proceed {
		return errors.New("the starter is gone")
	}
	if err := inner.conn.send(proceed, rest, -1); err != nil {
		return err
	}
	if m, body, _, err := inner.conn.receive(); err == nil {
		if m == failed {
			return errors.New(string(body))
		}
		return fmt.Errorf("the inner launcher sent %q", m)
	}
	return l.send(started, []byte(strconv.Itoa(inner.pid)), -1)
}

// endDescendants waits for the program, then kills and reaps until no child is
// left: an orphan falls to the reaper, so then there is no descendant either.
func endDescendants(program int) (status syscall.WaitStatus) {
	for over := false; ; {
		if over {
			for _, pid := range children() {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		// One that ends, then all that have.
		for options := 0; ; options = syscall.WNOHANG {
			var s syscall.WaitStatus
			pid, err := syscall.Wait4(-1, &s, options, nil)
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			if err != nil {
				return status
			}
			if pid == 0 {
				break
			}
			if pid == program {
				status, over = s, true
				break
			}
		}
	}
}

// children are the processes whose parent we are.
func children() []int { return childrenOf(os.Getpid()) }

// childrenOf lists a process's children: of every thread of it where the kernel
// has such lists, else by reading every process.
func childrenOf(parent int) []int {
	var pids []int
	known := false
	tasks := fmt.Sprintf("/proc/%d/task", parent)
	threads, _ := os.ReadDir(tasks)
	for _, thread := range threads {
		text, err := os.ReadFile(filepath.Join(tasks, thread.Name(), "children"))
		known = known || err == nil
		for field := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	if known {
		return pids
	}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err != nil {
			continue
		}
		if p, ok := parentIn(string(stat)); ok && p == parent {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			pids = append(pids, pid)
		}
	}
	return pids
}

// parentIn reads the parent from a process's stat. The name in it may hold
// anything but ends at the last parenthesis.
func parentIn(stat string) (int, bool) {
	_, after, found := strings.Cut(stat[max(0, strings.LastIndexByte(stat, ')')):], ") ")
	fields := strings.Fields(after)
	if !found || len(fields) < 2 {
		return 0, false
	}
	parent, err := strconv.Atoi(fields[1])
	return parent, err == nil
}
