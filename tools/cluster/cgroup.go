package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// hierarchy is one tree of control groups of version 1.
type hierarchy struct {
	mount       string // for instance /sys/fs/cgroup/memory
	controllers string // for instance memory, as mount(8) wants it
	own         string // where this process is in it
}

// hierarchies lists those of the machine.
func hierarchies() ([]hierarchy, error) {
	var unified unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup", &unified); err != nil {
		return nil, fmt.Errorf("looking at control groups: %w", err)
	}
	if unified.Type == unix.CGROUP2_SUPER_MAGIC {
		return nil, errors.New("this machine has control groups of version 2, which the test cluster does not speak yet: boot with systemd.unified_cgroup_hierarchy=0")
	}
	own := map[string]string{}
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("reading this process's control groups: %w", err)
	}
	for line := range strings.Lines(string(groups)) {
		// 4:memory:/some/group
		if parts := strings.SplitN(strings.TrimSpace(line), ":", 3); len(parts) == 3 {
			own[parts[1]] = parts[2]
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("reading mounts: %w", err)
	}
	var found []hierarchy
	for line := range strings.Lines(string(mounts)) {
		// 37 32 0:29 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
		before, after, _ := strings.Cut(line, " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if len(left) < 5 || len(right) < 3 || right[0] != "cgroup" {
			continue
		}
		controllers := strings.Join(strings.FieldsFunc(right[2], func(r rune) bool { return r == ',' })[1:], ",")
		if group, ok := own[controllers]; ok {
			found = append(found, hierarchy{left[4], controllers, group})
		}
	}
	if len(found) == 0 {
		return nil, errors.New("this machine has no control groups mounted at /sys/fs/cgroup")
	}
	return found, nil
}

// groupName is the name of the cluster's group in every hierarchy.
func groupName(s state) string {
	return fmt.Sprintf("terrier-cluster-%x", sha256.Sum256([]byte(s)))[:24]
}

// joinGroups makes the cluster's groups, and moves this process there.
func joinGroups(s state, all []hierarchy) error {
	for _, h := range all {
		group := filepath.Join(h.mount, groupName(s))
		if err := os.MkdirAll(group, 0o755); err != nil {
			return fmt.Errorf("making a control group: %w", err)
		}
		// No process may enter before these are set.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(h.mount, file))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return fmt.Errorf("reading %s: %w", file, err)
			}
			if err := os.WriteFile(filepath.Join(group, file), value, 0o644); err != nil {
				return fmt.Errorf("setting %s: %w", file, err)
			}
		}
		if err := enterGroup(group); err != nil {
			return err
		}
	}
	return nil
}

// leaveGroups moves this process back to where it was.
func leaveGroups(all []hierarchy) error {
	for _, h := range all {
		if err := enterGroup(filepath.Join(h.mount, h.own)); err != nil {
			return err
		}
	}
	return nil
}

func enterGroup(group string) error {
	if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte("0"), 0o644); err != nil {
		return fmt.Errorf("entering control group %s: %w", group, err)
	}
	return nil
}

// removeGroups removes the cluster's groups. The kernel may need a moment after
// the last process of one has ended.
func removeGroups(ctx context.Context, s state) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for _, h := range all {
		err := poll(ctx, 50*time.Millisecond, func() error { return removeTree(filepath.Join(h.mount, groupName(s))) })
		if err != nil {
			return fmt.Errorf("removing a control group: %w", err)
		}
	}
	return nil
}

func removeTree(group string) error {
	entries, err := os.ReadDir(group)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(group, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(group); err != nil && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "rmdir", Path: group, Err: err}
	}
	return nil
}

// remountGroups shows each hierarchy from the cluster's group down, in the
// mount and control group namespaces of process 1.
func remountGroups() error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		if err := unix.Unmount(h.mount, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmounting %s: %w", h.mount, err)
		}
		if err := unix.Mount("cgroup", h.mount, "cgroup", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, h.controllers); err != nil {
			return fmt.Errorf("mounting %s: %w", h.mount, err)
		}
	}
	return nil
}
