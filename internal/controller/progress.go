package controller

import (
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/stack"
)

// Patience is how long a run that nobody asked for may go on, or wait for its
// turn, before the status says so. A short run is over by then, and what it came
// to is written down in any case: each of a thousand new small stacks would be
// written three times more.
const Patience = 2 * time.Second

// unsaid remembers since when a status says less than it could, by the UIDs of
// stacks.
type unsaid struct {
	mu    sync.Mutex
	since map[string]time.Time
}

// wait returns how long the progress of a stack may go untold, zero if it is to
// be told now.
func (u *unsaid) wait(id string, now time.Time, patience time.Duration) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	since, ok := u.since[id]
	if !ok {
		if u.since == nil {
			u.since = map[string]time.Time{}
		}
		since = now
		u.since[id] = now
	}
	// A clock that was set back must not keep anything untold.
	return min(max(0, since.Add(patience).Sub(now)), patience)
}

func (u *unsaid) told(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.since, id)
}

// untold is how long what a pass found may go untold: it is only progress, and
// nobody waits for it.
func (c *Stacks) untold(p *pass, before client.Object) time.Duration {
	run := p.o.Run
	switch {
	case c.Config.Patience <= 0, p.ended != nil, run == nil && p.wait == "":
		return 0
	case p.o.Spec.Mode == stack.Manual, p.o.Deleting, p.o.Request != p.o.Status.Handled:
		return 0 // a person has just said something, and looks what becomes of it
	case run != nil && run.Kind != stack.PlanRun && run.Kind != stack.ApplyRun:
		return 0
	case !c.Dialect.OnlyProgress(before, p.obj):
		return 0
	}
	return c.unsaid.wait(p.id, p.o.Now, c.Config.Patience)
}
