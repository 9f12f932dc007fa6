package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// initialize is process 1: it furnishes the namespaces, starts supervise, and
// reaps what others leave behind.
func initialize(s state) error {
	unix.CloseOnExec(lockFD)
	if err := unix.Close(lockFD); err != nil {
		return fmt.Errorf("closing the lock: %w", err)
	}
	if err := mountAll(s); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(nodeName)); err != nil {
		return fmt.Errorf("setting the host's name: %w", err)
	}
	if err := makeNetwork(); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	child, err := os.StartProcess(self, []string{self, "--state", string(s), "supervise"}, &os.ProcAttr{
		Env:   append(os.Environ(), "TMPDIR=/run/tmp"), // what containerd mounts in passing goes too
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr, nil, os.NewFile(apiFD, "api"), os.NewFile(registryFD, "registry")},
	})
	if err != nil {
		return fmt.Errorf("starting the supervisor: %w", err)
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("waiting for processes: %w", err)
		case pid == child.Pid:
			return fmt.Errorf("the supervisor ended: %v", status)
		}
	}
}

// mountAll gives the cluster views of its own of the directories that its
// processes write to, so that nothing of them is seen outside, or left.
func mountAll(s state) error {
	// Mounts neither come in nor go out; below, volumes may be shared with pods.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("separating mounts: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	if err := remountGroups(); err != nil {
		return err
	}
	for part, target := range map[string]string{"run": "/run", "lib": "/var/lib", "log": "/var/log"} {
		if err := unix.Mount(s.path(part), target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", target, err)
		}
	}
	// The kubelet insists on setting these, and they are the whole machine's. It
	// sets files instead.
	for _, setting := range []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"} {
		target := filepath.Join("/proc/sys", setting)
		value, err := os.ReadFile(target)
		if err != nil {
			return fmt.Errorf("reading a setting of the kernel: %w", err)
		}
		copied := filepath.Join("/run", strings.ReplaceAll(setting, "/", "."))
		if err := os.WriteFile(copied, value, 0o644); err != nil {
			return fmt.Errorf("copying a setting of the kernel: %w", err)
		}
		if err := unix.Mount(copied, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("protecting a setting of the kernel: %w", err)
		}
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("sharing mounts with pods: %w", err)
	}
	return nil
}
