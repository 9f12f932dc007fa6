package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terrier-iac/terrier/internal/sandbox"
)

// TestMain lets the test start programs.
func TestMain(m *testing.M) {
	sandbox.Main()
	os.Exit(m.Run())
}

// An orphan that died is waited for, and one that lives is left alone.
func TestReap(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	gate, open, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	// The inner shell outlives the outer one, and reads until the pipe is closed.
	p, err := sandbox.Start(t.Context(), sandbox.Command{Path: "/bin/sh", Args: []string{"-c", "sh -c 'read line <&3' >/dev/null 2>&1 & echo $!"},
		Env: []string{"PATH=/usr/bin:/bin"}, Stdout: out, Detached: true, ExtraFiles: []*os.File{gate}})
	if err != nil {
		t.Fatal(err)
	}
	gate.Close()
	if _, err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	pid, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	orphan := "/proc/" + strings.TrimSpace(string(pid))
	reap(0)
	if _, err := os.Stat(orphan); err != nil {
		t.Fatalf("the orphan is gone although it lives: %v", err)
	}
	if _, err := fmt.Fprintln(open, "go"); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(5 * time.Minute)
	for {
		reap(0)
		if _, err := os.Stat(orphan); err != nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("the orphan stays")
		}
	}
}
