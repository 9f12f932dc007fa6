// Package schedule decides which runs may start now and which wait, for all
// kinds of objects that have runs, and for plans beside a stack. It starts
// nothing and knows no Kubernetes: a controller asks for a slot with a Candidate,
// is woken when the turn of its object has come, and says when the run ended.
// The runner says what there is room for (Room).
//
// Queue is the door: safe for concurrent use, with the time and the timers that
// it was given. Behind it, scheduler is the order itself (scheduler.go), ranking
// the fairness between tenants, memory.go what becomes of memory that is left
// over, forecast.go the order that is shown, ClassOf how urgent a run is, and
// Memory what a run is charged.
//
// Start reading at Queue.
package schedule

import (
	"time"

	"github.com/terrier-iac/terrier/internal/stack"
)

// Limits bound the runs that run at once. Zero means no bound.
type Limits struct {
	Runs      int
	PerTenant int
	PerClass  PerClass
	Memory    int64 // bytes that the runs are charged together
}

// PerClass bounds the runs of each class that run at once. Zero means no bound.
type PerClass [classes]int

// Room says what the runner has room for at this moment. It is asked at each
// decision, so it must be quick, and it must not call the queue.
type Room func() Limits

// Always is the room of a runner whose limits do not change.
func (l Limits) Always() Room { return func() Limits { return l } }

// Key names the object that is woken when its turn has come.
type Key struct {
	Kind      string // which Listener it belongs to
	Namespace string
	Name      string
}

// Candidate asks for a slot for one run.
type Candidate struct {
	Key    Key
	Kind   stack.RunKind
	Class  Class
	Tenant string
	Memory int64     // bytes that the run is charged
	Began  time.Time // when the run began, of one that was found running
	Ending bool      // the run has ended, and its place, a pod, has not
	Asked  time.Time // since when it waits, of one that asked before; else now
}

// Ended is the place of a run that ended now, for as long as the place has not ended.
func (c Candidate) Ended(now time.Time) Candidate {
	c.Ending, c.Began = true, now
	return c
}
