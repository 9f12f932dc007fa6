// Package sandbox is the only place that starts programs: plainly, for helpers
// of Terrier, or inside a sandbox that confines a hostile run. It knows nothing
// about engines, stacks or Kubernetes. It never starts a shell, never passes
// its own environment on, and ends every program when it promised to.
//
// Start reading at Command and Start here, then Config, then Session, which is
// a sandbox that several programs run in. A binary that starts sandboxes calls
// Main first: that same binary, started again as the launcher, enters the
// sandbox.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// Command is a program to start, with everything it will be given. Nothing is
// added: no variable of our own environment, no shell, no search of PATH.
type Command struct {
	Path string   // absolute; in a sandbox, as seen inside it
	Args []string // without argv[0], which is Path
	Env  []string // the whole environment, NAME=value
	Dir  string   // absolute; in a sandbox use Config.Dir, in a session as seen inside it

	Stdin  io.Reader // nil is /dev/null, like the two below; Wait waits for a reader's end
	Stdout io.Writer
	Stderr io.Writer

	Sandbox    *Config                 // nil: started plainly
	Listening  func(net.Addr) []string // with Config.Listen: what the listener's address adds to Env
	Detached   bool                    // its own session, and it survives us; standard streams must be files
	ExtraFiles []*os.File              // become descriptors 3, 4, …
	Spares     bool                    // in a session: what other programs left goes on when this one ends

	probe bool   // a sandbox is entered and nothing started in it
	name  string // argv[0], if it is not Path
}

// stragglers is how long output is still read after a plain program ended
// while a daemon that it left holds the pipe.
const stragglers = 10 * time.Second

// Process is a started program.
type Process struct {
	backend  backend
	pid      int
	inside   int // the pid in its sandbox, where that is known and another
	listener net.Listener

	mu          sync.Mutex
	over        bool // ended: its process id may soon be another's
	interrupted bool

	done chan struct{} // closed when exit and err are final
	exit Exit
	err  error
}

// backend is a way of starting a program, and the program while it lives.
type backend interface {
	handshake() error // completes the start
	signal(syscall.Signal) error
	kill() error
	outcome() (syscall.WaitStatus, bool) // waits for the end; may know better than the exit of our child
	close()
}

// Start starts a program. When ctx ends, the program and everything in its
// sandbox are killed; a detached one is left alone. Every started process is
// reaped whether or not Wait is called.
func Start(ctx context.Context, c Command) (*Process, error) {
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.Path, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.Path, err)
	}
	cmd, w, err := c.prepare()
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.Path, err)
	}
	if c.Detached {
		ctx = context.WithoutCancel(ctx)
	}
	p := &Process{backend: w, done: make(chan struct{})}
	begun := make(chan error)
	go p.run(ctx, cmd, begun)
	if err := <-begun; err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("starting %s: %w", c.Path, err)
	}
	return p, nil
}

// Listener is the listener inside the sandbox's network, for a sandbox with
// Listen; else nil. Its Addr is what the program connects to. It is closed when
// the program has ended.
func (p *Process) Listener() net.Listener { return p.listener }

// PID is the program's process id as we see it.
func (p *Process) PID() int { return p.pid }

// Inside is the program's process id as the other programs of its session see
// it.
func (p *Process) Inside() int { return p.inside }

// Interrupt sends one SIGINT to the program itself and never to its group: an
// engine that is interrupted once saves its state and stops its children, and
// children interrupted beside it would die under it. Later calls do nothing,
// because a second SIGINT makes an engine give up at once.
func (p *Process) Interrupt() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over || p.interrupted {
		return nil
	}
	p.interrupted = true
	if err := p.backend.signal(syscall.SIGINT); err != nil && !gone(err) {
		return fmt.Errorf("interrupting process %d: %w", p.pid, err)
	}
	return nil
}

// InterruptGroup sends one SIGINT to every process of the program's group, as a
// terminal does. It is for programs that only wait for others, such as a shell.
// Whichever of both was called first, later calls do nothing.
func (p *Process) InterruptGroup() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over || p.interrupted || p.pid <= 1 {
		return nil
	}
	p.interrupted = true
	// A sandboxed program leads a session of its own, and so a group of its own.
	if err := syscall.Kill(-p.pid, syscall.SIGINT); err != nil && !gone(err) {
		return fmt.Errorf("interrupting the group of process %d: %w", p.pid, err)
	}
	return nil
}

