package stack

import (
	"fmt"
	"strings"
	"time"
)

// BreakGlass is a session in which a person runs commands of the engine on a
// stack. During it the controller plans and applies nothing.
type BreakGlass struct {
	Session string    `json:"session"` // another session has another name
	At      time.Time `json:"at"`
	Until   time.Time `json:"until"`
}

// Command is one command of the engine that a person wants to be run in a
// break-glass session.
type Command struct {
	ID      string   `json:"id"`      // the same command twice has two
	Session string   `json:"session"` // the one in which it was asked for
	By      string   `json:"by,omitempty"`
	Args    []string `json:"args"`
}

// CommandResult is a command that was run, or could not be.
type CommandResult struct {
	Command
	Run     string    `json:"run"`
	At      time.Time `json:"at"`
	Outcome Outcome   `json:"outcome"`
	Moved   bool      `json:"moved,omitempty"` // the state changed, or may have
	Message string    `json:"message,omitempty"`
	Instead string    `json:"instead,omitempty"` // why it was run with what was applied last
}

// String is the command as it is typed.
func (c Command) String() string { return strings.Join(c.Args, " ") }

// WithSession opens the break-glass session that the spec asks for, and closes one
// that it asks for no more. A session that is over stays known, so that it does not
// begin again.
func (m Status) WithSession(s Spec, now time.Time, lasts time.Duration) Status {
	switch {
	case s.BreakGlass == "":
		m.BreakGlass = nil
	case m.BreakGlass == nil || m.BreakGlass.Session != s.BreakGlass:
		m.BreakGlass = &BreakGlass{Session: s.BreakGlass, At: now, Until: now.Add(lasts)}
	}
	return m
}

// inSession reports whether a break-glass session goes on.
func (o Observation) inSession() bool {
	g := o.Status.BreakGlass
	return g != nil && g.Session == o.Spec.BreakGlass && o.Now.Before(g.Until)
}

// commanded reports whether a person asked for a command that was not run yet.
func (o Observation) commanded() bool {
	c, last := o.Spec.Command, o.Status.LastCommand
	return o.inSession() && c != nil && c.Session == o.Status.BreakGlass.Session && (last == nil || last.ID != c.ID)
}

// withCommand folds a command of a person. What it may have changed is not what
// any plan was made against.
func (m Status) withCommand(r Run) Status {
	h := CommandResult{Run: r.ID, At: r.At, Outcome: r.Outcome, Moved: r.Moved, Message: r.Message, Instead: r.Cause.Instead}
	if r.Cause.Command != nil {
		h.Command = *r.Cause.Command
	}
	m.LastCommand = &h
	if !r.Moved {
		return m
	}
	m.Pending, m.Drift, m.Review, m.Recurrence, m.DriftFree, m.Tolerated = nil, nil, nil, nil, false, nil
	m.Planned, m.LastWrite = PlanInputs{}, r.ID
	m.Created = m.Created || r.Exists
	m.PlanNote = fmt.Sprintf("a break-glass command changed the state (%s%s)", h.Command, by(h.By))
	if r.State != "" {
		m.State = r.State
	}
	if r.Outputs != nil {
		m.Outputs = r.Outputs
	}
	return m
}

func by(who string) string {
	if who == "" {
		return ""
	}
	return ", by " + who
}
