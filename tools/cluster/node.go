package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"

	"golang.org/x/sys/unix"
)

// node starts process 1 of the cluster in its namespaces, waits for its end, and
// is the cluster's only process among those of the machine that must live: the
// kernel kills init when node ends, and all others when init ends.
func node(s state) error {
	for fd := lockFD; fd <= aliveFD; fd++ {
		unix.CloseOnExec(fd)
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, unix.SIGTERM, unix.SIGINT)
	signal.Ignore(unix.SIGHUP)

	runtime.LockOSThread() // the death signal belongs to this thread
	child, err := startInit(s)
	if err != nil {
		return errors.Join(err, removeGroups(context.Background(), s))
	}
	if err := announce(s, child.Process.Pid); err != nil {
		return errors.Join(err, child.Process.Kill(), removeGroups(context.Background(), s))
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	select {
	case <-end:
		if err := child.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("stopping the cluster's processes: %w", err)
		}
		<-ended
		return removeGroups(context.Background(), s)
	case err := <-ended:
		return errors.Join(fmt.Errorf("the cluster's first process ended: %v", err), removeGroups(context.Background(), s))
	}
}

// startInit starts init in new namespaces. The root of its control groups is the
// group that its parent is in at that moment.
func startInit(s state) (*exec.Cmd, error) {
	groups, err := hierarchies()
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	child := exec.Command(self, "--state", string(s), "init")
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	child.ExtraFiles = []*os.File{
		os.NewFile(lockFD, "lock"), // takes the number; init closes it
		os.NewFile(apiFD, "api"),
		os.NewFile(registryFD, "registry"),
	}
	child.SysProcAttr = &unix.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWCGROUP,
		Pdeathsig:  unix.SIGKILL,
	}
	if err := joinGroups(s, groups); err != nil {
		return nil, err
	}
	err = child.Start()
	if back := leaveGroups(groups); back != nil || err != nil {
		return nil, errors.Join(err, back)
	}
	return child, nil
}

// announce writes into the lock who holds it, and which of its descriptors is
// the cluster's network.
func announce(s state, init int) error {
	network, err := unix.Open(fmt.Sprintf("/proc/%d/ns/net", init), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening the cluster's network: %w", err)
	}
	if err := os.WriteFile(s.lockFile(), fmt.Appendf(nil, "%d %d\n", os.Getpid(), network), 0o600); err != nil {
		return fmt.Errorf("writing the lock: %w", err)
	}
	return nil
}

// The environment of a command of exec: which cluster it is in, and the name of the
// cluster's control group in each hierarchy.
const (
	insideVariable = "TERRIER_CLUSTER"
	groupVariable  = "TERRIER_CLUSTER_GROUP"
)

// enter replaces this process with a command in the cluster's network.
func enter(s state, args []string) error {
	pid, network, err := s.holder()
	if err != nil {
		return fmt.Errorf("no cluster runs in %s: make cluster-up starts it (%w)", s, err)
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/fd/%d", pid, network), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("no cluster runs in %s: make cluster-up starts it (%w)", s, err)
	}
	if !s.holds(pid) {
		return fmt.Errorf("the cluster of %s is just stopping: try again", s)
	}
	// Only while the lock is held was that descriptor the cluster's.
	if lock, err := s.lock(); !errors.Is(err, errRuns) {
		return errors.Join(fmt.Errorf("no cluster runs in %s: make cluster-up starts it", s), err, lock.Close())
	}
	program, err := exec.LookPath(args[0])
	if err != nil {
		return fmt.Errorf("finding the command: %w", err)
	}
	runtime.LockOSThread()
	if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("entering the cluster's network: %w", err)
	}
	env := append(os.Environ(), "KUBECONFIG="+s.kubeconfig(), insideVariable+"="+string(s), groupVariable+"="+groupName(s))
	if err := unix.Exec(program, args, env); err != nil {
		return fmt.Errorf("running %s: %w", args[0], err)
	}
	return nil
}
