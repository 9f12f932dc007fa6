package sandbox

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var everyLevel = []Level{Basic, Kernel, Full}

func at(level Level) func(*Config) {
	return func(b *Config) { b.Level, b.Network = level, HostNetwork }
}

// alarm is a pipe whose other end a sandbox holds: it tells whether anything
// there is alive.
func alarm(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	ours, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
	return ours, theirs
}

// rung reports whether the last holder is gone, without waiting.
func rung(t *testing.T, ours *os.File) bool {
	t.Helper()
	raw, err := ours.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var n int
	var readErr error
	err = raw.Read(func(fd uintptr) bool {
		n, readErr = unix.Read(int(fd), make([]byte, 1))
		return true
	})
	return n == 0 && readErr == nil && err == nil
}

// ends waits until the last holder is gone.
func ends(t *testing.T, ours *os.File) {
	t.Helper()
	_ = ours.SetReadDeadline(time.Now().Add(patience))
	if _, err := ours.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("something is still alive: %v", err)
	}
}

func TestNothingLivesAfterTheProgram(t *testing.T) {
	for _, level := range everyLevel {
		t.Run(level.String(), func(t *testing.T) {
			c := act(sandboxed(t, at(level)), "daemon")
			ours, theirs := alarm(t)
			c.ExtraFiles = []*os.File{theirs}
			p, err := Start(soon(t), c)
			if err != nil {
				t.Fatal(err)
			}
			_ = theirs.Close()
			exit, err := p.Wait()
			if err != nil || !exit.OK() {
				t.Fatalf("Wait() = %v, %v", exit, err)
			}
			if !rung(t, ours) {
				t.Error("the daemon is alive after Wait")
			}
		})
	}
}

func TestKillEndsEverything(t *testing.T) {
	for _, level := range everyLevel {
		t.Run(level.String(), func(t *testing.T) {
			c := act(sandboxed(t, at(level)), "group")
			ours, theirs := alarm(t)
			out, in := alarm(t)
			c.ExtraFiles, c.Stdout = []*os.File{theirs}, in
			p, err := Start(soon(t), c)
			if err != nil {
				t.Fatal(err)
			}
			_ = theirs.Close()
			readLine(t, out)
			if err := p.Kill(); err != nil {
				t.Fatal(err)
			}
			exit, err := p.Wait()
			if err != nil || exit.Signal != syscall.SIGKILL || exit.Code != 137 {
				t.Errorf("Wait() = %+v, %v, want the end by SIGKILL", exit, err)
			}
			if !rung(t, ours) {
				t.Error("a child is alive after Wait")
			}
			if err := p.Kill(); err != nil {
				t.Errorf("Kill() after the end = %v", err)
			}
		})
	}
}

func TestTheEndOfTheContextKills(t *testing.T) {
	for _, level := range everyLevel {
		t.Run(level.String(), func(t *testing.T) {
			ctx, cancel := context.WithCancel(soon(t))
			out, in := alarm(t)
			c := act(sandboxed(t, at(level)), "hold")
			c.Stdout = in
			p, err := Start(ctx, c)
			if err != nil {
				t.Fatal(err)
			}
			readLine(t, out)
			cancel()
			if exit, err := p.Wait(); err != nil || exit.Signal != syscall.SIGKILL {
				t.Errorf("Wait() = %+v, %v, want the end by SIGKILL", exit, err)
			}
			if _, err := Start(ctx, c); !errors.Is(err, context.Canceled) {
				t.Errorf("Start() = %v, want %v", err, context.Canceled)
			}
		})
	}
}

func TestInterruptReachesTheProgramOnce(t *testing.T) {
	for _, level := range everyLevel {
		t.Run(level.String(), func(t *testing.T) {
			out, in := alarm(t)
			stdin, endInput := alarm(t)
			c := act(sandboxed(t, at(level)), "count")
			c.Stdin, c.Stdout, c.Stderr = stdin, in, os.Stderr
			p, err := Start(soon(t), c)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = stdin.Close(), in.Close()
			interruptOnce(t, p, out, endInput)
			if err := p.Interrupt(); err != nil {
				t.Errorf("Interrupt() after the end = %v", err)
			}
		})
	}
}

// A starter that is killed takes its sandboxes with it, whatever is in them.
func TestTheDeathOfTheStarterKills(t *testing.T) {
	for _, level := range everyLevel {
		for _, how := range [][]string{{"start", "hold"}, {"start", "group"}, {"open", "group"}} {
			t.Run(level.String()+"/"+strings.Join(how, "/"), func(t *testing.T) {
				out, in := alarm(t)
				starter, err := Start(soon(t), Command{
					Path: probe, Args: how[:1], Stdin: errand(t, act(sandboxed(t, at(level)), how[1])), Stdout: in, Stderr: os.Stderr,
				})
				if err != nil {
					t.Fatal(err)
				}
				_ = in.Close()
				_ = out.SetReadDeadline(time.Now().Add(patience))
				lines := bufio.NewReader(out)
				for line := ""; !strings.HasPrefix(line, "held"); {
					if line, err = lines.ReadString('\n'); err != nil {
						t.Fatal(err)
					}
				}
				// Only the starter: its group would hide what is tried here.
				if err := syscall.Kill(starter.PID(), syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				// The output ends when the last that could write it is gone.
				if _, err := io.ReadAll(lines); err != nil {
					t.Errorf("something is alive after the death of its starter: %v", err)
				}
				if exit, err := starter.Wait(); err != nil || exit.Signal != syscall.SIGKILL {
					t.Errorf("Wait() = %v, %v", exit, err)
				}
			})
		}
	}
}

func readLine(t *testing.T, from *os.File) string {
	t.Helper()
	_ = from.SetReadDeadline(time.Now().Add(patience))
	line, err := bufio.NewReader(from).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return line
}

// interruptOnce interrupts the program "count" three times, and expects that it was
// interrupted once, and its child never.
func interruptOnce(t *testing.T, p *Process, out io.Reader, endInput io.Closer) {
	t.Helper()
	lines := bufio.NewReader(out)
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := p.Interrupt(); err != nil {
			t.Fatal(err)
		}
	}
	_ = endInput.Close()
	got, err := io.ReadAll(lines)
	if err != nil {
		t.Fatal(err)
	}
	if want := "child 0\nprogram 1\n"; string(got) != want {
		t.Errorf("interrupts: got %q, want %q", got, want)
	}
	if exit, err := p.Wait(); err != nil || !exit.OK() {
		t.Errorf("Wait() = %v, %v", exit, err)
	}
}
