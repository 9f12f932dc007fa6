package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// targets are what a hostile program goes for on the host.
type targets struct {
	Starter  int    // process id
	Private  string // a file of mode 0600 of another user
	Public   string // a world-readable file
	Outside  string // a world-writable directory
	TCP, UDP string // addresses that answer
	Unix     string // the path of a socket that every user may connect to
	Abstract string // a socket's name
	Port     int    // free on the host's loopback
}

// answerTime is how long an attempt waits for an answer. One that is stopped fails at once.
const answerTime = time.Minute

// attempts return nil when they got through.
var attempts = map[string]func(targets) error{
	"read another user's file":      func(t targets) error { return read(t.Private) },
	"read a world-readable file":    func(t targets) error { return read(t.Public) },
	"read its starter's secrets":    func(t targets) error { return read(fmt.Sprintf("/proc/%d/environ", t.Starter)) },
	"see other processes":           func(targets) error { return seeOthers() },
	"signal its starter":            func(t targets) error { return syscall.Kill(t.Starter, 0) },
	"write outside":                 func(t targets) error { return write(filepath.Join(t.Outside, "x"), os.O_CREATE) },
	"write a program":               func(targets) error { return write("/usr/bin/terrier-test", os.O_CREATE) },
	"write a kernel setting":        func(targets) error { return write("/proc/sys/kernel/core_pattern", 0) },
	"write a network setting":       func(targets) error { return write("/proc/sys/net/ipv4/ip_forward", 0) },
	"trigger the kernel":            func(targets) error { return write("/proc/sysrq-trigger", 0) },
	"read the kernel's memory":      func(targets) error { return read("/proc/kcore") },
	"read the kernel's log":         func(targets) error { return kernelLog() },
	"move itself in the kill order": func(targets) error { return write("/proc/self/oom_score_adj", 0) },
	"connect to the host by TCP":    func(t targets) error { return connect("tcp", t.TCP) },
	"connect to the host by MPTCP":  func(t targets) error { return connectMPTCP(t.TCP) },
	"reach the host by UDP":         func(t targets) error { return askUDP(t.UDP) },
	"connect to a unix socket":      func(t targets) error { return connect("unix", t.Unix) },
	"connect to an abstract socket": func(t targets) error { return connect("unix", "@"+t.Abstract) },
	"listen on a chosen port":       func(t targets) error { return listen(t.Port) },
	"make a vsock socket":           func(targets) error { return socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0) },
	"make a raw socket":             func(targets) error { return socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP) },
	"make a packet socket":          func(targets) error { return socket(unix.AF_PACKET, unix.SOCK_DGRAM, 0) },
	"make a kernel crypto socket":   func(targets) error { return socket(unix.AF_ALG, unix.SOCK_SEQPACKET, 0) },
	"make a generic netlink socket": func(targets) error { return socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_GENERIC) },
	"make a user namespace":         func(targets) error { return startWith(&syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}) },
	"trace a child":                 func(targets) error { return startWith(&syscall.SysProcAttr{Ptrace: true}) },
	"become root":                   func(targets) error { return becomeRoot() },
	"make a device":                 func(targets) error { return makeDevice() },
	"mount": func(targets) error {
		return unix.Mount("none", "/tmp", "tmpfs", 0, "")
	},
	"use io_uring": func(targets) error {
		params := make([]byte, 120)
		return rawFD(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params[0])), 0)
	},
	"leave shared memory": func(targets) error {
		return left(unix.SYS_SHMCTL, 1, unix.SYS_SHMGET, unix.IPC_PRIVATE, 4096, 0o600|unix.IPC_CREAT)
	},
	"leave semaphores": func(targets) error {
		return left(unix.SYS_SEMCTL, 2, unix.SYS_SEMGET, unix.IPC_PRIVATE, 1, 0o600|unix.IPC_CREAT)
	},
	"leave messages": func(targets) error {
		return left(unix.SYS_MSGCTL, 1, unix.SYS_MSGGET, unix.IPC_PRIVATE, 0o600|unix.IPC_CREAT, 0)
	},
	"leave a message queue": func(targets) error {
		name := [...]byte{'t', 'e', 'r', 'r', 'i', 'e', 'r', 0}
		fd, _, errno := unix.RawSyscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(&name[0])), unix.O_CREAT|unix.O_RDWR, 0o600, 0, 0, 0)
		if errno != 0 {
			return errno
		}
		_, _, _ = unix.RawSyscall(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(&name[0])), 0, 0)
		return unix.Close(int(fd))
	},
	"use the key rings": func(targets) error {
		_, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_PROCESS_KEYRING, true)
		return err
	},
	"handle page faults": func(targets) error {
		const userModeOnly = 1
		return rawFD(unix.SYS_USERFAULTFD, userModeOnly, 0, 0)
	},
	"type into a terminal": func(targets) error {
		key := byte('x')
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, 0, unix.TIOCSTI, uintptr(unsafe.Pointer(&key)))
		return throughAs(errno, unix.ENOTTY)
	},
	"clone with hidden flags": func(targets) error {
		_, _, errno := unix.Syscall(unix.SYS_CLONE3, 0, 0, 0)
		return throughAs(errno, unix.EINVAL)
	},
}

