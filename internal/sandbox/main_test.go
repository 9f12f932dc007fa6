package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The test binary plays every part: the tests, the launcher of their sandboxes,
// and the programs in them. An act is such a program; it is named by argv[1].
var acts map[string]func(args []string) error

// ground is a directory that any user may pass through, probe a copy of the
// test binary in it.
var ground, probe string

// privateMark tells a test process that it has a mount namespace of its own: it
// holds the one that it must not be in.
const privateMark = "TERRIER_TEST_PRIVATE"

// groundMark names the ground, which the process around it removes.
const groundMark = "TERRIER_TEST_GROUND"

func TestMain(m *testing.M) {
	Main()
	acts = map[string]func([]string) error{
		"attempt": attemptAll, "calls": refusedCalls, "print": printSelf, "count": countInterrupts,
		"exit": exitWith, "hold": hold, "daemon": startDaemon, "start": startAndHold, "open": openAndHold, "run": startAndWait,
		"fork": forkBomb, "allocate": allocate, "fill": fill, "echo": echo, "dial": dial, "scatter": scatter,
		"group": startGroup, "detach": detach, "leave": leaveChild,
	}
	if len(os.Args) > 1 {
		if act, ok := acts[os.Args[1]]; ok {
			if err := act(os.Args[2:]); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	os.Exit(tests(m))
}

// tests runs the tests where no mount can reach the machine, whatever goes
// wrong in them.
func tests(m *testing.M) int {
	if os.Getenv(privateMark) == "" {
		return again()
	}
	if err := ownMounts(); err != nil {
		fmt.Fprintln(os.Stderr, "refusing to run:", err)
		return 1
	}
	code, err := onGround(m)
	if err == nil && code == 0 {
		err = goleak.Find()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// again starts the test binary once more, in a mount namespace of its own.
func again() int {
	machines, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// This process outlives one that panics or takes too long, and removes the directory then.
	dir, err := os.MkdirTemp("/tmp", "terrier-process-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, "removing what the tests made:", err)
		}
	}()
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), privateMark+"="+machines, groundMark+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		mapUsers(cmd.SysProcAttr, 0)
	}
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "entering a mount namespace:", err)
		return 1
	}
	return 0
}

func ownMounts() error {
	ours, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return err
	}
	if ours == os.Getenv(privateMark) {
		return errors.New("the mount namespace is the machine's")
	}
	return syscall.Mount("", "/", "", syscall.MS_PRIVATE|syscall.MS_REC, "")
}

func onGround(m *testing.M) (int, error) {
	ground = os.Getenv(groundMark)
	probe = filepath.Join(ground, "probe")
	if err := errors.Join(os.Chmod(ground, 0o711), copyFile(self, probe)); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

func copyFile(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}

// need fails where a level is missing, for a suite that skips its point is
// green for nothing.
func need(t testing.TB, level Level) {
	t.Helper()
	if got := Probe(); got.Level < level {
		message := fmt.Sprintf("level %s is missing here: %s", level, strings.Join(got.Reasons, "; "))
		if os.Getenv("TERRIER_ALLOW_LOW_ISOLATION") == "1" {
			t.Skip(message)
		}
		t.Fatal(message)
	}
}

// asRoot reports whether sandboxes get a user of their own.
func asRoot() bool {
	_, change := runAs()
	return change
}

// workDir is a directory that belongs to the sandboxed user.
func workDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp(ground, "work-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := ChownWork(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// sandboxed is a Full sandbox with no network around a work directory and the
// probe.
func sandboxed(t testing.TB, change ...func(*Config)) *Config {
	t.Helper()
	b := &Config{Level: Full, Work: workDir(t), Network: NoNetwork, ReadOnly: []Bind{{probe, "/probe"}}}
	for _, c := range change {
		c(b)
	}
	need(t, b.Level)
	return b
}

// act is the command of an act in a sandbox.
func act(b *Config, args ...string) Command {
	return Command{Path: b.PathInside("/probe"), Args: args, Sandbox: b}
}

// soon bounds everything that a test starts.
func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// patience is far more than anything here takes.
const patience = 5 * time.Minute

// run starts a command and waits for its end.
func run(t testing.TB, c Command) (stdout, stderr string, exit Exit) {
	t.Helper()
	var out, errs strings.Builder
	c.Stdout, c.Stderr = &out, &errs
	p, err := Start(soon(t), c)
	if err != nil {
		t.Fatal(err)
	}
	exit, err = p.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), exit
}

// runJSON runs a command that must succeed and prints a value.
func runJSON[T any](t testing.TB, c Command) T {
	t.Helper()
	stdout, stderr, exit := run(t, c)
	if !exit.OK() {
		t.Fatalf("%s %v: %v\n%s", c.Path, c.Args, exit, stderr)
	}
	var v T
	if err := json.Unmarshal([]byte(stdout), &v); err != nil {
		t.Fatalf("reading the output of %s %v: %v\n%s", c.Path, c.Args, err, stdout)
	}
	return v
}

func printJSON(v any) error { return json.NewEncoder(os.Stdout).Encode(v) }
