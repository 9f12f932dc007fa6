package sandbox

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
// sandboxed program it is started once more in there, where no file of it needs
// to be shown.
const Self = self

const self = "/proc/self/exe"

// launch is a sandbox that is being built, and then runs, on the starter's side.
type launch struct {
	spec     *spec
	cmd      *exec.Cmd
	conn     conn
	theirs   *os.File // the launcher's end, until it has it
	group    *cgroup  // nil without one
	listener net.Listener
	tell     func(net.Addr) []string

	reaped bool // the launcher is a reaper
	pid    int  // the program's
	handle int  // of the kept program; its process is not our child
}

// launch prepares everything but the process.
func (c Command) launch() (*launch, error) {
	b := c.Sandbox
	l := &launch{group: newCgroup(b), reaped: b.Level < Full, handle: -1, tell: c.Listening}
	l.spec = c.spec(l.group)
	if b.Listen && !l.spec.Listen {
		if err := l.listenHere(); err != nil {
			l.close()
			return nil, err
		}
	}
	role := roleEnter
	if l.reaped {
		role = roleReap
	}
	if err := l.connect(c, role); err != nil {
		l.close()
		return nil, err
	}
	attr := &syscall.SysProcAttr{Setsid: true}
	if b.Level == Full {
		attr.Cloneflags = namespaces(b.Network)
		mapUsers(attr, l.spec.User)
	}
	l.cmd.SysProcAttr = attr
	return l, nil
}

// launcherEnviron is all that a launcher has of an environment: what configures
// our runtime must not configure it. It does one thing after another and then
// becomes the program, and is started for each: with one processor it need not
// ask the system how many there are, and starts fewer threads.
var launcherEnviron = []string{"GOMAXPROCS=1"}

// connect makes the connection and the launcher's command, which gets the
// connection as its last descriptor.
func (l *launch) connect(c Command, role string) error {
	ours, theirs, err := newConn()
	if err != nil {
		return err
	}
	l.conn, l.theirs = ours, os.NewFile(uintptr(theirs), "conn")
	fd := strconv.Itoa(3 + len(c.ExtraFiles))
	l.cmd = c.command(self, []string{launcherName, role, fd}, launcherEnviron)
	l.cmd.WaitDelay = 0 // a sandbox ends whole, and its output with it
	l.cmd.ExtraFiles = append(l.cmd.ExtraFiles[:len(c.ExtraFiles):len(c.ExtraFiles)], l.theirs)
	return nil
}

// listenHere makes the listener where the sandbox has our network.
func (l *launch) listenHere() error {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening on the loopback: %w", err)
	}
	l.listener = listener
	if port := listener.Addr().(*net.TCPAddr).Port; !l.spec.Landlock.AnyPort {
		l.spec.Landlock.Connect = append(l.spec.Landlock.Connect[:len(l.spec.Landlock.Connect):len(l.spec.Landlock.Connect)], uint16(port))
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

// handshake sends the launcher its spec and returns when the program runs.
func (l *launch) handshake() error {
	_ = l.theirs.Close() // else the end of the stream would never be seen
	l.theirs = nil
	l.pid = l.cmd.Process.Pid
	if err := l.group.add(l.pid); err != nil {
		return err
	}
	if err := l.conn.sendJSON(specified, l.spec); err != nil {
		return fmt.Errorf("sending the launcher its spec: %w", err)
	}
	_, listener, err := l.expect(ready)
	if err != nil {
		return err
	}
	if l.spec.Listen {
		if err := l.adopt(listener); err != nil {
			return err
		}
	}
	var more [][]byte
	if l.tell != nil && l.listener != nil {
		more = bytesOf(l.tell(l.listener.Addr()))
	}
	if err := l.conn.sendJSON(proceed, more); err != nil {
		return fmt.Errorf("sending the launcher the environment: %w", err)
	}
	body, _, err := l.expect(started)
	if !l.reaped && errors.Is(err, io.EOF) {
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
	m, body, fd, err := l.conn.receive()
	switch {
	case err != nil:
		return nil, -1, fmt.Errorf("the launcher ended early: %w", err)
	case m == failed:
		return nil, -1, errors.New(string(body))
	case m != want:
		return nil, -1, fmt.Errorf("the launcher sent %q, not %q", m, want)
	}
	return body, fd, nil
}

// adopt takes the launcher's listener over.
func (l *launch) adopt(fd int) error {
	if fd < 0 {
		return errors.New("the launcher sent no listener")
	}
	f := os.NewFile(uintptr(fd), "listener")
	defer func() { _ = f.Close() }()
	listener, err := net.FileListener(f)
	if err != nil {
		return fmt.Errorf("taking the sandbox's listener over: %w", err)
	}
	l.listener = listener
	return nil
}

// signal reaches the program alone.
func (l *launch) signal(s syscall.Signal) error {
	switch {
	case !l.reaped:
		return l.cmd.Process.Signal(s)
	case l.handle < 0:
		return unix.ESRCH // it had ended before it could be opened
	default:
		return unix.PidfdSendSignal(l.handle, s, nil, 0)
	}
}

// kill ends the sandbox. The first process of a namespace takes all others with
// it; a reaper ends all others when the connection is closed.
func (l *launch) kill() error {
	if l.reaped {
		return l.conn.closeWrite()
	}
	return l.cmd.Process.Kill()
}

// outcome waits for the reaper's report of how the program ended.
func (l *launch) outcome() (status syscall.WaitStatus, known bool) {
	if !l.reaped {
		awaitExit(l.cmd.Process.Pid)
		return 0, false
	}
	body, _, err := l.expect(ended)
	if err != nil || json.Unmarshal(body, &status) != nil {
		return 0, false
	}
	return status, true
}

// close releases what the sandbox held.
func (l *launch) close() {
	if l.theirs != nil {
		_ = l.theirs.Close()
	}
	if l.cmd != nil {
		l.conn.close()
	}
	if l.handle >= 0 {
		_ = unix.Close(l.handle)
	}
	if l.listener != nil {
		_ = l.listener.Close()
	}
	l.group.remove()
}
