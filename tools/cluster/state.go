package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// state is the directory of one cluster. Its parts run, lib and log are the
// cluster's /run, /var/lib and /var/log.
type state string

func (s state) path(parts ...string) string {
	return filepath.Join(append([]string{string(s)}, parts...)...)
}

func (s state) kubeconfig() string { return s.path("kubeconfig") }

// lockFile marks the directory as a cluster's. Command node holds a lock on it
// for its whole life, and has written its process id into it.
func (s state) lockFile() string { return s.path("cluster.lock") }

var errRuns = errors.New("the cluster runs")

// lock takes the lock, or fails with errRuns.
func (s state) lock() (*os.File, error) {
	f, err := os.OpenFile(s.lockFile(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock: %w", err)
	}
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, errors.Join(errRuns, f.Close())
	case err != nil:
		return nil, errors.Join(fmt.Errorf("locking %s: %w", s.lockFile(), err), f.Close())
	}
	return f, nil
}

// holder is the process id of node, and its descriptor of the network.
func (s state) holder() (pid, network int, err error) {
	text, err := os.ReadFile(s.lockFile())
	if err != nil {
		return 0, 0, fmt.Errorf("reading the lock: %w", err)
	}
	if _, err := fmt.Sscan(string(text), &pid, &network); err != nil {
		return 0, 0, fmt.Errorf("the cluster of %s is just starting: try again", s)
	}
	return pid, network, nil
}

// holds reports whether process pid is node: it has the lock open. Another command may
// hold the lock after node has ended, and its process id may be another process's then.
func (s state) holds(pid int) bool {
	open, err := os.Stat(fmt.Sprintf("/proc/%d/fd/%d", pid, lockFD))
	if err != nil {
		return false
	}
	lock, err := os.Stat(s.lockFile())
	return err == nil && os.SameFile(open, lock)
}

// claim makes sure that everything in the directory is a cluster's.
func (s state) claim() error {
	for _, taken := range []string{"/run", "/var/run", "/var/lib", "/var/log"} {
		if strings.HasPrefix(string(s)+"/", taken+"/") {
			return fmt.Errorf("the state may not lie below %s, which the cluster has a version of its own of: use another --state", taken)
		}
	}
	if err := os.MkdirAll(string(s), 0o755); err != nil {
		return fmt.Errorf("making the state directory: %w", err)
	}
	entries, err := os.ReadDir(string(s))
	if err != nil {
		return fmt.Errorf("listing the state directory: %w", err)
	}
	_, err = os.Stat(s.lockFile())
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist) && len(entries) == 0:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s has files, and no cluster made them: use another --state", s)
	default:
		return fmt.Errorf("looking for the lock: %w", err)
	}
}

// wipe removes what a cluster that has ended left, but for the lock.
func (s state) wipe(ctx context.Context) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("reading mounts: %w", err)
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], string(s)+"/") {
			return fmt.Errorf("%s is mounted, and not by the cluster: unmount it, then run this again", fields[4])
		}
	}
	if err := removeGroups(ctx, s); err != nil {
		return err
	}
	for _, part := range []string{"run", "lib", "log", "kubeconfig", "registry"} {
		if err := os.RemoveAll(s.path(part)); err != nil {
			return fmt.Errorf("removing what the last cluster left: %w", err)
		}
	}
	return nil
}

// poll calls try until it succeeds or the context ends, and returns its last
// error then.
func poll(ctx context.Context, every time.Duration, try func() error) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		case <-tick.C:
		}
	}
}
