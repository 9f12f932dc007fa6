package runner_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/stack"
)

// things is a module with so many things in a world.
func things(m *runnertest.Mirror, n int, more string) string {
	var b strings.Builder
	b.WriteString(m.World())
	for i := range n {
		fmt.Fprintf(&b, "resource \"world_thing\" \"t%d\" {\n  name = \"t%d\"\n%s}\n", i, i, more)
	}
	return b.String()
}

// at is a resource that waits at a gate.
func at(name string, g *runnertest.Gate, after string) string {
	return "resource \"terraform_data\" \"" + name + "\" {\n  depends_on = [" + after + "]\n" +
		"  provisioner \"local-exec\" {\n    command = \"" + g.Command() + "\"\n  }\n}\n"
}

// kill ends a process at once.
func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// halt stops a process for good: the call that asks for it comes back before
// each of its threads has stopped.
func halt(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for tasks := fmt.Sprintf("/proc/%d/task", pid); ; runtime.Gosched() {
		all, err := os.ReadDir(tasks)
		if err != nil {
			t.Fatal(err)
		}
		stopped := 0
		for _, task := range all {
			stat, err := os.ReadFile(filepath.Join(tasks, task.Name(), "stat"))
			if err != nil {
				t.Fatal(err)
			}
			// "12 (a name) T …": proc(5); the name may hold anything, also ")".
			if _, state, ok := bytes.Cut(stat[bytes.LastIndexByte(stat, ')'):], []byte(" ")); ok && state[0] == 'T' {
				stopped++
			}
		}
		if stopped == len(all) {
			return
		}
	}
}

// engineOf finds the engine of a run among its processes; 0 if it has ended.
func engineOf(t *testing.T, alive func() []string) int {
	t.Helper()
	for _, dir := range alive() {
		name, err := os.ReadFile(filepath.Join(dir, "comm"))
		if err == nil && strings.TrimSpace(string(name)) == "tofu" {
			var pid int
			if _, err := fmt.Sscanf(filepath.Base(dir), "%d", &pid); err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	return 0
}

// F09, F08, P2: a supervisor that hears nothing any more while its engine goes
// on, and is then killed, has lost nothing of what the engine did.
func TestAKilledSupervisorLosesNoOperation(t *testing.T) {
	t.Run("of an apply", func(t *testing.T) { losesNoOperation(t, stack.ApplyRun) })
	t.Run("of a script", func(t *testing.T) {
		losesNoOperation(t, stack.ScriptRun, func(j *runner.Job) {
			j.Plan, j.Script = runner.Content{}, &runner.Script{Apply: []byte("terraform init && terraform plan -out=x && terraform apply x")}
		})
	})
}

func losesNoOperation(t *testing.T, kind stack.RunKind, change ...func(*runner.Job)) {
	const n = 5
	dir := t.TempDir()
	before, after := runnertest.NewGate(t), runnertest.NewGate(t)
	m := runnertest.NewMirror(t, mirror(t), "")
	s := runnertest.NewStack(t, open(t, dir), tofu(t), "")
	m.Use(s)
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("world_thing.t%d", i))
	}
	s.Job.Files[0].Content = []byte(things(m, n, "  depends_on = [terraform_data.before]\n  secret = \"canary-spool\"\n") +
		at("before", before, "") + at("after", after, strings.Join(all, ", ")))
	s.Job.Mask = []string{"canary-spool", "thing-2"}
	s.Job.Options.NoReattach = true
	s.Allow(before.Dir)
	s.Allow(after.Dir)
	saved := s.Must(stack.PlanRun)

	id := s.Start(kind, append([]func(*runner.Job){runnertest.Saved(saved)}, change...)...)
	before.Arrived(t)
	pid := s.Current().PID
	halt(t, pid)
	before.Open(t)
	after.Arrived(t) // all things are there, and the engine has said so
	run := filepath.Join(dir, "runs", s.Job.Stack, id)
	if events := s.Read(id, runner.FileEvents); runnertest.Has("world_thing.t0: Creating", events) {
		t.Fatalf("the supervisor has heard of them, which shows nothing: %s", events)
	}
	kill(t, pid)
	d := s.Finish(id)
	if d.Outcome != stack.Killed {
		t.Errorf("ended %s: %s", d.Outcome, d.Message)
	}
	if got := strings.Count(string(d.Events), `"type":"apply_complete"`); got != n+1 {
		t.Errorf("%d finished operations are in the events, want %d:\n%s", got, n+1, d.Events)
	}
	if runnertest.Has("canary-spool", d.Events, d.Log) || runnertest.Has("thing-2", d.Events, d.Log) {
		t.Errorf("what is masked came through: %s", d.Events)
	}
	// The one whose id must not be shown is known by its address.
	for i, line := range strings.Split(string(d.Events), "\n") {
		if strings.Contains(line, "•••") && !strings.Contains(line, "world_thing") {
			t.Errorf("event %d hides something else: %s", i, line)
		}
	}
	if _, err := os.Stat(run); err == nil {
		t.Error("the run is left")
	}
}

