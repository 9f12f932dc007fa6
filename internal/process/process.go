// Package process is the only place that starts programs: plainly, for our own
// helpers, or inside a box that confines a hostile run. It knows nothing about
// engines, stacks or Kubernetes; it never starts a shell, never inherits an
// environment and never lets a program outlive what it promised.
//
// Start reading at Command and Start here, then Box. A binary that starts
// boxes calls Main first thing: the box is entered by that same binary, started
// again as the launcher.
package process

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
	"sync/atomic"
	"syscall"
	"time"
)

// Command is a program to start, with everything it will be given. Nothing is
// added: no variable of our own environment, no shell, no search of PATH.
type Command struct {
	Path string   // absolute; in a box, as seen inside it
	Args []string // without argv[0], which is Path
	Env  []string // the whole environment, NAME=value
	Dir  string   // absolute; in a box use Box.Dir

	Stdin  io.Reader // nil is /dev/null, like the two below
	Stdout io.Writer
	Stderr io.Writer

	Box        *Box       // nil: started plainly
	Detached   bool       // its own session, and it survives us; standard streams must be files
	ExtraFiles []*os.File // become descriptors 3, 4, …
}

// stragglers is how long output is still read after a plain program ended
// while its orphans hold the pipe.
const stragglers = 2 * time.Second

// Process is a started program.
type Process struct {
	pid      int
	kill     func() error // ends the program and everything that belongs to it
	signal   func(syscall.Signal) error
	listener net.Listener

	interrupted atomic.Bool
	done        chan struct{} // closed when exit and err are final
	exit        Exit
	err         error
}

// Start starts a program. When ctx ends, the program and everything in its box
// are killed; a detached one is left alone. Every started process is reaped
// whether or not Wait is called.
func Start(ctx context.Context, c Command) (*Process, error) {
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.Path, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.Path, err)
	}
	start := startPlain
	if c.Box != nil {
		start = startBoxed
	}
	p, err := start(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.Path, err)
	}
	return p, nil
}

// Listener is the listener inside the box's network, for a box with Listen;
// else nil. Its Addr is what the program connects to. It is closed when the
// program has ended.
func (p *Process) Listener() net.Listener { return p.listener }

// PID is the program's process id as we see it.
func (p *Process) PID() int { return p.pid }

// Interrupt sends one SIGINT to the program itself and never to its group: an
// engine that is interrupted once saves its state and stops its children, and
// children interrupted beside it would die under it. Later calls do nothing,
// because a second SIGINT makes an engine give up at once.
func (p *Process) Interrupt() error {
	if p.interrupted.Swap(true) {
		return nil
	}
	if err := p.signal(syscall.SIGINT); err != nil && !gone(err) {
		return fmt.Errorf("interrupting process %d: %w", p.pid, err)
	}
	return nil
}

// Kill ends the program and everything in its box at once.
func (p *Process) Kill() error {
	if err := p.kill(); err != nil && !gone(err) {
		return fmt.Errorf("killing process %d: %w", p.pid, err)
	}
	return nil
}

// Wait returns once the program has ended, its output has been read to the end
// and, in a box, nothing else is alive there. It may be called more than once.
// The error is about us, not about the program: a failing program is an Exit.
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
	case c.Detached && c.Box != nil:
		return errors.New("a boxed program dies with whoever started it and cannot be detached")
	case c.Detached && !(isFile(c.Stdin) && isFile(c.Stdout) && isFile(c.Stderr)):
		return errors.New("a detached program needs files as its standard streams")
	case c.Box != nil && c.Dir != "":
		return errors.New("the directory of a boxed program is Box.Dir")
	case c.Box != nil:
		return c.Box.check()
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

// startPlain starts a program in a process group of its own, so that Kill
// reaches its children too.
func startPlain(ctx context.Context, c Command) (*Process, error) {
	cmd := c.command(c.Path, append([]string{c.Path}, c.Args...), c.Env)
	cmd.Dir = c.Dir
	cmd.WaitDelay = stragglers
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if c.Detached {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	}
	p := &Process{done: make(chan struct{})}
	started := make(chan error)
	go p.run(cmd, started, func() error {
		p.pid = cmd.Process.Pid
		p.signal = func(s syscall.Signal) error { return cmd.Process.Signal(s) }
		p.kill = func() error { return p.ifAlive(func() error { return syscall.Kill(-p.pid, syscall.SIGKILL) }) }
		return nil
	}, func() {})
	if err := <-started; err != nil {
		return nil, err
	}
	if !c.Detached {
		p.killWhen(ctx)
	}
	return p, nil
}

// command makes the exec.Cmd. The environment is never nil, which to os/exec
// would mean ours.
func (c Command) command(path string, argv, env []string) *exec.Cmd {
	return &exec.Cmd{
		Path: path, Args: argv, Env: append([]string{}, env...),
		Stdin: c.Stdin, Stdout: c.Stdout, Stderr: c.Stderr, ExtraFiles: c.ExtraFiles,
	}
}

// run starts, completes and reaps one process from one operating system thread
// that lives as long as the process does: Pdeathsig fires at the death of the
// thread that did the clone, not of the program it belongs to, and the runtime
// ends idle threads. The error of the start goes to started.
func (p *Process) run(cmd *exec.Cmd, started chan<- error, complete func() error, finish func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := time.Now()
	if err := cmd.Start(); err != nil {
		finish()
		started <- err
		return
	}
	if err := complete(); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		finish()
		started <- err
		return
	}
	started <- nil
	err := cmd.Wait()
	p.exit = exitOf(cmd.ProcessState, time.Since(began))
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed && !errors.Is(err, exec.ErrWaitDelay) {
		p.err = fmt.Errorf("waiting for process %d: %w", p.pid, err)
	}
	finish()
	close(p.done)
}

// killWhen kills the process when ctx ends before it does.
func (p *Process) killWhen(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { _ = p.Kill() })
	var once sync.Once
	go func() {
		<-p.done
		once.Do(func() { stop() })
	}()
}

// ifAlive keeps a signal from reaching a process id that was given to another
// process after ours was reaped.
func (p *Process) ifAlive(do func() error) error {
	select {
	case <-p.done:
		return nil
	default:
		return do()
	}
}

func gone(err error) bool {
	return errors.Is(err, os.ErrProcessDone) || errors.Is(err, syscall.ESRCH)
}
