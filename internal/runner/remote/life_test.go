package remote_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/remote"
	"github.com/terrier-iac/terrier/internal/runner/remote/remotetest"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/stack"
)

// slow is a module that makes one thing and then waits at the gate.
func slow(g *runnertest.Gate) string {
	return `
resource "terraform_data" "first" {
  input = "made"
}
resource "terraform_data" "slow" {
  depends_on = [terraform_data.first]
  provisioner "local-exec" {
    command = "` + g.Command() + "; touch " + filepath.Join(g.Dir, "after") + `"
  }
}
`
}

// applying starts an apply that waits at a gate.
func applying(t *testing.T, c *controller) (*runnertest.Stack, *runnertest.Gate, string) {
	t.Helper()
	g := runnertest.NewGate(t)
	s := runnertest.NewStack(t, c, tofu(t), slow(g))
	s.Job.Note = []byte(`{"cause":"test"}`)
	s.Allow(g.Dir)
	id := s.Start(stack.ApplyRun, runnertest.Saved(s.Must(stack.PlanRun)))
	g.Arrived(t)
	return s, g, id
}

// processes returns what reports whether a process and all of its descendants, as they are
// now, have ended. In a container they end with the first one; here one after another.
func processes(t *testing.T, root int) (over func() bool) {
	t.Helper()
	parents, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	children := map[int][]int{}
	for _, path := range parents {
		var pid, parent int
		var name, state string
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended meanwhile
		}
		head, rest, _ := strings.Cut(string(stat), " (")
		if _, err := fmt.Sscan(head, &pid); err != nil {
			t.Fatal(err)
		}
		name, rest = rest[:strings.LastIndexByte(rest, ')')], rest[strings.LastIndexByte(rest, ')')+1:]
		if _, err := fmt.Sscan(rest, &state, &parent); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		children[parent] = append(children[parent], pid)
	}
	var all []unix.PollFd
	for left := []int{root}; len(left) > 0; left = append(left[1:], children[left[0]]...) {
		fd, err := unix.PidfdOpen(left[0], 0)
		if errors.Is(err, unix.ESRCH) {
			continue // it has ended meanwhile
		}
		if err != nil {
			t.Fatalf("process %d: %v", left[0], err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		all = append(all, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	if len(all) < 3 {
		t.Fatalf("%d processes are below %d, want an agent, a supervisor and a sandbox", len(all), root)
	}
	return func() bool {
		n, err := unix.Poll(all, 0)
		return err == nil && n == len(all)
	}
}

// await waits until a condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(within)
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited too long until %s", what)
		}
	}
}

// awaitRemoved waits until no place has to be removed any more.
func awaitRemoved(t *testing.T, dir string) {
	t.Helper()
	await(t, "the places are removed", func() bool {
		left, err := filepath.Glob(filepath.Join(dir, "removals", "*.json"))
		return err == nil && len(left) == 0
	})
}

// awaitDone waits for the end of the run of a stack that has no engine.
func awaitDone(t *testing.T, c *controller, key string) runner.Report {
	t.Helper()
	var r *runner.Report
	await(t, "the run of "+key+" has ended", func() bool {
		var err error
		if r, err = c.Current(key); err != nil || r == nil {
			t.Fatalf("Current() = %+v, %v", r, err)
		}
		return r.Phase == runner.Done
	})
	return *r
}

// A controller that is replaced in the middle of an apply, with its directory or with
// an empty one, has the end of it and all that it left. Nothing of the run stays.
func TestControllerIsReplaced(t *testing.T) {
	for name, empty := range map[string]bool{"with its directory": false, "with an empty directory": true} {
		for when, ended := range map[string]bool{"the run goes on": false, "the run has ended meanwhile": true} {
			t.Run(name+" "+when, func(t *testing.T) {
				s, dir := newSite(t), t.TempDir()
				first := s.open(dir)
				st, g, id := applying(t, first)
				s.close(first)
				if ended {
					g.Open(t)
					await(t, "the run has ended in its place", func() bool { return s.ended(id) })
				}
				if empty {
					dir = t.TempDir()
				}
				second := s.open(dir)
				st.Use(second)
				if got := st.Current(); got == nil || got.ID != id || string(got.Note) != `{"cause":"test"}` || got.Kind != stack.ApplyRun {
					t.Fatalf("Current() = %+v, want run %s", got, id)
				}
				if !ended {
					g.Open(t)
				}
				d := st.Finish(id)
				if d.Outcome != stack.Succeeded || d.Resources != 2 || !runnertest.Has(`"name":"slow"`, st.State) || len(d.Log) == 0 ||
					strings.Count(string(d.Events), `"type":"apply_complete"`) != 2 {
					t.Errorf("ended %s with %d resources: %s\nstate %s\nevents %s", d.Outcome, d.Resources, d.Message, st.State, d.Events)
				}
				awaitRemoved(t, dir)
				await(t, "no place is left", func() bool {
					left, err := os.ReadDir(s.launcher.Dir)
					return err == nil && len(left) == 0
				})
			})
		}
	}
}