// Kill ends the program and everything in its sandbox, or its process group, at
// once.
func (p *Process) Kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return nil
	}
	if err := p.backend.kill(); err != nil && !gone(err) {
		return fmt.Errorf("killing process %d: %w", p.pid, err)
	}
	return nil
}

// Wait returns once the program has ended, its output has been read to the end
// and, in a sandbox, nothing else is alive there. It may be called more than
// once. The error is about us, not about the program: a failing program is an
// Exit.
func (p *Process) Wait() (Exit, error) {
	<-p.done
	return p.exit, p.err
}

func (c Command) check() error {
	switch {
	case !filepath.IsAbs(c.Path):
		return fmt.Errorf("%q is not an absolute path", c.Path)
	case c.Dir != "" && !filepath.IsAbs(c.Dir):
		return fmt.Errorf("the directory %q is not an absolute path", c.Dir)
	case c.Detached && c.Sandbox != nil:
		return errors.New("a sandboxed program dies with its starter and cannot be detached")
	case c.Detached && !(isFile(c.Stdin) && isFile(c.Stdout) && isFile(c.Stderr)):
		return errors.New("a detached program needs files as its standard streams")
	case c.Sandbox != nil && c.Dir != "":
		return errors.New("the directory of a sandboxed program is Config.Dir")
	case c.Sandbox != nil:
		return c.Sandbox.check()
	}
	return nil
}

func isFile(stream any) bool {
	if stream == nil {
		return true
	}
	_, ok := stream.(*os.File)
	return ok
}

// prepare makes everything but the process.
func (c Command) prepare() (*exec.Cmd, backend, error) {
	if c.Sandbox == nil {
		cmd := c.plain()
		return cmd, &plain{cmd: cmd, detached: c.Detached}, nil
	}
	if !armed.Load() {
		return nil, nil, errors.New("this binary did not call sandbox.Main")
	}
	l, err := c.launch()
	if err != nil {
		return nil, nil, err
	}
	return l.cmd, l, nil
}

// command makes the exec.Cmd. The environment is never nil, which to os/exec
// would mean ours.
func (c Command) command(path string, argv, env []string) *exec.Cmd {
	return &exec.Cmd{
		Path: path, Args: argv, Env: append([]string{}, env...),
		Stdin: c.Stdin, Stdout: c.Stdout, Stderr: c.Stderr, ExtraFiles: c.ExtraFiles,
		WaitDelay: stragglers,
	}
}

// run starts, completes and reaps one process from one operating system thread
// that lives as long as the process does: a parent-death signal is sent at the
// death of the thread that did the clone, not of the program it belongs to, and
// the runtime ends threads. How the start went goes to begun.
func (p *Process) run(ctx context.Context, cmd *exec.Cmd, begun chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := time.Now()
	if err := cmd.Start(); err != nil {
		p.backend.close()
		begun <- err
		return
	}
	p.pid = cmd.Process.Pid
	stop := context.AfterFunc(ctx, func() { _ = p.Kill() })
	defer stop()
	if err := p.backend.handshake(); err != nil {
		_ = p.Kill()
		_ = cmd.Wait()
		p.end()
		p.backend.close()
		begun <- err
		return
	}
	if l, sandboxed := p.backend.(*launch); sandboxed {
		p.pid, p.listener = l.pid, l.listener
	}
	begun <- nil

	status, known := p.backend.outcome()
	p.end()
	err := cmd.Wait()
	p.exit = exitOf(cmd.ProcessState, time.Since(began))
	if known {
		p.exit = p.exit.with(status)
	}
	if l, sandboxed := p.backend.(*launch); sandboxed {
		p.exit.Memory = l.group.memory()
	}
	if !isExit(err) {
		p.err = fmt.Errorf("waiting for process %d: %w", p.pid, err)
	}
	p.backend.close()
	close(p.done)
}

// end makes later signals do nothing.
func (p *Process) end() {
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
}

// isExit reports whether an error of Wait is about the program alone.
func isExit(err error) bool {
	_, exited := errors.AsType[*exec.ExitError](err)
	return err == nil || exited || errors.Is(err, exec.ErrWaitDelay)
}

func gone(err error) bool {
	return errors.Is(err, os.ErrProcessDone) || errors.Is(err, syscall.ESRCH)
}
