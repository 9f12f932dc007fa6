package runnertest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// waiting is a module whose second resource waits at a gate.
func waiting(g *Gate, command string) string {
	return `
resource "terraform_data" "first" {
  input = "made"
}
resource "terraform_data" "slow" {
  depends_on = [terraform_data.first]
  provisioner "local-exec" {
    command = "` + command + `"
  }
}
`
}

// atGate starts an apply and returns once its code waits at the gate.
func atGate(t *testing.T, f Fixture) (*Stack, Runner, *Gate, string) {
	t.Helper()
	s, r, g, id := toGate(t, f)
	g.Arrived(t)
	return s, r, g, id
}

// toGate starts an apply whose code will wait at the gate.
func toGate(t *testing.T, f Fixture, change ...func(*runner.Job)) (*Stack, Runner, *Gate, string) {
	t.Helper()
	g, r := newGate(t, f.dir(t)), f.New(t)
	s := f.stack(t, r, waiting(g, g.Command()+"; : > "+filepath.Join(g.Dir, "after")))
	s.Allow(g.Dir)
	plan := s.Must(stack.PlanRun)
	return s, r, g, s.Start(stack.ApplyRun, append(change, Saved(plan))...)
}

func oneAtATime(t *testing.T, f Fixture) {
	s, r, g, id := atGate(t, f)
	other := s.Job
	other.ID, other.Kind = "other", stack.PlanRun
	for doing, err := range map[string]error{
		"starting another run": r.Start(t.Context(), other),
		"room for another run": r.Room(t.Context(), other),
		"forgetting the run":   r.Forget(s.Job.Stack, id),
		"removing the stack":   r.Remove(s.Job.Stack),
	} {
		if fault.Of(err) != fault.Conflict {
			t.Errorf("%s while it is running = %v, want a Conflict", doing, err)
		}
	}
	if got := s.Reach(runner.Applying); got.ID != id {
		t.Errorf("Current() = %+v, want run %s applying", got, id)
	}
	g.Open(t)
	s.Await()
	if err := r.Start(t.Context(), other); fault.Of(err) != fault.Conflict {
		t.Errorf("starting another run before the last was recorded = %v, want a Conflict", err)
	}
	if d := s.Finish(id); d.Outcome != stack.Succeeded {
		t.Errorf("outcome = %s: %s", d.Outcome, d.Message)
	}
}

// kept checks that a stopped apply has kept what was made and stopped what was
// being made.
func kept(t *testing.T, s *Stack, g *Gate, d Done) {
	t.Helper()
	if !Has(`"name":"first"`, s.State) || d.State.Serial == 0 {
		t.Errorf("the state %s does not hold what was made before the stop", s.State)
	}
	if !Has(`"type":"apply_complete"`, d.Events) {
		t.Errorf("the events %s do not tell what was finished", d.Events)
	}
	if _, err := os.Stat(filepath.Join(g.Dir, "after")); err == nil {
		t.Error("the code in the sandbox went on after the stop")
	}
}

// F10: a run that is asked to stop, however often, interrupts its engine once.
func cancelled(t *testing.T, f Fixture) {
	s, r, g, id := atGate(t, f)
	for range 3 {
		if err := r.Cancel(t.Context(), s.Job.Stack, id); err != nil {
			t.Fatalf("Cancel() = %v", err)
		}
	}
	d := s.Finish(id)
	if d.Outcome != stack.Interrupted {
		t.Errorf("outcome = %s, want Interrupted: %s", d.Outcome, d.Message)
	}
	if n := strings.Count(string(d.Log), "Interrupt received"); n != 1 || Has("Two interrupts", d.Log) {
		t.Errorf("the engine was interrupted %d times; its log:\n%s", n, d.Log)
	}
	kept(t, s, g, d)
	if err := r.Cancel(t.Context(), s.Job.Stack, id); err != nil {
		t.Errorf("Cancel() of a forgotten run = %v, want nil", err)
	}
}

// reached starts runs whose code waits at a gate, each with a longer limit, until the limit of
// one came when its code was there and not before: the machine may be busy.
func reached(t *testing.T, start func(limit time.Duration) (*Stack, *Gate, string)) (*Stack, *Gate, Done) {
	t.Helper()
	for limit := 10 * time.Second; limit < patience; limit *= 2 {
		s, g, id := start(limit)
		d := s.Finish(id)
		if g.passed(t) {
			return s, g, d
		}
		t.Logf("after %s the run had not come so far: it ended %s in %s", limit, d.Outcome, d.Step)
	}
	t.Fatal("no program came to the gate")
	return nil, nil, Done{}
}

// F13: a step ends at its deadline, politely.
func deadline(t *testing.T, f Fixture) {
	s, g, d := reached(t, func(limit time.Duration) (*Stack, *Gate, string) {
		s, _, g, id := toGate(t, f, func(j *runner.Job) { j.Limits.Apply = limit })
		return s, g, id
	})
	if d.Outcome != stack.TimedOut || d.Step != "apply" {
		t.Errorf("outcome = %s in %s, want TimedOut in apply: %s", d.Outcome, d.Step, d.Message)
	}
	kept(t, s, g, d)
}

// F14: what does not end politely is killed.
func stubborn(t *testing.T, f Fixture) {
	_, _, d := reached(t, func(limit time.Duration) (*Stack, *Gate, string) {
		g := newGate(t, f.dir(t))
		// Neither the engine's interrupt nor the end of its shell ends this one.
		s := f.stack(t, f.New(t), waiting(g, "trap '' INT TERM; "+g.Command()))
		s.Allow(g.Dir)
		plan := s.Must(stack.PlanRun)
		return s, g, s.Start(stack.ApplyRun, Saved(plan), func(j *runner.Job) {
			j.Limits.Apply, j.Limits.Grace = limit, 200*time.Millisecond
		})
	})
	if d.Outcome != stack.Killed && d.Outcome != stack.TimedOut {
		t.Errorf("outcome = %s, want Killed or TimedOut: %s", d.Outcome, d.Message)
	}
	if !Has(`"type":"apply_complete"`, d.Events) {
		t.Errorf("the events %s do not tell what was finished", d.Events)
	}
}
