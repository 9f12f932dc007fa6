// Package life tests that a cluster ends without a trace, whatever is killed. It
// starts clusters of its own, and runs no test unless it is asked to.
package life

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if os.Getenv("TERRIER_CLUSTER_LIFE") == "" {
		fmt.Println("no test runs here unless it is asked to: make test-cluster does")
		return
	}
	os.Exit(m.Run())
}

// cluster runs a command of bin/cluster on a state directory. It has the files, too.
func cluster(t *testing.T, state, command string, files ...*os.File) {
	t.Helper()
	cmd := exec.Command(filepath.Join("..", "..", "..", "bin", "cluster"), "--state", state, command)
	cmd.ExtraFiles = files
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cluster %s: %v\n%s", command, err, text)
	}
}

// node is the process that holds the lock of a cluster, and its network.
func node(t *testing.T, state string) (pid int, network string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(state, "cluster.lock"))
	if err != nil {
		t.Fatal(err)
	}
	var fd int
	if _, err := fmt.Sscan(string(text), &pid, &fd); err != nil {
		t.Fatal(err)
	}
	if network, err = os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd)); err != nil {
		t.Fatal(err)
	}
	return pid, network
}

// processes lists those of a network whose command holds a text.
func processes(t *testing.T, network, text string) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		// A process may end meanwhile; then it is none.
		in, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
		if err != nil || in != network {
			continue
		}
		command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && strings.Contains(string(command), text) {
			found = append(found, pid)
		}
	}
	return found
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// locked locks a file that is not locked.
func locked(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatalf("locking %s: %v", path, err)
	}
	return f
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-deadline:
			t.Fatalf("not within a minute: %s", what)
		case <-tick.C:
		}
	}
}

// traces are what a cluster could leave on the machine.
func traces(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	all.Write(mounts)
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range interfaces {
		fmt.Fprintln(&all, "interface", i.Name)
	}
	for _, pattern := range []string{
		"/sys/fs/cgroup/*/terrier-cluster-*", "/run/*", "/var/lib/*", "/var/log/*", "/opt/*", "/etc/cni/*", "/usr/libexec/*", "/run/netns/*",
	} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&all, strings.Join(files, "\n"))
	}
	for _, setting := range []string{"vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward", "net/netfilter/nf_conntrack_max"} {
		value, err := os.ReadFile(filepath.Join("/proc/sys", setting))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		fmt.Fprintln(&all, setting, string(value))
	}
	return all.String()
}

func TestClusterEndsWithoutATrace(t *testing.T) {
	before := traces(t)
	parent, err := os.MkdirTemp("", "terrier-cluster-life-")
	if err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(parent, "state")
	t.Cleanup(func() {
		cluster(t, state, "down")
		if err := os.Remove(parent); err != nil {
			t.Error(err)
		}
	})

	mine := locked(t, filepath.Join(parent, "lock"))
	cluster(t, state, "up", mine)
	if err := mine.Close(); err != nil {
		t.Fatal(err)
	}
	locked(t, mine.Name()) // the cluster has not kept it
	if err := os.Remove(mine.Name()); err != nil {
		t.Fatal(err)
	}
	_, network := node(t, state)
	for _, name := range []string{"kube-apiserver", "kubelet --config", "containerd --config", "etcd --data-dir=/var/lib/etcd"} {
		text := strings.ReplaceAll(name, " ", "\x00")
		was := processes(t, network, text)
		if len(was) != 1 {
			t.Fatalf("%s runs as %v, want one process", name, was)
		}
		kill(t, was[0])
		eventually(t, name+" runs again", func() bool {
			now := processes(t, network, text)
			return len(now) == 1 && now[0] != was[0]
		})
	}
	cluster(t, state, "up") // finds it running, and waits until it is ready

	kill(t, processes(t, network, "supervise")[0])
	eventually(t, "the cluster ends with its supervisor", func() bool { return len(processes(t, network, "")) == 0 })
	cluster(t, state, "up")
	pid, network := node(t, state)
	kill(t, pid)
	eventually(t, "the cluster ends with its node", func() bool { return len(processes(t, network, "")) == 0 })
	cluster(t, state, "down")
	cluster(t, state, "up")
	cluster(t, state, "down")
	cluster(t, state, "down")
	if _, err := os.Stat(state); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the state directory is still there: %v", err)
	}
	if after := traces(t); after != before {
		t.Errorf("the cluster left something.\nbefore:\n%s\nafter:\n%s", before, after)
	}
}
