// Package apart runs a test once more, in a process with a disk or a network of its own, or
// a part of a test on a thread without the rights of root. It knows nothing of what is
// tested, so that every package's tests can use it.
//
// Start reading at Disk, Network and Unprivileged.
package apart

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// variable is set in the process that runs the test once more.
const variable = "TEST_APART"

// Disk runs the calling test once more, with a disk of this size, and returns where
// that is; elsewhere it returns nothing. The disk is mounted in a namespace that
// ends with the process.
func Disk(t *testing.T, megabytes int, mode os.FileMode) string {
	t.Helper()
	dir := again(t, unix.CLONE_NEWNS)
	if dir == "" {
		return ""
	}
	if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=%#o", megabytes, mode))); err != nil {
		t.Fatalf("mounting a small disk: %v", err)
	}
	return dir
}

// Network runs the calling test once more, with loopback as its only network, and reports
// whether it is there. Every port is free in it, and may be listened on.
func Network(t *testing.T) bool {
	t.Helper()
	if again(t, unix.CLONE_NEWNET) == "" {
		return false
	}
	if err := bringUp("lo"); err != nil {
		t.Fatalf("setting loopback up: %v", err)
	}
	return true
}

// Unprivileged runs f on a thread without capabilities, to which the permissions of files
// apply as to that of an ordinary user.
func Unprivileged(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with this function
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&header, &none[0]); err != nil {
			t.Errorf("dropping the capabilities of a thread: %v", err)
			return
		}
		f()
	}()
	<-done
}

// again runs the calling test once more, in a new namespace, and returns a directory
// there; elsewhere it returns nothing.
func again(t *testing.T, namespace uintptr) string {
	t.Helper()
	if dir := os.Getenv(variable); dir != "" {
		return dir
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	inner := exec.CommandContext(t.Context(), self, "-test.run", "^"+t.Name()+"$", "-test.v")
	inner.Env = append(os.Environ(), variable+"="+t.TempDir())
	inner.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespace, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		inner.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		inner.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		inner.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	out, err := inner.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("in a namespace of its own: %v\n%s", err, out)
	}
	return ""
}

func bringUp(network string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	request, err := unix.NewIfreq(network)
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}
