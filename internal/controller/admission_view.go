package controller

import (
	"maps"
	"slices"
	"time"
)

// Place is where a stack stands that waits for its run.
type Place struct {
	Class  string    `json:"class"`
	Tenant string    `json:"tenant"`
	Since  time.Time `json:"since"`
	Before int       `json:"before"` // runs of its tenant that come first: more urgent ones, and those that asked earlier
	Others int       `json:"others"` // runs of other tenants that wait in classes as urgent or more; they take turns with its own
	Why    string    `json:"why"`
	Called bool      `json:"called,omitempty"` // it is its turn, and it is about to start
}

// Backlog is what the queue looks like at one moment.
type Backlog struct {
	AtWork       int             `json:"atWork"`
	MaxRuns      int             `json:"maxRuns"`
	MaxPerTenant int             `json:"maxRunsPerTenant,omitempty"` // 0 is no limit
	Memory       int64           `json:"memory"`                     // bytes that the runs at work are charged
	MaxMemory    int64           `json:"maxMemory,omitempty"`        // 0 is no limit
	Waiting      int             `json:"waiting"`
	OldestSince  time.Time       `json:"oldestSince,omitzero"` // since when somebody waits
	Classes      []ClassBacklog  `json:"classes"`              // all of them, most urgent first
	Tenants      []TenantBacklog `json:"tenants"`              // those that have something here, by name
}

// ClassBacklog is the part of one class.
type ClassBacklog struct {
	Class       string    `json:"class"` // apply, person, spec, upstream or drift
	Waiting     int       `json:"waiting"`
	OldestSince time.Time `json:"oldestSince,omitzero"`
}

// TenantBacklog is the part of one tenant.
type TenantBacklog struct {
	Tenant      string         `json:"tenant"`
	AtWork      int            `json:"atWork"`
	Memory      int64          `json:"memory"`
	Waiting     map[string]int `json:"waiting,omitempty"` // by class
	OldestSince time.Time      `json:"oldestSince,omitzero"`
}

// Place returns where the stack with this UID stands in the line, false if it
// does not wait for a run.
func (c *Stacks) Place(id string) (Place, bool) { return c.queue.find(id) }

// Backlog returns who waits for runs and what is at work.
func (c *Stacks) Backlog() Backlog { return c.queue.snapshot() }

func (q *queue) find(id string) (Place, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.slots[id]; s != nil && s.called != nil {
		return Place{Class: s.class.String(), Tenant: s.ask.tenant, Since: s.asked, Called: true, Why: "It is its turn"}, true
	}
	t := q.waiting[id]
	if t == nil {
		return Place{}, false
	}
	p := Place{Class: t.class.String(), Tenant: t.tenant.name, Since: t.asked, Why: q.why(t)}
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

func (q *queue) snapshot() Backlog {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := Backlog{
		AtWork: len(q.slots), MaxRuns: q.limits.runs, MaxPerTenant: q.limits.perTenant,
		Memory: q.charged, MaxMemory: q.limits.memory, Waiting: len(q.waiting), Classes: make([]ClassBacklog, classes),
	}
	for c := range classes {
		b.Classes[c].Class = c.String()
	}
	tenants := map[string]*TenantBacklog{}
	for name, t := range q.tenants {
		tenants[name] = &TenantBacklog{Tenant: name, AtWork: t.working, Waiting: map[string]int{}}
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
