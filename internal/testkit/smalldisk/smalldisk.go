// Package smalldisk runs a test on a disk of its own that is soon full. It knows
// nothing of what is tested, so that every package's tests can use it.
package smalldisk

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const variable = "TEST_SMALL_DISK"

// Run runs the calling test once more, with a disk of this size, and returns where
// that is; elsewhere it returns nothing. The disk is mounted in a namespace that
// ends with the process.
func Run(t *testing.T, megabytes int, mode os.FileMode) string {
	t.Helper()
	if dir := os.Getenv(variable); dir != "" {
		if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=%#o", megabytes, mode))); err != nil {
			t.Fatalf("mounting a small disk: %v", err)
		}
		return dir
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	inner := exec.CommandContext(t.Context(), self, "-test.run", "^"+t.Name()+"$", "-test.v")
	inner.Env = append(os.Environ(), variable+"="+t.TempDir())
	inner.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		inner.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		inner.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		inner.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	out, err := inner.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("on a small disk: %v\n%s", err, out)
	}
	return ""
}
