package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Self is this binary, even if its file was replaced since. As the path of a
// boxed program it is started once more in there, where no file of it needs to
// be shown.
const Self = self

const self = "/proc/self/exe"

// launch is a box on its way up, and then up, on the starter's side.
type launch struct {
	orders   *orders
	cmd      *exec.Cmd
	line     line
	theirs   *os.File // the launcher's end, until it has it
	group    *cgroup  // nil without one
	listener net.Listener
	tell     func(net.Addr) []string

	kept   bool // the launcher is a keeper
	pid    int  // the program's
	handle int  // of the kept program; its process is not our child
}

// launch prepares everything but the process.
func (c Command) launch() (*launch, error) {
	b := c.Box
	l := &launch{group: newCgroup(b), kept: b.Level < Full, handle: -1, tell: c.Listening}
	l.orders = c.orders(l.group)
	if b.Listen && !l.orders.Listen {
		if err := l.listenHere(); err != nil {
			l.close()
			return nil, err
		}
	}
	role := roleEnter
	if l.kept {
		role = roleKeep
	}
	if err := l.connect(c, role); err != nil {
		l.close()
		return nil, err
	}
	attr := &syscall.SysProcAttr{Setsid: true}
	if b.Level == Full {
		attr.Cloneflags = namespaces(b.Network)
		mapUsers(attr, l.orders.User)
	}
	l.cmd.SysProcAttr = attr
	return l, nil
}

// launcherEnviron is all that a launcher has of an environment: what configures
// our runtime must not configure it. It does one thing after another and then
// becomes the program, and is started for each: with one processor it need not
// ask the system how many there are, and starts fewer threads.
var launcherEnviron = []string{"GOMAXPROCS=1"}

// connect makes the line and the launcher's command, which gets the line as
// its last descriptor.
func (l *launch) connect(c Command, role string) error {
	ours, theirs, err := newLine()
	if err != nil {
		return err
	}
	l.line, l.theirs = ours, os.NewFile(uintptr(theirs), "line")
	fd := strconv.Itoa(3 + len(c.ExtraFiles))
	l.cmd = c.command(self, []string{launcherName, role, fd}, launcherEnviron)
	l.cmd.WaitDelay = 0 // a box ends whole, and its output with it
	l.cmd.ExtraFiles = append(l.cmd.ExtraFiles[:len(c.ExtraFiles):len(c.ExtraFiles)], l.theirs)
	return nil
}

// listenHere makes the listener where the box has our network.
func (l *launch) listenHere() error {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening on the loopback: %w", err)
	}
	l.listener = listener
	if port := listener.Addr().(*net.TCPAddr).Port; !l.orders.Landlock.AnyPort {
		l.orders.Landlock.Connect = append(l.orders.Landlock.Connect[:len(l.orders.Landlock.Connect):len(l.orders.Landlock.Connect)], uint16(port))
	}
	return nil
}

func namespaces(n Network) uintptr {
	flags := uintptr(unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS)
	if n == NoNetwork {
		flags |= unix.CLONE_NEWNET
	}
	return flags
}

// mapUsers makes the launcher root of its namespace, else execve would take the
// rights it needs for mounting. As root of the host too it can reach the host
// paths; the user it then becomes is the only other one that exists inside.
func mapUsers(attr *syscall.SysProcAttr, user int) {
	attr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	if user != 0 {
		other := syscall.SysProcIDMap{ContainerID: user, HostID: user, Size: 1}
		attr.UidMappings = append(attr.UidMappings, other)
		attr.GidMappings = append(attr.GidMappings, other)
		attr.GidMappingsEnableSetgroups = true
	}
}

// converse leads the started launcher to where the program runs.
func (l *launch) converse() error {
	_ = l.theirs.Close() // else the end of the stream would never be seen
	l.theirs = nil
	l.pid = l.cmd.Process.Pid
	if err := l.group.add(l.pid); err != nil {
		return err
	}
	if err := l.line.sayJSON(orderly, l.orders); err != nil {
		return fmt.Errorf("telling the launcher: %w", err)
	}
	_, listener, err := l.expect(ready)
	if err != nil {
		return err
	}
	if l.orders.Listen {
		if err := l.adopt(listener); err != nil {
			return err
		}
	}
	var more [][]byte
	if l.tell != nil && l.listener != nil {
		more = bytesOf(l.tell(l.listener.Addr()))
	}
	if err := l.line.sayJSON(proceed, more); err != nil {
		return fmt.Errorf("telling the launcher: %w", err)
	}
	body, _, err := l.expect(started)
	if !l.kept && errors.Is(err, io.EOF) {
		return nil // it became the program
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, &l.pid); err != nil {
		return fmt.Errorf("reading the program's process id: %w", err)
	}
	l.handle, err = unix.PidfdOpen(l.pid, 0)
	if err != nil && !gone(err) {
		return fmt.Errorf("opening process %d: %w", l.pid, err)
	}
	return nil
}

// expect reads one message of one kind.
func (l *launch) expect(want message) ([]byte, int, error) {
	m, body, fd, err := l.line.hear()
	switch {
	case err != nil:
		return nil, -1, fmt.Errorf("the launcher ended early: %w", err)
	case m == failed:
		return nil, -1, errors.New(string(body))
	case m != want:
		return nil, -1, fmt.Errorf("the launcher said %q, not %q", m, want)
	}
	return body, fd, nil
}

// adopt makes the launcher's listener ours.
func (l *launch) adopt(fd int) error {
	if fd < 0 {
		return errors.New("the launcher sent no listener")
	}
	f := os.NewFile(uintptr(fd), "listener")
	defer func() { _ = f.Close() }()
	listener, err := net.FileListener(f)
	if err != nil {
		return fmt.Errorf("taking the box's listener over: %w", err)
	}
	l.listener = listener
	return nil
}

// signal reaches the program alone.
func (l *launch) signal(s syscall.Signal) error {
	switch {
	case !l.kept:
		return l.cmd.Process.Signal(s)
	case l.handle < 0:
		return unix.ESRCH // it had ended before it could be opened
	default:
		return unix.PidfdSendSignal(l.handle, s, nil, 0)
	}
}

// kill ends the box. The first process of a namespace takes all others with it;
// a keeper ends all others when nobody is on the line.
func (l *launch) kill() error {
	if l.kept {
		return l.line.hangUp()
	}
	return l.cmd.Process.Kill()
}

// outcome waits for what a keeper has to say about the program's end.
func (l *launch) outcome() (status syscall.WaitStatus, known bool) {
	if !l.kept {
		awaitExit(l.cmd.Process.Pid)
		return 0, false
	}
	body, _, err := l.expect(ended)
	if err != nil || json.Unmarshal(body, &status) != nil {
		return 0, false
	}
	return status, true
}

// close gives back what the box held.
func (l *launch) close() {
	if l.theirs != nil {
		_ = l.theirs.Close()
	}
	if l.cmd != nil {
		l.line.close()
	}
	if l.handle >= 0 {
		_ = unix.Close(l.handle)
	}
	if l.listener != nil {
		_ = l.listener.Close()
	}
	l.group.remove()
}