// attemptAll tries everything and prints what stopped each: "" is nothing.
func attemptAll(args []string) error {
	var t targets
	if err := json.Unmarshal([]byte(args[0]), &t); err != nil {
		return err
	}
	stopped := map[string]string{}
	for name, attempt := range attempts {
		stopped[name] = ""
		if err := attempt(t); err != nil {
			stopped[name] = err.Error()
		}
	}
	return printJSON(stopped)
}

// refusedCalls makes every call that the filter refuses, with no arguments, and
// prints those whose answer was not the filter's.
func refusedCalls([]string) error {
	var through []uint32
	for _, nr := range refused {
		if _, _, errno := unix.RawSyscall6(uintptr(nr), 0, 0, 0, 0, 0, 0); errno != unix.EPERM {
			through = append(through, nr)
		}
	}
	for _, nr := range append([]uint32{newestReviewed + 1}, missing...) {
		if _, _, errno := unix.RawSyscall6(uintptr(nr), 0, 0, 0, 0, 0, 0); errno != unix.ENOSYS {
			through = append(through, nr)
		}
	}
	return printJSON(through)
}

// left makes an object of System V, and removes it again.
func left(control, at, get, key, size, flags uintptr) error {
	id, _, errno := unix.RawSyscall(get, key, size, flags)
	if errno != 0 {
		return errno
	}
	args := [3]uintptr{}
	args[at] = unix.IPC_RMID
	if _, _, errno := unix.RawSyscall(control, id, args[1], args[2]); errno != 0 {
		return errno
	}
	return nil
}

func read(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	_, err = f.Read(make([]byte, 1))
	return errors.Join(err, f.Close())
}

// write opens a file for writing and writes nothing.
func write(path string, flags int) error {
	f, err := os.OpenFile(path, os.O_WRONLY|flags, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

func seeOthers() error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid != os.Getpid() && pid != os.Getppid() { // which in a session is the init
			return nil
		}
	}
	return errors.New("alone")
}

func kernelLog() error {
	const readAll, size = 3, 10
	_, err := unix.Klogctl(size, nil)
	if err != nil {
		return err
	}
	_, err = unix.Klogctl(readAll, make([]byte, 16))
	return err
}

func connect(network, address string) error {
	c, err := net.DialTimeout(network, address, answerTime)
	if err != nil {
		return err
	}
	return c.Close()
}

func connectMPTCP(address string) error {
	to, err := net.ResolveTCPAddr("tcp4", address)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	return unix.Connect(fd, &unix.SockaddrInet4{Port: to.Port, Addr: [4]byte(to.IP.To4())})
}

func askUDP(address string) error {
	c, err := net.Dial("udp4", address)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(answerTime))
	if _, err := c.Write([]byte("?")); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, 1))
	return err
}

func listen(port int) error {
	l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	return l.Close()
}

func socket(family, kind, protocol int) error {
	fd, err := unix.Socket(family, kind, protocol)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// startWith starts a child with attributes and ends it.
func startWith(attr *syscall.SysProcAttr) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command(os.Args[0], "exit", "0")
	cmd.SysProcAttr = attr
	if err := cmd.Start(); err != nil {
		return err
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return nil
}

func becomeRoot() error {
	runtime.LockOSThread()
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 0, 0, 0); errno != 0 {
		return errno
	}
	// Inside a user namespace the name root gives no rights: what
	// counts is the right to something.
	return write("/usr/bin/terrier-test", os.O_CREATE)
}

func makeDevice() error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	return unix.Mknod(filepath.Join(dir, "kmem"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 2)))
}

func rawFD(nr, a, b, c uintptr) error {
	fd, _, errno := unix.Syscall(nr, a, b, c)
	if errno != 0 {
		return errno
	}
	return unix.Close(int(fd))
}

// throughAs takes an error that only the kernel behind the filter gives for
// getting through.
func throughAs(errno, through syscall.Errno) error {
	if errno == through {
		return nil
	}
	return errno
}