// F09: the untracked resources are the difference of the cloud and the state,
// whenever the supervisor or the engine is killed.
func TestUntrackedIsExactWheneverARunIsKilled(t *testing.T) {
	const n = 8
	for _, victim := range []string{"supervisor", "engine"} {
		for made := 1; made < n; made += 2 {
			t.Run(fmt.Sprintf("%s after %d", victim, made), func(t *testing.T) {
				m := runnertest.NewMirror(t, mirror(t), "")
				s := runnertest.NewStack(t, open(t, t.TempDir()), tofu(t), things(m, n, ""))
				m.Use(s)
				alive := runnertest.Marked(t, s)
				saved := s.Must(stack.PlanRun)
				id := s.Start(stack.ApplyRun, runnertest.Saved(saved), func(j *runner.Job) { j.Options.Parallelism = 2 })
				m.Await("create", "done", made)
				pid := s.Current().PID
				if victim == "engine" {
					pid = engineOf(t, alive)
				}
				// A machine that is slow to look may find that all is done
				// already.
				if pid > 0 {
					if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
						t.Fatal(err)
					}
				}
				d := s.Finish(id)
				if d.Outcome != stack.Killed && d.Outcome != stack.Succeeded {
					t.Errorf("ended %s: %s", d.Outcome, d.Message)
				}
				m.Exact(d, s.State)
			})
		}
	}
}

// P2: what replaces something is not what it replaces, though both bear one
// address.
func TestUntrackedOfAReplacement(t *testing.T) {
	for name, more := range map[string]string{
		"the old one first": "",
		"the new one first": "  lifecycle {\n    create_before_destroy = true\n  }\n",
	} {
		t.Run(name, func(t *testing.T) {
			g := runnertest.NewGate(t)
			m := runnertest.NewMirror(t, mirror(t), "")
			s := runnertest.NewStack(t, open(t, t.TempDir()), tofu(t), things(m, 1, more))
			m.Use(s)
			s.Must(stack.ApplyRun, runnertest.Saved(s.Must(stack.PlanRun)))
			s.Job.Files[0].Content = []byte(m.World() + "resource \"world_thing\" \"t0\" {\n  name = \"other\"\n" + more + "}\n" + at("after", g, "world_thing.t0"))
			s.Allow(g.Dir)
			saved := s.Must(stack.PlanRun)
			id := s.Start(stack.ApplyRun, runnertest.Saved(saved))
			g.Arrived(t)
			kill(t, s.Current().PID)
			d := s.Finish(id)
			gap := gapOf(t, d, s.State)
			if len(gap) != 2 || gap[1].Address != "world_thing.t0" || gap[1].ID != "thing-2" || !gap[1].Finished {
				t.Errorf("the gap is %+v, want the new thing with its id\nthe state: %s\nthe events: %s", gap, s.State, d.Events)
			}
		})
	}
}

func gapOf(t *testing.T, d runnertest.Done, state []byte) []stack.UntrackedResource {
	t.Helper()
	gap, err := plan.Unrecorded(bytes.NewReader(d.Events), state)
	if err != nil {
		t.Fatal(err)
	}
	return gap
}
