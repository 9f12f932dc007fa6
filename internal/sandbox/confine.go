package sandbox

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls below are made raw, on one thread. The syscall package makes them
// on every thread of the process, which costs more and is not needed: execve
// keeps this thread alone.

// Secure bits: no right for root, none through an ambient set, and no way to
// change that. The two bits that are only locked are locked at zero.
const (
	noRoot             = 1 << 0
	noRootLocked       = 1 << 1
	noSetuidFixLocked  = 1 << 3
	keepCapsLocked     = 1 << 5
	noAmbientRaise     = 1 << 6
	noAmbientLocked    = 1 << 7
	secureBits         = noRoot | noRootLocked | noSetuidFixLocked | keepCapsLocked | noAmbientRaise | noAmbientLocked
	highestCapability  = 63
	capabilityVersion3 = unix.LINUX_CAPABILITY_VERSION_3
)

// chownPipes lets the program open its standard streams again by name, as
// /dev/stderr: a pipe belongs to who made it.
func (o *spec) chownPipes() error {
	if o.User == 0 {
		return nil
	}
	for fd := range 3 {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
			continue
		}
		if err := unix.Fchown(fd, o.User, o.User); err != nil {
			return err
		}
	}
	return nil
}

// lockBits works only with rights over the user namespace: root's or those of
// a namespace's creator.
func (o *spec) lockBits() error {
	if !o.privileged() {
		return nil
	}
	return unix.Prctl(unix.PR_SET_SECUREBITS, secureBits, 0, 0, 0)
}

func (o *spec) dropBounds() error {
	if !o.privileged() {
		return nil
	}
	for c := range uintptr(highestCapability + 1) {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if err == unix.EINVAL { // beyond this kernel's last one
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (o *spec) privileged() bool { return o.Level == Full || o.User != 0 }

func (o *spec) changeUser() error {
	if o.User == 0 {
		return nil
	}
	id := uintptr(o.User)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
		return errno
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, id, id, id); errno != 0 {
		return errno
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, id, id, id); errno != 0 {
		return errno
	}
	return nil
}

func dropCapabilities() error {
	header := unix.CapUserHeader{Version: capabilityVersion3}
	var none [2]unix.CapUserData
	return unix.Capset(&header, &none[0])
}

// set lowers the limits; none is ever raised.
func (r rlimits) set() error {
	for _, limit := range []struct {
		resource int
		value    uint64
		zero     bool
	}{
		{unix.RLIMIT_CORE, 0, true},
		{unix.RLIMIT_FSIZE, r.FileBytes, false},
		{unix.RLIMIT_DATA, r.Data, false},
		{unix.RLIMIT_NOFILE, r.OpenFiles, false},
		// Counted per user and user namespace: at Full that is the sandbox.
		{unix.RLIMIT_NPROC, r.Processes, false},
	} {
		if limit.value == 0 && !limit.zero {
			continue
		}
		if err := lower(limit.resource, limit.value); err != nil {
			return err
		}
	}
	return nil
}

func lower(resource int, value uint64) error {
	var now unix.Rlimit
	if _, _, errno := unix.RawSyscall6(unix.SYS_PRLIMIT64, 0, uintptr(resource), 0, uintptr(unsafe.Pointer(&now)), 0, 0); errno != 0 {
		return errno
	}
	value = min(value, now.Max)
	// By way of syscall, which would else put back the number of open files
	// that the runtime found at its start.
	return syscall.Setrlimit(resource, &syscall.Rlimit{Cur: value, Max: value})
}