// ended reports whether a run has ended in its place.
func (s *site) ended(id string) bool {
	dirs, err := filepath.Glob(filepath.Join(s.launcher.Dir, "*", "agent", "runner", "runs", "*", id))
	if err != nil || len(dirs) != 1 {
		return false
	}
	r, err := runner.ReadReport(dirs[0])
	return err == nil && r.Phase == runner.Done
}

// A controller that is replaced before the agent asked for its order has lost it: the
// run never began, and says so.
func TestControllerIsReplacedBeforeTheOrder(t *testing.T) {
	for name, empty := range map[string]bool{"with its directory": false, "with an empty directory": true} {
		t.Run(name, func(t *testing.T) {
			s, dir := newSite(t), t.TempDir()
			s.launcher.Hold = true
			first := s.open(dir)
			if err := first.Start(t.Context(), bare("a", "run")); err != nil {
				t.Fatal(err)
			}
			p := first.PlaceOf("a", "run")
			s.close(first)
			if empty {
				dir = t.TempDir()
			}
			second := s.open(dir)
			if empty { // that it has no order is found out by asking
				if err := s.launcher.Start(p); err != nil {
					t.Fatal(err)
				}
			}
			r := awaitDone(t, second, "a")
			if r.Outcome != stack.Interrupted || r.Reason != remote.NeverStarted || string(r.Note) != `{"cause":"test"}` {
				t.Errorf("ended %+v, want that it never began", r)
			}
			awaitRemoved(t, dir)
			if err := second.Forget("a", "run"); err != nil {
				t.Error(err)
			}
		})
	}
}

// A run that is cancelled before its agent runs never begins.
func TestCancelledWhilePending(t *testing.T) {
	s, dir := newSite(t), t.TempDir()
	s.launcher.Hold = true
	c := s.open(dir)
	if err := c.Start(t.Context(), bare("a", "run")); err != nil {
		t.Fatal(err)
	}
	s.launcher.Tell(c.PlaceOf("a", "run"))
	await(t, "the report says why the run waits", func() bool {
		r, err := c.Current("a")
		return err == nil && r.Phase == runner.Starting && r.Message == "the test holds the agent"
	})
	if err := c.Cancel(t.Context(), "a", "run"); err != nil {
		t.Fatal(err)
	}
	if r := awaitDone(t, c, "a"); r.Outcome != stack.Interrupted {
		t.Errorf("ended %s: %s", r.Outcome, r.Message)
	}
	if got := <-c.Ended(); got != "a" {
		t.Errorf("Ended() = %s", got)
	}
	awaitRemoved(t, dir)
}

// A place that does not come to life ends its run.
func TestPlaceThatDoesNotStart(t *testing.T) {
	s := newSite(t)
	s.launcher.Hold = true
	c := s.open(t.TempDir(), func(c *remote.Config) { c.StartLimit = time.Nanosecond })
	if err := c.Start(t.Context(), bare("a", "run")); err != nil {
		t.Fatal(err)
	}
	s.launcher.Tell(c.PlaceOf("a", "run"))
	if r := awaitDone(t, c, "a"); r.Outcome != stack.Failed || !strings.Contains(r.Message, "did not start within") || !strings.Contains(r.Message, "the test holds the agent") {
		t.Errorf("ended %s: %s", r.Outcome, r.Message)
	}
}

// F11: a place that may be lost is no silent wait, and its run goes on.
func TestPlaceInDoubt(t *testing.T) {
	s := newSite(t)
	c := s.open(t.TempDir())
	st, g, id := applying(t, c)
	p := c.PlaceOf(st.Job.Stack, id)
	s.launcher.Doubt("the node does not answer")
	s.launcher.Tell(p)
	await(t, "the report says why it is not known how the run goes on", func() bool {
		r, err := c.Current(st.Job.Stack)
		return err == nil && r.Phase == runner.Applying && r.Message == "the node does not answer"
	})
	s.launcher.Doubt("")
	g.Open(t)
	if d := st.Finish(id); d.Outcome != stack.Succeeded || d.Message != "" {
		t.Errorf("ended %s: %s", d.Outcome, d.Message)
	}
}

