package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// The launcher is this binary started again. It reads its spec from a socket,
// confines itself step by step and then becomes the program, so that nothing of
// it is left in the sandbox.
const (
	launcherName = "terrier-sandbox" // its argv[0]
	roleEnter    = "enter"           // confine yourself and become the program
	roleReap     = "reap"            // start the program in a sandbox and outlive everything in it
	roleInit     = "init"            // already in a sandbox: start the programs of a session
)

// armed says that Main was called. Without it a binary that is started again as
// the launcher would be itself again, start a sandbox again, and so on.
var armed atomic.Bool

// Main must be called first in the main function of a binary that starts
// sandboxes. In the launcher of a sandbox it never returns; else it does
// nothing.
func Main() {
	if len(os.Args) != 3 || os.Args[0] != launcherName {
		armed.Store(true)
		return
	}
	// Rights, limits and walls belong to a thread until the program takes over.
	runtime.LockOSThread()
	fd, err := strconv.Atoi(os.Args[2])
	if err != nil || fd < 3 {
		os.Exit(2)
	}
	l := conn(fd)
	// Descriptors that were left open in the starter stay out of the sandbox.
	// The program's own descriptors lie below that of the connection.
	if err := unix.CloseRange(uint(fd), 1<<31-1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		_ = l.send(failed, []byte("closing descriptors: "+err.Error()), -1)
		os.Exit(2)
	}
	switch os.Args[1] {
	case roleEnter:
		err = enter(l)
	case roleReap:
		err = reap(l, fd-3)
	case roleInit:
		err = runInit(l)
	default:
		err = fmt.Errorf("unknown role %q", os.Args[1])
	}
	if err != nil {
		_ = l.send(failed, []byte(err.Error()), -1)
		os.Exit(1)
	}
	os.Exit(0)
}

// receiveSpec waits for the spec. A starter that died first ends the launcher.
func receiveSpec(l conn) (*spec, error) {
	m, body, _, err := l.receive()
	if err != nil {
		return nil, fmt.Errorf("waiting for the spec: %w", err)
	}
	o := new(spec)
	if m != specified || json.Unmarshal(body, o) != nil {
		return nil, errors.New("the spec is not readable")
	}
	return o, nil
}

// enter builds and enters the sandbox of the spec. It returns only with an
// error, or at the end of a probe.
func enter(l conn) error {
	o, err := receiveSpec(l)
	if err != nil {
		return err
	}
	listener, err := o.surround()
	if err != nil {
		return err
	}
	if err := o.confine(); err != nil {
		return err
	}
	// Before ready, see protocol.go; after the change of user, which
	// clears it.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("asking to die with the starter: %w", err)
	}
	if err := l.send(ready, nil, listener); err != nil {
		return err
	}
	m, body, _, err := l.receive()
	if err != nil || m != proceed {
		return errors.New("the starter is gone")
	}
	var more [][]byte // of the environment, known only now
	if err := json.Unmarshal(body, &more); err != nil {
		return fmt.Errorf("reading the rest of the environment: %w", err)
	}
	o.Env = append(o.Env, more...)
	if o.Probe {
		return nil
	}
	err = syscall.Exec(string(o.Path), textsOf(o.Argv), textsOf(o.Env))
	return fmt.Errorf("executing %s: %w", o.Path, err)
}

// surround makes what the program will see: network, file system. The listener
// is -1 when none was asked for.
func (o *spec) surround() (listener int, err error) {
	listener = -1
	unix.Umask(0)
	if o.Level == Full {
		// All of it is for namespaces of our own. Being their first process is
		// the proof; anywhere else it would be done to the machine.
		if os.Getpid() != 1 {
			return listener, errors.New("not in a process id namespace of our own")
		}
		if err := unix.Sethostname([]byte("run")); err != nil {
			return listener, fmt.Errorf("naming the host: %w", err)
		}
		if o.Loopback {
			if err := bringUp("lo"); err != nil {
				return listener, fmt.Errorf("bringing the loopback up: %w", err)
			}
		}
		if o.Listen {
			if listener, err = listenLoopback(); err != nil {
				return listener, fmt.Errorf("listening on the loopback: %w", err)
			}
		}
		if err := o.Tree.build(); err != nil {
			return listener, err
		}
	}
	unix.Umask(0o022)
	return listener, nil
}

// confine gives up every right that the program must not have. The order
// matters: each step needs a right that a later one gives up.
func (o *spec) confine() error {
	steps := []struct {
		doing string
		do    func() error
	}{
		{"handing over the pipes", o.chownPipes},
		{"locking the secure bits", o.lockBits},
		{"dropping the bounding set", o.dropBounds},
		{"changing the user", o.changeUser},
		{"dropping the capabilities", dropCapabilities},
		{"entering " + o.Dir, func() error { return unix.Chdir(o.Dir) }},
		{"giving up new privileges", func() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }},
		{"setting the limits", o.Limits.set},
		{"restricting the file system", o.Landlock.restrict},
		{"filtering system calls", func() error {
			if o.Level < Kernel {
				return nil
			}
			return newFilter(o.UDP, o.IPC).install()
		}},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			return fmt.Errorf("%s: %w", s.doing, err)
		}
	}
	return nil
}

// bringUp sets a network interface up.
func bringUp(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	request, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}

// listenLoopback makes a TCP listener on a free port.
func listenLoopback() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte(net.IPv4(127, 0, 0, 1).To4())}); err != nil {
		return -1, err
	}
	return fd, unix.Listen(fd, unix.SOMAXCONN)
}
