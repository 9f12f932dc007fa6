package service

import (
	"context"
	"time"

	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Decisions are what was decided about stacks, as it was written down.
type Decisions interface {
	// Decisions returns what was decided about a stack, newest first.
	Decisions(context.Context, StackID) ([]Decided, error)
}

// Decided is one decision about a stack. It stands until the next one.
type Decided struct {
	At         time.Time `json:"at"`
	Phase      string    `json:"phase"` // a stack.Reason
	Rule       string    `json:"rule"`
	Message    string    `json:"message,omitempty"`
	WaitingFor string    `json:"waitingFor,omitempty"`
}

// Moment is one thing that happened to a stack.
type Moment struct {
	At      time.Time     `json:"at"`
	Kind    MomentKind    `json:"kind"`
	Title   string        `json:"title"`
	Text    string        `json:"text,omitempty"`
	Rule    string        `json:"rule,omitempty"` // that fired
	Run     string        `json:"run,omitempty"`  // its identifier
	Outcome stack.Outcome `json:"outcome,omitempty"`
	Took    time.Duration `json:"took,omitempty"`  // of a run that ended; nanoseconds
	Count   int           `json:"count,omitempty"` // how often, if more than once
	Bad     bool          `json:"bad,omitempty"`   // it went wrong
}

// MomentKind is what sort of thing happened.
type MomentKind string

// The kinds of moment.
const (
	MomentCreated  MomentKind = "created"
	MomentRun      MomentKind = "run"
	MomentDecision MomentKind = "decision"
	MomentEvent    MomentKind = "event"
)

// DriftDetail is how the world differs from what was applied.
type DriftDetail struct {
	Since   time.Time     `json:"since"` // when it was first seen
	Changes stack.Changes `json:"changes"`
	Digest  string        `json:"digest,omitempty"` // of the plan that was made of it
	Drifted []plan.Change `json:"drifted,omitempty"`
}
