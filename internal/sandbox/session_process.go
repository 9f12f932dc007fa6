package sandbox

import (
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// sessionProcess is a program of a session, on the starter's side.
type sessionProcess struct {
	pid     int // as the init process sees it
	handle  int // a pidfd, -1 without
	started chan startReply
	ended   chan endNotice
	killed  chan struct{} // closed by kill
	once    sync.Once
}

func (p *sessionProcess) handshake() error { return nil }

func (p *sessionProcess) signal(s syscall.Signal) error {
	if p.handle < 0 {
		return unix.ESRCH
	}
	return unix.PidfdSendSignal(p.handle, s, nil, 0)
}

func (p *sessionProcess) kill() error {
	p.once.Do(func() { close(p.killed) })
	return p.signal(syscall.SIGKILL)
}

func (p *sessionProcess) outcome() (syscall.WaitStatus, bool) { return 0, false }

func (p *sessionProcess) close() {
	if p.handle >= 0 {
		_ = unix.Close(p.handle)
	}
}

// hostPID is the process id, as this process sees it, of the process of a pidfd;
// 0 if it has been reaped.
func hostPID(pidfd int) int {
	info, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(pidfd))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(info)) {
		if text, ok := strings.CutPrefix(line, "Pid:"); ok {
			pid, _ := strconv.Atoi(strings.TrimSpace(text))
			return max(pid, 0)
		}
	}
	return 0
}

// streams are the standard streams of a session's program: their ends of pipes,
// or files as they are.
type streams struct {
	theirs  []*os.File // standard input, output, error
	given   []bool     // a file of the caller's, which stays open
	readers []*os.File
	writers []io.Writer
	copying sync.WaitGroup
}

func openStreams(c Command) (s *streams, err error) {
	s = &streams{}
	defer func() {
		if err != nil {
			s.closeTheirs()
			s.closeOurs()
		}
	}()
	if in, ok := c.Stdin.(*os.File); ok {
		s.add(in, true)
	} else if null, err := os.Open(os.DevNull); err != nil {
		return s, err
	} else {
		s.add(null, false)
	}
	for _, w := range []io.Writer{c.Stdout, c.Stderr} {
		if err := s.output(w); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (s *streams) add(f *os.File, given bool) {
	s.theirs, s.given = append(s.theirs, f), append(s.given, given)
}

func (s *streams) output(w io.Writer) error {
	if f, ok := w.(*os.File); ok {
		s.add(f, true)
		return nil
	}
	if w == nil {
		null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		if err == nil {
			s.add(null, false)
		}
		return err
	}
	ours, theirs, err := Pipe()
	if err != nil {
		return err
	}
	s.add(theirs, false)
	s.readers, s.writers = append(s.readers, ours), append(s.writers, w)
	return nil
}

// Pipe makes a pipe for the output of programs of a session. Given as a file, it stays
// open for the programs that they start. They can also open it by a name such as
// /dev/stderr.
func Pipe() (r, w *os.File, err error) {
	if r, w, err = os.Pipe(); err != nil {
		return nil, nil, err
	}
	// As in spec.chownPipes, but no process in the sandbox has the right any
	// more.
	if uid, change := runAs(); change {
		if err := w.Chown(uid, uid); err != nil {
			return nil, nil, errors.Join(err, r.Close(), w.Close())
		}
	}
	return r, w, nil
}

func (s *streams) fds() []int {
	var fds []int
	for _, f := range s.theirs {
		fds = append(fds, int(f.Fd()))
	}
	return fds
}

func (s *streams) closeTheirs() {
	for i, f := range s.theirs {
		if !s.given[i] {
			_ = f.Close()
		}
	}
}

func (s *streams) closeOurs() {
	for _, f := range s.readers {
		_ = f.Close()
	}
}

// copy hands on what the program writes.
func (s *streams) copy() {
	for i, r := range s.readers {
		s.copying.Go(func() {
			_, _ = io.Copy(s.writers[i], r)
			_ = r.Close()
		})
	}
}

// wait returns when everything the program wrote has been read. A process that
// could not be swept may still hold the pipe, but not for long.
func (s *streams) wait() {
	cut := time.AfterFunc(stragglers, func() {
		for _, r := range s.readers {
			_ = r.SetReadDeadline(time.Unix(1, 0))
		}
	})
	defer cut.Stop()
	s.copying.Wait()
}
