package stack

import (
	"fmt"
	"strings"
	"time"
)

// Glass is a session in which a person works on a stack by hand, and nothing is
// planned or applied by itself.
type Glass struct {
	Session string    `json:"session"` // who asks for another one names it otherwise
	At      time.Time `json:"at"`
	Until   time.Time `json:"until"`
}

// Command is one command of the engine that a person wants to be run behind
// broken glass.
type Command struct {
	ID      string   `json:"id"`      // the same command twice has two
	Session string   `json:"session"` // the one in which it was asked for
	By      string   `json:"by,omitempty"`
	Args    []string `json:"args"`
}

// ByHand is a command that was run, or could not be.
type ByHand struct {
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

// Breaks opens the session that the spec asks for, and closes one that it does
// not ask for any more. A session that is over stays known, so that it does not
// begin again by itself.
func (m Status) Breaks(s Spec, now time.Time, lasts time.Duration) Status {
	switch {
	case s.Glass == "":
		m.Glass = nil
	case m.Glass == nil || m.Glass.Session != s.Glass:
		m.Glass = &Glass{Session: s.Glass, At: now, Until: now.Add(lasts)}
	}
	return m
}

// broken reports whether a person works on the stack by hand.
func (o Observation) broken() bool {
	g := o.Status.Glass
	return g != nil && g.Session == o.Spec.Glass && o.Now.Before(g.Until)
}

// commanded reports whether a person asked for a command that was not run yet.
func (o Observation) commanded() bool {
	c, last := o.Spec.Command, o.Status.ByHand
	return o.broken() && c != nil && c.Session == o.Status.Glass.Session && (last == nil || last.ID != c.ID)
}

// breaking is upstream's message, which its command line waits for.
const breaking = "Breaking the glass ..."

// glass waits for the person, at most until the end of the session.
func (o Observation) glass() Decision {
	return Decision{Action: Wait{o.Status.Glass.Until.Sub(o.Now)}, Ready: Held, Reason: GlassBroken, Message: breaking}
}

// handled folds a command of a person. What it may have changed is not what
// any plan was made against.
func (m Status) handled(r Run) Status {
	h := ByHand{Run: r.ID, At: r.At, Outcome: r.Outcome, Moved: r.Moved, Message: r.Message, Instead: r.Cause.Instead}
	if r.Cause.Command != nil {
		h.Command = *r.Cause.Command
	}
	m.ByHand = &h
	if !r.Moved {
		return m
	}
	m.Pending, m.Drift, m.Review, m.Circle, m.Clean = nil, nil, nil, nil, false
	m.Planned, m.Wrote = PlanInputs{}, r.ID
	m.Built = m.Built || r.Exists
	m.Note = fmt.Sprintf("the state was changed by hand (%s%s)", h.Command, by(h.By))
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
