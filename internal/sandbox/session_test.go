package sandbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// openSession opens a session for the length of a test.
func openSession(t testing.TB, b *Config) *Session {
	t.Helper()
	r, err := OpenSession(soon(t), *b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	return r
}

// admitted starts a command of a sandbox in a session.
func admitted(t testing.TB, r *Session, c Command) *Process {
	t.Helper()
	c.Sandbox = nil
	p, err := r.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// visit runs a command in a session to its end.
func visit(t testing.TB, r *Session, c Command) (stdout string, exit Exit) {
	t.Helper()
	var out, errs strings.Builder
	c.Stdout, c.Stderr = &out, &errs
	exit, err := admitted(t, r, c).Wait()
	if err != nil {
		t.Fatalf("Wait() = %v\n%s", err, errs.String())
	}
	return out.String(), exit
}

// staying starts a program that stays, and returns what is rung at its end.
func staying(t *testing.T, r *Session, b *Config) (*Process, *os.File) {
	t.Helper()
	out, in := alarm(t)
	c := act(b, "hold")
	c.Stdout = in
	p := admitted(t, r, c)
	_ = in.Close()
	readLine(t, out)
	return p, out
}

func TestSessionHoldsSeveralPrograms(t *testing.T) {
	for _, level := range everyLevel {
		t.Run(level.String(), func(t *testing.T) {
			b := sandboxed(t, at(level))
			r := openSession(t, b)
			stays, out := staying(t, r, b)
			for code, args := range map[int][]string{0: {"exit", "0"}, 7: {"exit", "7"}} {
				if _, exit := visit(t, r, act(b, args...)); exit.Code != code || exit.Signal != 0 || exit.CPU <= 0 || exit.MaxRSS <= 0 {
					t.Errorf("exit %d = %+v", code, exit)
				}
			}
			if rung(t, out) {
				t.Error("a program ended with another one")
			}
			if stays.PID() == 0 || (level == Full) == (stays.PID() == stays.Inside()) {
				t.Errorf("PID() = %d, Inside() = %d", stays.PID(), stays.Inside())
			}
			if err := stays.Kill(); err != nil {
				t.Fatal(err)
			}
			if exit, err := stays.Wait(); err != nil || exit.Signal != syscall.SIGKILL || exit.Code != 137 {
				t.Errorf("Wait() after Kill() = %+v, %v", exit, err)
			}
			if _, exit := visit(t, r, act(b, "exit", "0")); !exit.OK() {
				t.Errorf("after the end of another, a program ended with %v", exit)
			}
		})
	}
}

// A program in a session is confined exactly as it would be in a sandbox of its
// own.
func TestSessionConfinesLikeASandbox(t *testing.T) {
	// Under nohup the tests ignore SIGHUP, and what a sandbox starts would, too.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(hangups) })
	for _, level := range everyLevel {
		t.Run(level.String(), func(t *testing.T) {
			b := sandboxed(t, at(level), func(b *Config) { b.Limits = Limits{FileBytes: 1 << 20, OpenFiles: 99} })
			c := act(b, "print", "x")
			c.Env = []string{"A=1"}
			want := runJSON[selfReport](t, c)
			stdout, _ := visit(t, openSession(t, b), c)
			var got selfReport
			if err := json.Unmarshal([]byte(stdout), &got); err != nil {
				t.Fatal(err)
			}
			for _, key := range []string{"Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "SigIgn"} {
				if got.Status[key] != want.Status[key] {
					t.Errorf("%s = %q, want %q", key, got.Status[key], want.Status[key])
				}
			}
			got.Status, want.Status = nil, nil
			if g, w := mustJSON(t, got), mustJSON(t, want); g != w {
				t.Errorf("in a session: %s\nin a sandbox:  %s", g, w)
			}
		})
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestSessionSweepsWhatAProgramLeaves(t *testing.T) {
	for _, level := range everyLevel {
		t.Run(level.String(), func(t *testing.T) {
			b := sandboxed(t, at(level))
			r := openSession(t, b)
			_, out := staying(t, r, b)
			// The child that is left keeps the output, so Wait would not return.
			stdout, exit := visit(t, r, act(b, "leave"))
			if !exit.OK() || stdout != "held\n" || exit.Wall > stragglers {
				t.Errorf("leaving a child: %+v, %q", exit, stdout)
			}
			if rung(t, out) {
				t.Error("the other program was swept as well")
			}
		})
	}
}

func TestSessionInterruptReachesTheProgramOnce(t *testing.T) {
	for _, level := range everyLevel {
		t.Run(level.String(), func(t *testing.T) {
			b := sandboxed(t, at(level))
			r := openSession(t, b)
			_, other := staying(t, r, b)
			out, in := alarm(t)
			stdin, endInput := alarm(t)
			c := act(b, "count")
			c.Stdin, c.Stdout, c.Stderr = stdin, in, os.Stderr
			p := admitted(t, r, c)
			_, _ = stdin.Close(), in.Close()
			interruptOnce(t, p, out, endInput)
			if rung(t, other) {
				t.Error("the interrupt reached the other program")
			}
		})
	}
}

func TestSessionEndsWithEverythingInIt(t *testing.T) {
	for _, level := range everyLevel {
		for name, end := range map[string]func(*Session) error{
			"closed":          (*Session).Close,
			"its init killed": func(r *Session) error { return syscall.Kill(r.PID(), syscall.SIGKILL) },
		} {
			t.Run(level.String()+"/"+name, func(t *testing.T) {
				b := sandboxed(t, at(level))
				r := openSession(t, b)
				p, out := staying(t, r, b)
				if err := end(r); err != nil {
					t.Fatal(err)
				}
				if exit, err := p.Wait(); err != nil || exit.Signal != syscall.SIGKILL {
					t.Errorf("Wait() = %+v, %v, want the end by SIGKILL", exit, err)
				}
				if !rung(t, out) {
					t.Error("a program is alive after the end of its session")
				}
				if _, err := r.Start(Command{Path: b.PathInside("/probe"), Args: []string{"exit", "0"}}); err == nil {
					t.Error("a program was started in a session that had ended")
				}
			})
		}
	}
}

// A program of a session cannot end it politely, nor kill it at Full, where the
// sessionInit is the first process.
func TestSessionWithstandsSignals(t *testing.T) {
	b := sandboxed(t)
	r := openSession(t, b)
	if _, exit := visit(t, r, Command{Path: "/bin/sh", Args: []string{"-c", "kill -TERM 1; kill -INT 1; kill -HUP 1; kill -QUIT 1; kill -KILL 1; exit 3"}}); exit.Code != 3 {
		t.Errorf("the program ended with %v", exit)
	}
	if _, exit := visit(t, r, act(b, "exit", "0")); !exit.OK() {
		t.Errorf("afterwards a program ended with %v", exit)
	}
}

func TestSessionStartsNothingThatIsNotThere(t *testing.T) {
	b := sandboxed(t)
	r := openSession(t, b)
	if p, err := r.Start(Command{Path: "/not/there"}); err == nil {
		t.Errorf("Start() = %v, want an error", p)
	}
	if _, exit := visit(t, r, act(b, "exit", "0")); !exit.OK() {
		t.Errorf("afterwards a program ended with %v", exit)
	}
}

// Programs that start and end beside one another are told apart.
func TestSessionInAHurry(t *testing.T) {
	b := sandboxed(t)
	r := openSession(t, b)
	codes := make(chan int)
	const n = 8
	for i := range n {
		go func() {
			p, err := r.Start(Command{Path: "/bin/sh", Args: []string{"-c", "exit " + string(rune('0'+i))}})
			if err != nil {
				codes <- -1
				return
			}
			exit, _ := p.Wait()
			codes <- exit.Code
		}()
	}
	var got []int
	for range n {
		select {
		case c := <-codes:
			got = append(got, c)
		case <-time.After(patience):
			t.Fatal("a program has not ended")
		}
	}
	slices.Sort(got)
	if want := []int{0, 1, 2, 3, 4, 5, 6, 7}; !slices.Equal(got, want) {
		t.Errorf("exit codes = %v, want %v", got, want)
	}
}

// stops returns once a process that was told to stop has: each of its threads does so when the
// kernel comes to it.
func stops(t *testing.T, pid int) {
	t.Helper()
	stopped := func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		return err == nil && len(threads) > 0 && !slices.ContainsFunc(threads, func(path string) bool {
			stat, err := os.ReadFile(path)
			return err != nil || !strings.HasPrefix(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " T ")
		})
	}
	for deadline := time.Now().Add(patience); !stopped(); {
		if time.Now().After(deadline) {
			t.Fatalf("process %d does not stop", pid)
		}
	}
}

// A program below Full may stop the first process of its session, which then starts nothing
// and reports no end. What was killed ends all the same, and so does a start.
func TestSessionEndsWithoutItsInit(t *testing.T) {
	for _, level := range []Level{Basic, Kernel} {
		for name, next := range map[string]func(t *testing.T, r *Session, p *Process){
			"a program is killed": func(t *testing.T, _ *Session, p *Process) {
				if err := p.Kill(); err != nil {
					t.Errorf("Kill() = %v", err)
				}
			},
			"a program is started": func(t *testing.T, r *Session, _ *Process) {
				if _, err := r.Start(Command{Path: "/bin/true"}); err == nil {
					t.Error("a program was started by a process that is stopped")
				}
			},
			"more is sent than anything reads": func(t *testing.T, r *Session, _ *Process) {
				if err := r.conn.sendWithin(r.answers); err != nil {
					t.Fatal(err)
				}
				if _, err := r.Start(Command{Path: "/bin/true", Env: []string{"A=" + strings.Repeat("a", 8<<20)}}); err == nil {
					t.Error("a program was started by a process that is stopped")
				}
			},
		} {
			t.Run(level.String()+"/"+name, func(t *testing.T) {
				b := sandboxed(t, at(level))
				r := openSession(t, b)
				p, out := staying(t, r, b)
				stopped, in := alarm(t)
				stdin, begin := alarm(t) // its own start is answered first
				hostile := admitted(t, r, Command{Path: "/bin/sh", Args: []string{"-c", "read x; kill -STOP $PPID && echo stopped; exec sleep 1000"}, Stdin: stdin, Stdout: in})
				_ = in.Close()
				if _, err := begin.WriteString("\n"); err != nil {
					t.Fatal(err)
				}
				readLine(t, stopped)
				stops(t, r.PID())
				r.answers = 100 * time.Millisecond // of a process that cannot answer
				next(t, r, p)
				for _, p := range []*Process{p, hostile} {
					if exit, err := p.Wait(); err != nil || exit.Signal != syscall.SIGKILL {
						t.Errorf("Wait() = %+v, %v, want the end by SIGKILL", exit, err)
					}
				}
				if !rung(t, out) {
					t.Error("a program is alive after the end of its session")
				}
			})
		}
	}
}
