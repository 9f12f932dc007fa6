package sandbox

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// landlock is a ruleset in the words of a sandbox. The kernel's Landlock is
// used as far as it goes: a right that it does not know yet is left out.
type landlock struct {
	On      bool
	Read    []string // trees to read and execute from
	Write   []string // trees to do anything in but make devices
	Devices []string // directories or files to read and write, nothing more

	LimitTCP bool     // binding and connecting are limited to the below
	Connect  []uint16 // ports; with AnyPort all
	AnyPort  bool
}

// landlock of a sandbox. In a tree of its own it is a second wall behind the
// mounts; below Full it is the wall.
func (b *Config) landlock() landlock {
	l := landlock{
		On: true, Read: []string{"/"}, Write: []string{b.workInside(), "/tmp", "/home", shm}, Devices: []string{"/dev"},
		LimitTCP: b.Network == HostNetwork || b.Level < Full,
		Connect:  b.Ports,
		AnyPort:  b.Network == HostNetwork && len(b.Ports) == 0,
	}
	if b.Level < Full {
		l.Read = append(append([]string{}, systemTrees...), systemFiles...)
		l.Read = append(append(l.Read, resolverFiles...), "/etc/passwd", "/etc/group")
		for _, bind := range b.ReadOnly {
			l.Read = append(l.Read, bind.Host)
		}
		l.Write = []string{b.Work, b.scratch()}
		if b.OwnShm {
			l.Write = append(l.Write, shm)
		}
		l.Devices = devices
	}
	l.Write = append(l.Write, b.Writable...)
	return l
}

// shm is where the C library keeps semaphores and shared memory that have names.
const shm = "/dev/shm"

const (
	readRights   = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	deviceRights = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	nodeRights   = unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	// fileRights are those that exist for a file; the rest are a directory's.
	fileRights = deviceRights | unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	netRights  = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	scopes     = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL

	rulePort = 2 // LANDLOCK_RULE_NET_PORT
)

// landlockVersion is the kernel's, 0 without Landlock.
func landlockVersion() int {
	v, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(v)
}

// knownRights are the file rights of a version of Landlock.
func knownRights(version int) uint64 {
	known := uint64(unix.LANDLOCK_ACCESS_FS_REFER - 1)
	for _, since := range []struct {
		version int
		right   uint64
	}{
		{2, unix.LANDLOCK_ACCESS_FS_REFER},
		{3, unix.LANDLOCK_ACCESS_FS_TRUNCATE},
		{5, unix.LANDLOCK_ACCESS_FS_IOCTL_DEV},
		{9, unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX},
	} {
		if version >= since.version {
			known |= since.right
		}
	}
	return known
}

// restrict confines this thread. It needs no_new_privs.
func (l landlock) restrict() error {
	version := landlockVersion()
	if !l.On || version == 0 {
		return nil
	}
	known := knownRights(version)
	attr := unix.LandlockRulesetAttr{Handled_access_fs: known}
	if l.LimitTCP && version >= 4 {
		attr.Handled_access_net = netRights
		if l.AnyPort {
			attr.Handled_access_net &^= unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
		}
	}
	if version >= 6 {
		attr.Scoped = scopes
	}
	fd, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return fmt.Errorf("making a Landlock ruleset: %w", errno)
	}
	ruleset := int(fd)
	defer func() { _ = unix.Close(ruleset) }()
	if err := l.allowTrees(ruleset, known); err != nil {
		return err
	}
	if attr.Handled_access_net != 0 {
		if err := l.allowPorts(ruleset, attr.Handled_access_net); err != nil {
			return err
		}
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return fmt.Errorf("entering the Landlock ruleset: %w", errno)
	}
	return nil
}

func (l landlock) allowTrees(ruleset int, known uint64) error {
	for _, group := range []struct {
		paths  []string
		rights uint64
	}{
		{l.Read, readRights},
		{l.Write, known &^ nodeRights},
		{l.Devices, deviceRights},
	} {
		for _, p := range group.paths {
			if err := allowTree(ruleset, p, group.rights&known); err != nil {
				return fmt.Errorf("allowing %s with Landlock: %w", p, err)
			}
		}
	}
	return nil
}

// allowTree grants rights below a path, or on it if it is a file. What does not
// exist needs no rule.
func allowTree(ruleset int, path string, rights uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= fileRights
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	return addRule(ruleset, unix.LANDLOCK_RULE_PATH_BENEATH, unsafe.Pointer(&rule))
}

// allowPorts allows what the sandbox may connect to, and binding to a port that
// the kernel picks: a program that could choose one could pass for a service of
// the host that is just being restarted.
func (l landlock) allowPorts(ruleset int, handled uint64) error {
	ports := map[uint16]uint64{0: unix.LANDLOCK_ACCESS_NET_BIND_TCP}
	for _, p := range l.Connect {
		ports[p] |= unix.LANDLOCK_ACCESS_NET_CONNECT_TCP & handled
	}
	for port, rights := range ports {
		if rights == 0 {
			continue
		}
		rule := struct{ access, port uint64 }{rights, uint64(port)}
		if err := addRule(ruleset, rulePort, unsafe.Pointer(&rule)); err != nil {
			return fmt.Errorf("allowing port %d with Landlock: %w", port, err)
		}
	}
	return nil
}

func addRule(ruleset int, kind uintptr, rule unsafe.Pointer) error {
	if _, _, errno := unix.RawSyscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), kind, uintptr(rule), 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}