// F11: a place that is lost in the middle of an apply leaves what was delivered, and
// the run is Killed.
func TestPlaceIsLost(t *testing.T) {
	for name, lose := range map[string]func(*site, remote.Place) error{
		"with its node":        func(s *site, p remote.Place) error { return s.launcher.Kill(p) },
		"because its agent is": func(s *site, p remote.Place) error { return s.launcher.Signal(p, syscall.SIGKILL) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			c := s.open(t.TempDir())
			st, g, id := applying(t, c)
			await(t, "the first operation is delivered, and the report after it", func() bool {
				return runnertest.Has(`"type":"apply_complete"`, st.Read(id, runner.FileEvents)) && st.Current().Phase == runner.Applying
			})
			p := c.PlaceOf(st.Job.Stack, id)
			over := processes(t, s.launcher.PID(p))
			if err := lose(s, p); err != nil {
				t.Fatal(err)
			}
			s.launcher.Tell(p)
			d := st.Finish(id)
			if d.Outcome != stack.Killed || !d.Lost || d.Reason == "" || !strings.Contains(d.Message, "while the run was Applying") {
				t.Errorf("ended %s for %q, lost %v: %s", d.Outcome, d.Reason, d.Lost, d.Message)
			}
			if !runnertest.Has(`"type":"apply_complete"`, d.Events) {
				t.Errorf("the events %s do not tell what was finished", d.Events)
			}
			await(t, "no process of the place is left", over)
			g.Open(t)
			if _, err := os.Stat(filepath.Join(g.Dir, "after")); err == nil {
				t.Error("the code in the sandbox went on")
			}
		})
	}
}

// F10: a signal to the agent is one interrupt, and everything is delivered.
func TestAgentIsTold(t *testing.T) {
	s := newSite(t)
	c := s.open(t.TempDir())
	st, _, id := applying(t, c)
	p := c.PlaceOf(st.Job.Stack, id)
	for range 2 {
		if err := s.launcher.Signal(p, syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	d := st.Finish(id)
	if d.Outcome != stack.Interrupted || !runnertest.Has(`"name":"first"`, st.State) {
		t.Errorf("ended %s: %s\n%s", d.Outcome, d.Message, st.State)
	}
	if n := strings.Count(string(d.Log), "Interrupt received"); n != 1 {
		t.Errorf("the engine was interrupted %d times:\n%s", n, d.Log)
	}
}

// A network that is cut while the run ends, and a controller that has no space, lose
// nothing.
func TestControllerIsOutOfReach(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"cut":      func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"no space": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInsufficientStorage) },
		"a proxy":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) },
		"a token that is not accepted": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"error":"the token is not accepted"}`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			c := s.open(t.TempDir())
			st, g, id := applying(t, c)
			var asked atomic.Int64
			var bad http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				answer(w, r)
			})
			good := s.serve.Swap(&bad)
			g.Open(t)
			await(t, "the run has ended in its place", func() bool { return s.ended(id) })
			n := asked.Load()
			await(t, "the agent has tried again", func() bool { return asked.Load() > n+2 })
			s.serve.Store(good)
			if d := st.Finish(id); d.Outcome != stack.Succeeded || d.Resources != 2 || strings.Count(string(d.Events), `"type":"apply_complete"`) != 2 {
				t.Errorf("ended %s with %d resources: %s", d.Outcome, d.Resources, d.Message)
			}
		})
	}
}

// A controller that took the place for dead has begun something else: the agent that
// comes back interrupts its run.
func TestAgentOfAForgottenRun(t *testing.T) {
	s := newSite(t)
	c := s.open(t.TempDir())
	st, _, id := applying(t, c)
	p := c.PlaceOf(st.Job.Stack, id)
	s.close(c)
	other := s.open(t.TempDir(), func(c *remote.Config) { c.Launcher = blind{s.launcher} })
	st.Use(other)
	await(t, "the run is interrupted in its place", func() bool { return s.ended(id) })
	await(t, "the agent has ended", func() bool {
		life, err := s.launcher.Look(t.Context(), p)
		return err == nil && life.State == remote.Ended && life.Exit != 0
	})
}

// blind is a launcher that finds no place.
type blind struct{ *remotetest.Launcher }

func (blind) Places(context.Context) ([]remote.Place, error) { return nil, nil }
