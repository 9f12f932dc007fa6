package controller

import (
	"maps"
	"slices"
	"time"

	"github.com/terrier-iac/terrier/internal/stack"
)

// Place returns where the stack with this UID stands in the line, false if it
// does not wait for a run.
func (c *Stacks) Place(id string) (stack.Place, bool) { return c.queue.find(id) }

// Backlog returns how much waits for runs and is at work.
func (c *Stacks) Backlog() stack.Backlog { return c.queue.snapshot() }

func (q *queue) find(id string) (stack.Place, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.slots[id]; s != nil && s.called != nil {
		return stack.Place{Class: s.class.String(), Tenant: s.ask.tenant, Since: s.asked, Called: true, Why: itsTurn}, true
	}
	t := q.waiting[id]
	if t == nil {
		return stack.Place{}, false
	}
	p := stack.Place{Class: t.class.String(), Tenant: t.tenant.name, Since: t.asked, Why: q.why(t)}
	for e := t.place.Prev(); e != nil; e = e.Prev() {
		p.Before++
	}
	for c := range t.class {
		p.Before += t.tenant.lines[c].Len()
	}
	for c := range t.class + 1 {
		for _, other := range q.contest[c].tenants {
			if other != t.tenant {
				p.Others += other.lines[c].Len()
			}
		}
	}
	return p, true
}

// waitOf is how long the stack that holds a slot waited for it, in tenths of a
// second: a slot that was free was not waited for.
func (q *queue) waitOf(id string) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.slots[id]; s != nil && !s.asked.IsZero() {
		return max(0, s.started.Sub(s.asked)).Truncate(100 * time.Millisecond)
	}
	return 0
}

// itsTurn is why a stack is in the line for which a slot is held.
const itsTurn = "It is its turn"

func (q *queue) snapshot() stack.Backlog {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := stack.Backlog{
		AtWork: len(q.slots), MaxRuns: q.limits.runs, MaxPerTenant: q.limits.perTenant,
		Memory: q.charged, MaxMemory: q.limits.memory, Waiting: len(q.waiting), Classes: make([]stack.ClassBacklog, classes),
	}
	for c := range classes {
		b.Classes[c].Class = c.String()
	}
	tenants := map[string]*stack.TenantBacklog{}
	for name, t := range q.tenants {
		tenants[name] = &stack.TenantBacklog{Tenant: name, AtWork: t.working, Waiting: map[string]int{}}
	}
	for _, s := range q.slots {
		tenants[s.tenant.name].Memory += s.memory
	}
	for _, t := range q.waiting {
		class, of := &b.Classes[t.class], tenants[t.tenant.name]
		class.Waiting++
		of.Waiting[t.class.String()]++
		for _, oldest := range []*time.Time{&b.OldestSince, &class.OldestSince, &of.OldestSince} {
			if oldest.IsZero() || t.asked.Before(*oldest) {
				*oldest = t.asked
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(tenants)) {
		b.Tenants = append(b.Tenants, *tenants[name])
	}
	return b
}
