package kubeapi

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// testOtherUser looks at the files with the eyes of a user who is not us.
func testOtherUser(t *testing.T, path string) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	d := dir{path: path}
	for _, file := range []string{d.kubeconfig(), d.own("pki", "tokens.csv"), d.own("pki", "encryption.yaml"), d.own("pki", "authority.pem")} {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != 0o600 {
			t.Errorf("%s has mode %04o, want 0600", file, got)
		}
		cat := exec.CommandContext(t.Context(), "/bin/cat", file)
		cat.Dir = "/"
		cat.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cat.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "Permission denied") {
			t.Errorf("another user reads %s: %v", file, err)
		}
	}
}

// testListeners checks that etcd, above all, is not on the network.
func testListeners(t *testing.T, server *Server) {
	ours := map[string]bool{}
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil || len(fds) == 0 {
		t.Skip("there is no /proc to look at")
	}
	for _, fd := range fds {
		target, _ := os.Readlink(fd) // gone again, the one of the listing itself
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			ours[strings.TrimSuffix(inode, "]")] = true
		}
	}
	var got []string
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		content, err := os.ReadFile(table)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(content)) {
			const listening = "0A"
			if f := strings.Fields(line); len(f) > 9 && f[3] == listening && ours[f[9]] {
				got = append(got, f[1])
			}
		}
	}
	var port int
	if _, err := fmt.Sscanf(server.Address(), "127.0.0.1:%d", &port); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("0100007F:%04X", port); len(got) != 1 || got[0] != want {
		t.Errorf("listening on %v, want only %s, which is %s", got, want, server.Address())
	}
}
