package sandbox

import (
	"errors"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// plain is a program without a sandbox. It leads a process group of its own,
// which ends with it; detached, it leads a session and its group is left alone.
type plain struct {
	cmd      *exec.Cmd
	detached bool
}

func (c Command) plain() *exec.Cmd {
	cmd := c.command(c.Path, append([]string{c.Path}, c.Args...), c.Env)
	cmd.Dir = c.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if c.Detached {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	}
	return cmd
}

func (p *plain) handshake() error { return nil }

func (p *plain) signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

func (p *plain) kill() error { return syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) }

// outcome waits without reaping: as long as the leader is not reaped, its
// process id still names the group and no other.
func (p *plain) outcome() (syscall.WaitStatus, bool) {
	awaitExit(p.cmd.Process.Pid)
	if !p.detached {
		_ = p.kill()
	}
	return 0, false
}

// awaitExit returns when a child has ended, and leaves it to be reaped.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

func (p *plain) close() {}

// Become turns this process into another program, with the environment that it has. It
// returns only if it cannot.
func Become(argv []string) error { return syscall.Exec(argv[0], argv, os.Environ()) }
