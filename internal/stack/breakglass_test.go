package stack

import (
	"strings"
	"testing"
	"time"
)

// inSession is a stack with a plan that would be applied, in a break-glass session.
func inSession(now time.Time) Observation {
	basis := PlanInputs{Source: "s"}
	o := Observation{Now: now, PlanInputs: basis, Spec: Spec{Mode: Auto, BreakGlass: "t1", Interval: time.Hour, RetryEvery: time.Minute},
		Status: Status{Plans: Plans{Planned: basis, Pending: &Plan{Name: "p1", Digest: "d", PlanInputs: basis}}, StoredState: StoredState{State: "old"}, Resources: Resources{Created: true}}}
	o.Status = o.Status.WithSession(o.Spec, now, time.Hour)
	return o
}

func TestNothingHappensInABreakGlassSession(t *testing.T) {
	now := time.Unix(1e9, 0)
	o := inSession(now)
	if d := Decide(o); d.Reason != BreakGlassSession || d.Action != (Wait{time.Hour}) || d.Ready != Held || d.Message != "Breaking the glass ..." {
		t.Errorf("Decide() = %+v, want to wait for the person until the session ends", d)
	}
	for name, change := range map[string]func(*Observation){
		"when the session is over":      func(o *Observation) { o.Now = now.Add(time.Hour) },
		"when nobody asks for it":       func(o *Observation) { o.Spec.BreakGlass = "" },
		"when another session was over": func(o *Observation) { o.Spec.BreakGlass = "t2" },
	} {
		t.Run(name+" it goes on", func(t *testing.T) {
			o := inSession(now)
			change(&o)
			if d := Decide(o); d.Reason != Applying {
				t.Errorf("Decide() = %s, want the plan to be applied", d.Reason)
			}
		})
	}
}

func TestASessionBeginsOnce(t *testing.T) {
	now := time.Unix(1e9, 0)
	o := inSession(now)
	later := now.Add(2 * time.Hour)
	if m := o.Status.WithSession(o.Spec, later, time.Hour); !m.BreakGlass.At.Equal(now) {
		t.Errorf("the session that is over began again at %v", m.BreakGlass.At)
	}
	o.Spec.BreakGlass = "t2"
	if m := o.Status.WithSession(o.Spec, later, time.Hour); !m.BreakGlass.At.Equal(later) || !m.BreakGlass.Until.Equal(later.Add(time.Hour)) {
		t.Errorf("the next session is %+v, want it to begin anew", m.BreakGlass)
	}
	o.Spec.BreakGlass = ""
	if m := o.Status.WithSession(o.Spec, later, time.Hour); m.BreakGlass != nil {
		t.Errorf("the session %+v goes on, want it to end", m.BreakGlass)
	}
}

func TestACommandIsRunOnceInItsSession(t *testing.T) {
	o := inSession(time.Unix(1e9, 0))
	o.Spec.Command = &Command{ID: "c1", Session: "t1", Args: []string{"state", "list"}}
	if d := Decide(o); d.Action != (Start{Kind: BreakGlassRun, Why: "break-glass command: state list"}) {
		t.Errorf("Decide() = %+v, want the command to be run", d)
	}
	ran := o
	ran.Status = ran.Status.Record(Run{ID: "glass-1", Kind: BreakGlassRun, Done: true, Outcome: Failed, Message: "m", Cause: Cause{Command: o.Spec.Command}})
	if d := Decide(ran); d.Reason != BreakGlassSession || !d.waits() {
		t.Errorf("Decide() = %+v, want a command that failed not to be run again", d)
	}
	if h := ran.Status.LastCommand; h.ID != "c1" || h.Outcome != Failed || h.Message != "m" || ran.Status.Failures != 0 {
		t.Errorf("recorded %+v and %d failures, want the command, and no failure of the stack", h, ran.Status.Failures)
	}
	o.Spec.Command.Session = "t0"
	if d := Decide(o); !d.waits() {
		t.Errorf("Decide() = %+v, want a command of another session to be left", d)
	}
}

// A state that a person changed is not what the plan was made against; one
// that was only read is.
func TestWhatABreakGlassCommandChanges(t *testing.T) {
	for _, moved := range []bool{false, true} {
		o := inSession(time.Unix(1e9, 0))
		c := &Command{ID: "c1", Session: "t1", By: "ann", Args: []string{"state", "rm", "a.b"}}
		m := o.Status.Record(Run{ID: "glass-1", Kind: BreakGlassRun, Done: true, Outcome: Succeeded, Moved: moved, State: "new", Cause: Cause{Command: c}})
		if (m.Pending == nil) != moved || (m.LastWrite == "glass-1") != moved || (m.State == "new") != moved {
			t.Errorf("moved %v: pending %v, wrote %q, state %q", moved, m.Pending, m.LastWrite, m.State)
		}
		if moved != (strings.Contains(m.PlanNote, "state rm a.b") && strings.Contains(m.PlanNote, "ann")) {
			t.Errorf("moved %v: the note is %q", moved, m.PlanNote)
		}
		if again := m.Record(Run{ID: "glass-1", Kind: BreakGlassRun, Done: true}); again.LastCommand != m.LastCommand {
			t.Error("the same run was recorded twice")
		}
	}
}
