package sandbox

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/terrier-iac/terrier/internal/testkit/port"
)

// columns are the sandboxes of the matrix. basic is the control: what gets
// through there shows that the attempt is a real one.
var columns = map[string]func(*Config){
	"full/none":   func(*Config) {},
	"full/host":   func(b *Config) { b.Network = HostNetwork },
	"full/ports":  func(b *Config) { b.Network, b.Ports = HostNetwork, []uint16{443} },
	"kernel/none": func(b *Config) { b.Level = Kernel },
	"kernel/host": func(b *Config) { b.Level, b.Network = Kernel, HostNetwork },
	"kernel/next": func(b *Config) { b.Level, b.Shared = Kernel, true },
	"basic/host":  func(b *Config) { b.Level, b.Network = Basic, HostNetwork },
}

// through says which attempts get through where; any other is stopped
// everywhere.
func through() map[string][]string {
	private := []string{"basic/host", "kernel/none", "kernel/host", "full/none", "full/host", "full/ports"} // full: in a namespace of its own
	m := map[string][]string{
		"read a world-readable file":    {"basic/host"},
		"see other processes":           {"basic/host"},
		"write outside":                 {"basic/host"},
		"move itself in the kill order": {"basic/host"},
		"connect to the host by TCP":    {"basic/host", "full/host", "kernel/host"},
		"connect to the host by MPTCP":  {"basic/host"},
		"reach the host by UDP":         {"basic/host", "full/host", "full/ports", "kernel/host"},
		"connect to a unix socket":      {"basic/host"},
		"connect to an abstract socket": {"basic/host"},
		"listen on a chosen port":       {"basic/host", "full/none"}, // full/none: its own loopback
		"make a vsock socket":           {"basic/host"},
		"make a kernel crypto socket":   {"basic/host"},
		"make a generic netlink socket": {"basic/host"},
		"make a user namespace":         {"basic/host"},
		"trace a child":                 {"basic/host"},
		"use io_uring":                  {"basic/host"},
		"leave shared memory":           private,
		"leave semaphores":              private,
		"leave messages":                private,
		"leave a message queue":         {"basic/host"}, // Landlock sees the file that it is
		"use the key rings":             {"basic/host"},
		"handle page faults":            {"basic/host"},
		"type into a terminal":          {"basic/host"},
		"clone with hidden flags":       {"basic/host"},
	}
	if landlockVersion() < 9 { // before, Landlock does not know sockets with a path
		m["connect to a unix socket"] = append(m["connect to a unix socket"], "kernel/none", "kernel/host", "kernel/next")
	}
	if v := landlockVersion(); v < 6 {
		m["connect to an abstract socket"] = append(m["connect to an abstract socket"], "full/host", "full/ports", "kernel/none", "kernel/host", "kernel/next")
	}
	return m
}

// optional parts of a kernel may be missing or closed in the control.
var optional = []string{
	"connect to the host by MPTCP", "make a vsock socket", "make a kernel crypto socket", "make a user namespace",
	"use io_uring", "use the key rings", "handle page faults",
	"leave shared memory", "leave semaphores", "leave messages", "leave a message queue",
}

func compare(t *testing.T, column string, stopped map[string]string) {
	t.Helper()
	if len(stopped) != len(attempts) {
		t.Errorf("%d attempts were made, want %d", len(stopped), len(attempts))
	}
	open := through()
	for name, by := range stopped {
		got, want := by == "", slices.Contains(open[name], column)
		if got == want || (want && column == "basic/host" && slices.Contains(optional, name)) {
			continue
		}
		t.Errorf("%s: got through = %v (%s), want %v", name, got, by, want)
	}
}

func TestMatrix(t *testing.T) {
	if !asRoot() {
		t.Skip("the rights of other users are tried as root")
	}
	marks := newTargets(t)
	for column, change := range columns {
		t.Run(column, func(t *testing.T) {
			b := sandboxed(t, change)
			compare(t, column, runJSON[map[string]string](t, act(b, "attempt", marks)))
			t.Run("session", func(t *testing.T) {
				stdout, exit := visit(t, openSession(t, b), act(b, "attempt", marks))
				var stopped map[string]string
				if err := json.Unmarshal([]byte(stdout), &stopped); err != nil || !exit.OK() {
					t.Fatalf("the attempts: %v, %v", exit, err)
				}
				compare(t, column, stopped)
			})
		})
	}
}

// A sandbox that an ordinary user starts stops the same attempts.
func TestMatrixOfAnOrdinaryUser(t *testing.T) {
	if !asRoot() {
		t.Skip("becoming an ordinary user takes root")
	}
	need(t, Full)
	const user = 54321
	work := workDir(t)
	if err := os.Chown(work, user, user); err != nil {
		t.Fatal(err)
	}
	marks := newTargets(t)
	for column, change := range columns {
		if column == "basic/host" {
			continue // the same user may do to its starter what it likes
		}
		t.Run(column, func(t *testing.T) {
			b := &Config{Level: Full, Work: work, Network: NoNetwork, ReadOnly: []Bind{{probe, "/probe"}}}
			change(b)
			cmd := exec.Command(probe, "run")
			cmd.Stdin = errand(t, act(b, "attempt", marks))
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			var stopped map[string]string
			if err := json.Unmarshal(out, &stopped); err != nil {
				t.Fatal(err)
			}
			compare(t, column, stopped)
		})
	}
}

func TestRefusedCallsAreRefused(t *testing.T) {
	for _, level := range []Level{Full, Kernel} {
		t.Run(level.String(), func(t *testing.T) {
			got := runJSON[[]uint32](t, act(sandboxed(t, func(b *Config) { b.Level = level }), "calls"))
			if len(got) != 0 {
				t.Errorf("calls that reached the kernel: %v", got)
			}
		})
	}
}

// newTargets sets everything up that is attacked.
func newTargets(t *testing.T) string {
	t.Helper()
	dir := workDir(t)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	m := targets{
		Starter: os.Getpid(), Private: filepath.Join(dir, "private"), Public: filepath.Join(dir, "public"), Outside: dir,
		Unix: filepath.Join(dir, "socket"), Abstract: filepath.Base(dir),
	}
	for path, mode := range map[string]os.FileMode{m.Private: 0o600, m.Public: 0o644} {
		if err := os.WriteFile(path, []byte("a secret\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	m.TCP = answer(t, "tcp4", "127.0.0.1:0").String()
	answer(t, "unix", m.Unix)
	answer(t, "unix", "@"+m.Abstract)
	if err := os.Chmod(m.Unix, 0o777); err != nil {
		t.Fatal(err)
	}
	m.UDP = answerUDP(t)
	m.Port = port.Reserve(t, "127.0.0.1")
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// answer accepts connections for the time of the test.
func answer(t *testing.T, network, address string) net.Addr {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-over })
	return l.Addr()
}

// answerUDP echoes datagrams for the time of the test.
func answerUDP(t *testing.T) string {
	t.Helper()
	c, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		buf := make([]byte, 16)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = c.WriteTo(buf[:n], from)
		}
	}()
	t.Cleanup(func() { _ = c.Close(); <-over })
	return c.LocalAddr().String()
}
