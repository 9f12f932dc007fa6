package schedule

import (
	"maps"
	"slices"
	"time"
)

// itsTurn is why an object is in the line for which a slot is reserved.
const itsTurn = "It is its turn"

// Place returns where an object is in the line, false if it does not wait for a
// run.
func (q *Queue) Place(id string) (Place, bool) {
	q.lock()
	defer q.mu.Unlock()
	if s := q.scheduler.slots[id]; s != nil && s.reserved() {
		return Place{Class: s.Class.String(), Tenant: s.Tenant, Since: s.asked, Called: true, Why: itsTurn}, true
	}
	e := q.scheduler.waiting[id]
	if e == nil {
		return Place{}, false
	}
	p := Place{Class: e.Class.String(), Tenant: e.tenant.name, Since: e.asked, Why: q.scheduler.why(e)}
	for before := e.place.Prev(); before != nil; before = before.Prev() {
		p.Before++
	}
	for c := range e.Class {
		p.Before += e.tenant.lines[c].Len()
	}
	for c := range e.Class + 1 {
		for _, other := range q.scheduler.rankings[c].tenants {
			if other != e.tenant {
				p.Others += other.lines[c].Len()
			}
		}
	}
	return p, true
}

// Backlog returns how much is running and waits.
func (q *Queue) Backlog() Backlog {
	q.lock()
	defer q.mu.Unlock()
	s := q.scheduler
	b := Backlog{
		Running: len(s.slots), MaxRuns: s.limits.Runs, MaxPerTenant: s.limits.PerTenant,
		Memory: s.charged, MaxMemory: s.limits.Memory, Waiting: len(s.waiting), Classes: make([]ClassBacklog, classes),
	}
	for c := range classes {
		b.Classes[c] = ClassBacklog{Class: c.String(), Running: s.running[c], MaxRuns: s.limits.PerClass[c]}
	}
	tenants := map[string]*TenantBacklog{}
	for name, t := range s.tenants {
		tenants[name] = &TenantBacklog{Tenant: name, Running: t.running, Waiting: map[string]int{}}
	}
	for _, held := range s.slots {
		tenants[held.tenant.name].Memory += held.Memory
	}
	for _, e := range s.waiting {
		class, of := &b.Classes[e.Class], tenants[e.tenant.name]
		class.Waiting++
		of.Waiting[e.Class.String()]++
		for _, oldest := range []*time.Time{&b.OldestSince, &class.OldestSince, &of.OldestSince} {
			if oldest.IsZero() || e.asked.Before(*oldest) {
				*oldest = e.asked
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(tenants)) {
		b.Tenants = append(b.Tenants, *tenants[name])
	}
	return b
}

func (s *slot) view() Turn {
	t := Turn{
		UID: s.id, Namespace: s.Key.Namespace, Name: s.Key.Name, StackKind: s.Key.Kind, Kind: s.Kind, Class: s.Class.String(),
		Tenant: s.Tenant, Memory: s.Memory, Asked: s.asked, Started: s.started, Ending: s.Ending,
	}
	if s.found {
		t.Class = "" // its object was not reconciled yet, so it is not known why it runs
	}
	return t
}
