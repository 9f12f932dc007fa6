package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// The descriptors that node inherits from up, and hands on.
const (
	lockFD = 3 + iota
	apiFD
	registryFD
	aliveFD
)

// up starts the cluster, unless it runs, and waits until it is ready.
func up(ctx context.Context, s state) error {
	if os.Geteuid() != 0 {
		return errors.New("namespaces and control groups of a node need root: run this with sudo")
	}
	if err := checkMachine(); err != nil {
		return err
	}
	if err := s.claim(); err != nil {
		return err
	}
	lock, err := s.lock()
	if errors.Is(err, errRuns) {
		if lock, err = waitRunning(ctx, s); lock == nil && err == nil {
			return nil
		}
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := lock.Truncate(0); err != nil {
		return fmt.Errorf("clearing the lock: %w", err)
	}
	if err := s.wipe(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := start(s, lock, cancel); err != nil {
		return err
	}
	if err := waitReady(ctx, s); err != nil {
		return fmt.Errorf("%w\nlook into %s; then: make cluster-down", err, s.path("log"))
	}
	return nil
}

// wait waits until the cluster that runs is ready.
func wait(ctx context.Context, s state) error {
	absent := fmt.Errorf("no cluster runs in %s: make cluster-up starts it", s)
	if _, err := os.Stat(s.lockFile()); err != nil {
		return absent
	}
	lock, err := waitRunning(ctx, s)
	if lock != nil {
		return errors.Join(absent, lock.Close())
	}
	return err
}

// waitRunning waits until a cluster that runs already is ready. If it ends instead
// it returns the lock.
func waitRunning(ctx context.Context, s state) (*os.File, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan *os.File, 1)
	go func() {
		defer close(ended)
		var lock *os.File
		err := poll(ctx, 100*time.Millisecond, func() error {
			var err error
			lock, err = s.lock()
			return err
		})
		if err == nil {
			ended <- lock
			cancel()
		}
	}()
	err := waitReady(ctx, s)
	cancel()
	if lock := <-ended; lock != nil {
		return lock, nil
	}
	return nil, err
}

// start starts node, and calls died when it ends.
func start(s state, lock *os.File, died context.CancelCauseFunc) error {
	api, apiPort, err := listen(6443)
	if err != nil {
		return err
	}
	defer api.Close()
	registry, registryPort, err := listen(5000)
	if err != nil {
		return err
	}
	defer registry.Close()
	if err := writeFiles(s, apiPort); err != nil {
		return err
	}
	if err := os.WriteFile(s.path("registry"), fmt.Appendf(nil, "localhost:%d\n", registryPort), 0o644); err != nil {
		return fmt.Errorf("writing the registry's address: %w", err)
	}

	alive, hold, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("making a pipe: %w", err)
	}
	defer hold.Close()
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	output, err := os.Create(s.path("log", "node.log"))
	if err != nil {
		return fmt.Errorf("making a log: %w", err)
	}
	defer output.Close()
	// What the caller has open, a lock for instance, ends with the caller: the node has no
	// part in it.
	if err := unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("keeping the caller's files from the node: %w", err)
	}
	node := exec.Command(self, "--state", string(s), "node")
	node.Dir, node.Stdout, node.Stderr = "/", output, output
	node.ExtraFiles = []*os.File{lock, api, registry, hold}
	node.SysProcAttr = &unix.SysProcAttr{Setsid: true} // it outlives this process and its terminal
	if err := node.Start(); err != nil {
		return fmt.Errorf("starting the node: %w", err)
	}
	go func() {
		defer alive.Close()
		// Node never writes: the read ends when it does.
		if n, err := alive.Read(make([]byte, 1)); n == 0 && err != nil {
			died(fmt.Errorf("the node ended: %s says why", output.Name()))
		}
	}()
	return nil
}

// listen opens a port of the loopback, the preferred one if it is free.
func listen(preferred int) (*os.File, int, error) {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", preferred))
	if errors.Is(err, unix.EADDRINUSE) {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, 0, fmt.Errorf("opening a port: %w", err)
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		return nil, 0, fmt.Errorf("handing a port on: %w", err)
	}
	return f, l.Addr().(*net.TCPAddr).Port, nil
}

// builtProgram is the path of a program that was built with this one, and lies
// beside it. Without its own path it is a name that is not found.
func builtProgram(name string) string {
	self, err := os.Executable()
	if err != nil {
		return name
	}
	return filepath.Join(filepath.Dir(self), "kubernetes", name)
}

// checkMachine says what is missing, and how to get it.
func checkMachine() error {
	for _, name := range []string{"containerd", "runc", "iptables", "ipset"} {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("%s is missing: run make cluster-deps", name)
		}
	}
	for _, name := range []string{"ptp", "host-local", "loopback", "portmap"} {
		if _, err := os.Stat(filepath.Join("/usr/lib/cni", name)); err != nil {
			return fmt.Errorf("the network plugin %s is missing: run make cluster-deps", name)
		}
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "pause", "coredns"} {
		if _, err := os.Stat(builtProgram(name)); err != nil {
			return fmt.Errorf("%s is not built: run make cluster-build", builtProgram(name))
		}
	}
	_, err := hierarchies()
	return err
}

// down stops the cluster and removes everything of it. It does so too when the
// cluster has ended by itself.
func down(ctx context.Context, s state) error {
	if _, err := os.Stat(s.lockFile()); errors.Is(err, os.ErrNotExist) {
		fmt.Printf("cluster: nothing runs in %s\n", s)
		return nil
	}
	lock, err := s.lock()
	if errors.Is(err, errRuns) {
		lock, err = stop(ctx, s)
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := lock.Truncate(0); err != nil { // the process that it names has ended
		return fmt.Errorf("clearing the lock: %w", err)
	}
	if err := s.wipe(ctx); err != nil {
		return err
	}
	if err := os.Remove(s.lockFile()); err != nil {
		return fmt.Errorf("removing the lock: %w", err)
	}
	// The directory itself goes if it was made for this.
	if err := unix.Rmdir(string(s)); err != nil && !errors.Is(err, unix.ENOTEMPTY) {
		return fmt.Errorf("removing the state directory: %w", err)
	}
	fmt.Printf("cluster: %s is stopped and removed\n", s)
	return nil
}

// stop ends node and waits for its lock.
func stop(ctx context.Context, s state) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var lock *os.File
	err := poll(ctx, 50*time.Millisecond, func() error {
		var err error
		if lock, err = s.lock(); !errors.Is(err, errRuns) {
			return err
		}
		pid, _, err := s.holder()
		if err != nil {
			return err
		}
		p, err := os.FindProcess(pid) // this process from now on, and no later one of this id
		if err != nil {
			return fmt.Errorf("finding process %d: %w", pid, err)
		}
		defer func() { _ = p.Release() }()
		if !s.holds(pid) {
			return errRuns
		}
		// Everything else ends with node.
		if err := p.Signal(unix.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("stopping process %d: %w", pid, err)
		}
		return errRuns
	})
	if err != nil {
		return nil, fmt.Errorf("waiting for the cluster's end: %w", err)
	}
	return lock, nil
}
