// Package tools tests the scripts of make that stop processes and remove files.
package tools

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// playsTerrier makes the test binary hold the lock of a data directory, until it is stopped.
const playsTerrier = "TERRIER_TEST_HOLDS"

func TestMain(m *testing.M) {
	if dir := os.Getenv(playsTerrier); dir != "" {
		if err := hold(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func hold(dir string) error {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(f, os.Getpid()); err != nil {
		return err
	}
	fmt.Println("holds")
	<-stop
	return nil
}

// terrier starts a process that holds the lock of dir, and returns how it ended.
func terrier(t *testing.T, dir string) (ended <-chan error) {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), playsTerrier+"="+dir)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "holds\n" {
		t.Fatalf("the process says %q, %v", line, err)
	}
	done := make(chan error, 1)
	go func() { done <- c.Wait() }()
	t.Cleanup(func() { _ = c.Process.Kill() }) // which it may have survived
	return done
}

// down runs the script where only some programs are.
func down(t *testing.T, programs []string, args ...string) (said string, code int) {
	t.Helper()
	bin := t.TempDir()
	for _, name := range programs {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Skipf("there is no %s: %v", name, err)
		}
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.CommandContext(t.Context(), filepath.Join(bin, "bash"), append([]string{"../../tools/down.sh"}, args...)...)
	c.Env = []string{"PATH=" + bin}
	out, err := c.CombinedOutput()
	if err != nil && c.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), c.ProcessState.ExitCode()
}

// With flock and without it, make down stops the process that runs on a directory, and no
// other one that has its number.
func TestDown(t *testing.T) {
	base := []string{"bash", "stat", "grep", "sleep", "true"}
	for name, programs := range map[string][]string{"with flock": append(base, "flock"), "without flock": base} {
		t.Run(name, func(t *testing.T) {
			dir, other := t.TempDir(), t.TempDir()
			wants := func(when string, code int, says string, args ...string) {
				t.Helper()
				if got, exit := down(t, programs, args...); exit != code || !strings.Contains(got, says) {
					t.Errorf("%s: down.sh %q ended with %d: %s; want %d and %q", when, args, exit, got, code, says)
				}
			}
			wants("in an empty directory", 0, "nothing runs", dir)
			wants("in an empty directory", 0, "", "--check", dir, other)

			ended, bystander := terrier(t, dir), terrier(t, other)
			wants("while it runs", 1, "make down DATA_DIR="+dir, "--check", other+"-not", dir)
			wants("while it runs", 0, "stopped process", dir)
			if err := <-ended; err != nil {
				t.Errorf("the process ended with %v, want it stopped with SIGTERM", err)
			}

			// The file is stale, and its number that of another process now.
			number, err := os.ReadFile(filepath.Join(other, "lock"))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "lock"), number, 0o600); err != nil {
				t.Fatal(err)
			}
			wants("with a stale file", 0, "nothing runs", dir)
			select {
			case err := <-bystander:
				t.Errorf("another process was stopped: %v", err)
			default:
			}

			run := filepath.Join(dir, "runner", "runs", "uid", "1")
			if err := os.MkdirAll(run, 0o700); err != nil {
				t.Fatal(err)
			}
			lock, err := os.Create(filepath.Join(run, "lock"))
			if err != nil {
				t.Fatal(err)
			}
			wants("with a run that has ended", 0, "", "--check", dir)
			if err := unix.FcntlFlock(lock.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
				t.Fatal(err)
			}
			wants("while a run goes on", 1, "a run goes on in "+run, "--check", dir)
			if err := lock.Close(); err != nil {
				t.Fatal(err)
			}
			wants("once it has ended", 0, "", "--check", dir)
		})
	}
}
