package runner_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/terrier-iac/terrier/internal/sandbox"
)

// A supervisor outlives the process that started it. One that a test has stopped would
// stay for good if the test were killed, so it is started under a name by which it does not.
const boundName = "ends-with-its-parent"

// bound is this program under that name.
func bound(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), boundName)
	if err := os.Symlink(self, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// endsWithItsParent makes it so, if this process has the name.
func endsWithItsParent() {
	if filepath.Base(os.Args[0]) != boundName {
		return
	}
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Programs of TestAStoppedSupervisorEndsWithItsTest.
const (
	stopper = "stop-another" // starts the program whose path follows, stops it and says its process ID
	sleeper = "sleep"        // waits for a signal, and says before that it does
)

func beAnother() {
	switch {
	case len(os.Args) == 2 && os.Args[1] == sleeper:
		fmt.Println("sleeping")
	case len(os.Args) == 3 && os.Args[1] == stopper:
		if err := stopAnother(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	default:
		return
	}
	for {
		_ = unix.Pause() // every signal interrupts it
	}
}

func stopAnother(path string) error {
	says, out, err := os.Pipe()
	if err != nil {
		return err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	p, err := sandbox.Start(context.Background(), sandbox.Command{Path: path, Args: []string{sleeper}, Stdin: null, Stdout: out, Stderr: os.Stderr, Detached: true})
	if err != nil {
		return err
	}
	if _, err := bufio.NewReader(says).ReadString('\n'); err != nil {
		return err
	}
	if err := syscall.Kill(p.PID(), syscall.SIGSTOP); err != nil {
		return err
	}
	fmt.Println(p.PID())
	return nil
}

func TestAStoppedSupervisorEndsWithItsTest(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	says, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer says.Close()
	test, err := sandbox.Start(t.Context(), sandbox.Command{Path: self, Args: []string{stopper, bound(t)}, Stdout: out, Stderr: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	out.Close()
	line, err := bufio.NewReader(says).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	stopped, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(stopped)
	if err := syscall.Kill(test.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := test.Wait(); err != nil {
		t.Fatal(err)
	}
	ended := []unix.PollFd{{Fd: int32(stopped), Events: unix.POLLIN}}
	n, err := unix.Poll(ended, 30_000)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Poll(ended, 30_000)
	}
	if err != nil || n != 1 {
		t.Errorf("the stopped process lives on after the one that started it: %v, %v", err, unix.PidfdSendSignal(stopped, unix.SIGKILL, nil, 0))
	}
}
