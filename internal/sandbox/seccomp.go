package sandbox

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A sandboxed program's system calls pass a filter. Most calls are allowed,
// since an engine, its providers and whatever a module runs need most of them;
// what is refused opens doors around the other walls or is a large and rarely
// needed part of the kernel. A call newer than the newest one reviewed here
// looks as if this kernel did not have it.
const newestReviewed = unix.SYS_FILE_SETATTR

// refused calls fail with EPERM.
var refused = append([]uint32{
	// Other processes' memory and descriptors.
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_GETFD, unix.SYS_KCMP,
	unix.SYS_PROCESS_MADVISE,
	// Namespaces and mounts.
	unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT,
	unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_OPEN_TREE_ATTR, unix.SYS_FSOPEN, unix.SYS_FSCONFIG,
	unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_NAME_TO_HANDLE_AT,
	// Key rings are not namespaced as a whole.
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL,
	// Code in the kernel, and looking into it.
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_FANOTIFY_INIT, unix.SYS_SYSLOG,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD,
	// The machine.
	unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX,
	unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_VHANGUP,
	unix.SYS_MBIND, unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES,
}, refusedHere...)

// refusedShared calls fail with EPERM in a shared sandbox that has no IPC namespace of its
// own: what they make has no path, outlives the programs, and would be found by the next
// ones. Databases and fakeroot use them, so any other sandbox has them.
var refusedShared = []uint32{unix.SYS_SHMGET, unix.SYS_SEMGET, unix.SYS_MSGGET, unix.SYS_MQ_OPEN}

// missing calls fail with ENOSYS, upon which programs use an older one. The
// flags of clone3 are in memory, where a filter cannot look.
var missing = []uint32{
	unix.SYS_CLONE3, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
}

// newNamespaces are the flags of clone that make namespaces.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// Offsets into struct seccomp_data. Only the low half of an argument matters:
// the kernel takes an int or a flag below 1<<32 from each that is looked at.
const (
	dataNumber = 0
	dataArch   = 4
	dataArgs   = 16
)

const (
	allow         = unix.SECCOMP_RET_ALLOW
	notPermitted  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	notSupported  = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	noFamily      = unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)
	noProtocol    = unix.SECCOMP_RET_ERRNO | uint32(unix.EPROTONOSUPPORT)
	socketTypes   = 0xf // SOCK_CLOEXEC and SOCK_NONBLOCK are above it
	protocolTCP   = unix.IPPROTO_TCP
	protocolUDP   = unix.IPPROTO_UDP
	terminalInput = unix.TIOCSTI
)

// filter is a program for the kernel's filter machine. Calls whose arguments
// matter come first: the kernel remembers per call number that the answer is
// always yes, so only those ever run through the list again.
type filter []unix.SockFilter

func newFilter(udp, ipc bool) filter {
	var f filter
	f.load(dataArch)
	f.unless(unix.BPF_JEQ, auditArch, notSupported)
	f.load(dataNumber)
	f.when(unix.BPF_JGT, newestReviewed, notSupported)
	f.call(unix.SYS_SOCKET, socketRules(udp))
	f.call(unix.SYS_CLONE, filter{}.arg(0).on(unix.BPF_JSET, newNamespaces, notPermitted).answer(allow))
	f.call(unix.SYS_IOCTL, filter{}.arg(1).on(unix.BPF_JEQ, terminalInput, notPermitted).
		on(unix.BPF_JEQ, unix.TIOCLINUX, notPermitted).answer(allow))
	for _, nr := range missing {
		f.when(unix.BPF_JEQ, nr, notSupported)
	}
	for _, nr := range refused {
		f.when(unix.BPF_JEQ, nr, notPermitted)
	}
	if !ipc {
		for _, nr := range refusedShared {
			f.when(unix.BPF_JEQ, nr, notPermitted)
		}
	}
	return f.answer(allow)
}

// socketRules allow unix sockets, TCP, UDP and the routing netlink that
// resolvers ask for addresses. So no vsock to the hypervisor, no raw or packet
// socket, no MPTCP, which Landlock's TCP rules do not see, no kernel crypto.
func socketRules(udp bool) filter {
	inet := filter{}.arg(1).masked(socketTypes).on(unix.BPF_JEQ, unix.SOCK_RAW, notPermitted)
	if !udp {
		inet = inet.on(unix.BPF_JEQ, unix.SOCK_DGRAM, notPermitted)
	}
	inet = inet.arg(2).on(unix.BPF_JEQ, 0, allow).on(unix.BPF_JEQ, protocolTCP, allow).
		on(unix.BPF_JEQ, protocolUDP, allow).answer(noProtocol)

	rules := filter{}.arg(0).on(unix.BPF_JEQ, unix.AF_UNIX, allow)
	rules.call(unix.AF_NETLINK, filter{}.arg(2).on(unix.BPF_JEQ, unix.NETLINK_ROUTE, allow).answer(noProtocol))
	rules.call(unix.AF_INET, inet)
	rules.call(unix.AF_INET6, inet)
	return rules.answer(noFamily)
}

func (f *filter) load(offset uint32) {
	*f = append(*f, unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset})
}

// when answers if the loaded word compares so.
func (f *filter) when(compare uint16, k, answer uint32) { *f = f.on(compare, k, answer) }

// unless answers if it does not.
func (f *filter) unless(compare uint16, k, answer uint32) {
	*f = append(*f, unix.SockFilter{Code: unix.BPF_JMP | compare | unix.BPF_K, Jt: 1, K: k})
	*f = f.answer(answer)
}

// call runs rules, which always answer, if the loaded word is k.
func (f *filter) call(k uint32, rules filter) {
	*f = append(*f, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: uint8(len(rules)), K: k})
	*f = append(*f, rules...)
}

func (f filter) arg(n uint32) filter {
	f.load(dataArgs + 8*n)
	return f
}

func (f filter) masked(mask uint32) filter {
	return append(f, unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: mask})
}

func (f filter) on(compare uint16, k, answer uint32) filter {
	f = append(f, unix.SockFilter{Code: unix.BPF_JMP | compare | unix.BPF_K, Jf: 1, K: k})
	return f.answer(answer)
}

func (f filter) answer(a uint32) filter {
	return append(f, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: a})
}

// install applies the filter to this thread for ever. It needs no_new_privs.
func (f filter) install() error {
	prog := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	if _, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog))); errno != 0 {
		return fmt.Errorf("installing the system call filter: %w", errno)
	}
	return nil
}

// filters reports whether the kernel has system call filters.
func filters() bool {
	action := uint32(unix.SECCOMP_RET_ERRNO)
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	return errno == 0
}
