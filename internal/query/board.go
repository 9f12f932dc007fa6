package query

import (
	"slices"
	"time"

	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Status is the status of a stack in one word, to count and filter by.
type Status string

// The statuses; those that need a user come first.
const (
	StatusFailed    Status = "failed"    // the last attempt failed; Terrier retries it, or a user has to act
	StatusLocked    Status = "locked"    // another program holds the lock on the state
	StatusPending   Status = "pending"   // a plan needs an approval
	StatusRejected  Status = "rejected"  // a user rejected the plan, and the stack waits for another
	StatusDrifted   Status = "drifted"   // resources differ from what was applied
	StatusRunning   Status = "running"   // a run goes on
	StatusWaiting   Status = "waiting"   // for a source, an input, a dependency or its turn
	StatusDeleting  Status = "deleting"  // the object is being deleted
	StatusSuspended Status = "suspended" // Terrier does not reconcile it
	StatusReady     Status = "ready"     // nothing is to be done
)

// Statuses lists all of them in the order above.
func Statuses() []Status { return slices.Clone(allStatuses[:]) }

// Row is one stack among many.
type Row struct {
	Stack
	Status Status         `json:"status"`
	Tenant string         `json:"tenant,omitempty"` // by the label that the platform takes for it
	Delta  *stack.Changes `json:"delta,omitempty"`  // of the pending plan, else of the drift, else of the last apply
}

// StatusSince is when the row got its status, and not the last attempt of a stack
// that fails again and again; zero if that is unknown.
func (r Row) StatusSince() time.Time {
	switch {
	case (r.Status == StatusFailed || r.Status == StatusLocked) && !r.FailsSince.IsZero():
		return r.FailsSince
	case r.Status == StatusPending && r.Plan != nil && !r.Plan.At.IsZero():
		return r.Plan.At
	case r.Status == StatusDrifted && r.Drift != nil && !r.Drift.At.IsZero():
		return r.Drift.At
	default:
		return r.Since
	}
}

// BoardQuery chooses and orders rows.
type BoardQuery struct {
	Text      string   // words that must all occur in the name, namespace, tenant, source, path, labels or message
	Statuses  []Status // any of them; all if empty
	Namespace string   // all if empty
	Tenant    string   // all if empty
	Selector  string   // of labels, as kubectl reads it
	Group     string   // namespace, tenant or label:KEY; empty for none
	Sort      string   // name, status, since, applied or -FIELD; name if empty
	Offset    int
	Limit     int // 100 if 0, 1000 at most
}

// BoardPage is what a query found.
type BoardPage struct {
	Items  []Row          `json:"items"`
	Total  int            `json:"total"`            // that the query chooses
	Counts map[Status]int `json:"counts"`           // by status, of all that the query chooses but for Statuses
	Groups []BoardGroup   `json:"groups,omitempty"` // by name, of all that the query chooses; with Group, rows are ordered by group first
	Cursor string         `json:"cursor"`           // from where Board.Changes goes on
}

// BoardGroup is the rows that have one value in common.
type BoardGroup struct {
	Name   string         `json:"name"`
	Total  int            `json:"total"`
	Counts map[Status]int `json:"counts"`
}

// BoardChange is one row that changed, as it is now.
type BoardChange struct {
	Cursor string    `json:"-"`
	At     time.Time `json:"at"`
	Row    Row       `json:"row"` // the last that was seen of it if it is gone
	Gone   bool      `json:"gone,omitempty"`
}

// BoardNews is what changed since a cursor. A row that changed several times is
// there once, as it is now.
type BoardNews struct {
	Changes []BoardChange   // oldest first
	Next    string          // the cursor to ask with next
	Reset   bool            // what changed since is unknown: read everything again, then continue from Next
	Wait    <-chan struct{} // closed as soon as there is more; never buffers, and need not be read
}

// Queue says which stacks wait for a run and which have one. It answers for all
// namespaces: its caller shows a user only what that user may see.
type Queue interface {
	Backlog() schedule.Backlog
	Line() schedule.Line
	Place(uid string) (schedule.Place, bool)
}

// NamedQueue is a Queue whose stacks have their kinds as Key has them.
type NamedQueue struct {
	Queue
	Kinds Kinds
}

// Line implements Queue.
func (q NamedQueue) Line() schedule.Line {
	line := q.Queue.Line()
	line.Running, line.Waiting = q.named(line.Running), q.named(line.Waiting)
	return line
}

// named returns copies: the schedule gives the same turns to all who ask.
func (q NamedQueue) named(turns []schedule.Turn) []schedule.Turn {
	turns = slices.Clone(turns)
	for i := range turns {
		turns[i].StackKind = wordOf(q.Kinds, turns[i].StackKind)
	}
	return turns
}
