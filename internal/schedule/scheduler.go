package schedule

import (
	"container/heap"
	"container/list"
	"fmt"
	"time"

	"github.com/terrier-iac/terrier/internal/plural"
)

// scheduler decides whose turn it is, in three steps:
//
//  1. The class: the first that has a request waiting.
//  2. The tenant: the one with the fewest runs, of all classes, or of this class if
//     that has a limit of its own; among equals the one for which no such run has
//     started or ended for longest.
//  3. The object: of the first class in which the tenant has one, the one that
//     asked first.
//
// A rank without bounds would starve what comes last, so at each step maxPassed
// bounds how often in a row something may be passed over: a class by the
// classes before it; a class of one tenant by that tenant's own classes before
// it; a run that needs more memory than is free by smaller ones, after which
// room is kept until it fits. The share that what is late can take from what
// is urgent is therefore at most four starts in maxPassed, however much of it
// there is. A tenant that was passed over in a class with a limit of its own, because
// the class was full whenever the tenant was not, has a slot of the class kept for it.
// Age in minutes was not taken instead: after an hour of overload
// everything is old, and a destroy would queue behind ten thousand drift
// checks.
//
// It has no lock, no clock and no timers: Queue has them.
type scheduler struct {
	limits  Limits
	turn    uint64       // counts requests, starts and ends
	charged int64        // bytes that the slots are charged
	running [classes]int // slots by class
	slots   map[string]*slot
	waiting map[string]*entry
	tenants map[string]*tenant
	lent    map[string]*slot // by the ID of the place that each was handed over from

	rankings [classes]ranking
	passed   [classes]int     // starts of others since a class with requests had its last one
	large    *entry           // the one that room is kept for; nil if none
	kept     [classes]*tenant // for which a slot of a class with a limit is kept; nil if none
}

// maxPassed is how often in a row something may be passed over.
const maxPassed = 16

// slot is a run that is running, or the room that is reserved for one.
type slot struct {
	Candidate
	id      string
	tenant  *tenant
	asked   time.Time   // since when it waited
	started time.Time   // when it was taken
	expiry  func() bool // stops the timer of a slot that is reserved; nil once it is taken
	found   bool        // it was running before its object was reconciled here
	of      *slot       // of the place that it was handed over from, and whose it is again if it is given up; nil for others
}

// reserved reports whether the slot was not taken yet.
func (s *slot) reserved() bool { return s.expiry != nil }

// keep ends the reservation.
func (s *slot) keep() {
	if s.expiry != nil {
		s.expiry()
		s.expiry = nil
	}
}

// entry is a request that waits.
type entry struct {
	Candidate
	id     string
	tenant *tenant
	asked  time.Time
	passed int // how often smaller ones went before it
	place  *list.Element
	why    string // of a copy: what the original waits for
}

// tenant shares slots with the others.
type tenant struct {
	name    string
	running int
	moved   uint64 // the turn at which it came, or its number of runs changed last
	classes [classes]share
	waiting int
	lines   [classes]list.List // of *entry
	passed  [classes]int       // its own starts since a line with requests had its last one
	index   [classes]int       // in the ranking of each class in which it waits
}

// share is what a tenant has of one class.
type share struct {
	running int
	moved   uint64
}

func newScheduler(l Limits) *scheduler {
	s := &scheduler{limits: l, slots: map[string]*slot{}, waiting: map[string]*entry{}, tenants: map[string]*tenant{}, lent: map[string]*slot{}}
	for c := range s.rankings {
		s.rankings[c].class, s.rankings[c].limits = Class(c), &s.limits
	}
	return s
}

// limit changes the limits, by which tenants are ranked.
func (s *scheduler) limit(l Limits) {
	s.limits = l
	for c := range s.rankings {
		heap.Init(&s.rankings[c])
	}
}

// tenant finds a tenant, or adds it.
func (s *scheduler) tenant(name string) *tenant {
	t := s.tenants[name]
	if t == nil {
		s.turn++
		t = &tenant{name: name, moved: s.turn}
		for c := range t.classes {
			t.classes[c].moved = s.turn
		}
		s.tenants[name] = t
	}
	return t
}

// addRuns counts the runs of a tenant, which changes its rank.
func (s *scheduler) addRuns(t *tenant, c Class, by int) {
	s.turn++
	s.running[c] += by
	t.classes[c] = share{t.classes[c].running + by, s.turn}
	t.running, t.moved = t.running+by, s.turn
	for c := range t.lines {
		if t.lines[c].Len() > 0 {
			heap.Fix(&s.rankings[c], t.index[c])
		}
	}
	s.forget(t)
}

// forget drops a tenant that has nothing running and nothing waiting.
func (s *scheduler) forget(t *tenant) {
	if t.running == 0 && t.waiting == 0 {
		delete(s.tenants, t.name)
	}
}

// enqueue puts a request at the end of its line.
func (s *scheduler) enqueue(id string, r Candidate, asked time.Time) *entry {
	e := &entry{Candidate: r, id: id, tenant: s.tenant(r.Tenant), asked: asked}
	s.waiting[id] = e
	line := &e.tenant.lines[r.Class]
	e.place = line.PushBack(e)
	e.tenant.waiting++
	if line.Len() == 1 {
		heap.Push(&s.rankings[r.Class], e.tenant)
	}
	return e
}

// dequeue takes a request out of its line.
func (s *scheduler) dequeue(e *entry) {
	delete(s.waiting, e.id)
	if s.large == e {
		s.large = nil
	}
	line := &e.tenant.lines[e.Class]
	line.Remove(e.place)
	e.tenant.waiting--
	if line.Len() == 0 {
		if s.kept[e.Class] == e.tenant {
			s.kept[e.Class] = nil
		}
		e.tenant.passed[e.Class] = 0
		heap.Remove(&s.rankings[e.Class], e.tenant.index[e.Class])
		if s.rankings[e.Class].Len() == 0 {
			s.passed[e.Class] = 0
		}
	}
	s.forget(e.tenant)
}

// hold adds a slot.
func (s *scheduler) hold(id string, r Candidate, asked time.Time) *slot {
	held := &slot{Candidate: r, id: id, tenant: s.tenant(r.Tenant), asked: asked}
	s.slots[id] = held
	s.charged += r.Memory
	s.addRuns(held.tenant, r.Class, +1)
	return held
}

// free removes a slot.
func (s *scheduler) free(held *slot) {
	held.keep()
	delete(s.slots, held.id)
	s.charged -= held.Memory
	if held.of != nil {
		lending{s}.restore(held.of) // before the tenant could be forgotten
	}
	s.addRuns(held.tenant, held.Class, -1)
}

// suits reports whether a slot that is reserved can be taken for r, and counts it as
// that if it can.
func (s *scheduler) suits(held *slot, r Candidate) bool {
	if r.Tenant != held.Tenant {
		return false
	}
	if r.Class != held.Class && (held.of != nil || s.crowded(held.tenant, r.Class)) {
		return false
	}
	s.classify(held, r.Class)
	return true
}

// classify counts a slot under another class.
func (s *scheduler) classify(held *slot, c Class) {
	if c != held.Class {
		s.addRuns(held.tenant, c, +1) // before the other, so that the tenant is not forgotten
		s.addRuns(held.tenant, held.Class, -1)
		held.Class = c
	}
}

// next is the request that may start now, nil if none may. It is called for a
// start, so it counts what the start passes over.
func (s *scheduler) next() *entry {
	if s.limits.Runs > 0 && len(s.slots) >= s.limits.Runs {
		return nil
	}
	if e := s.large; e != nil && s.may(e.tenant, e.Class) {
		if !s.fits(e.Memory) {
			return nil
		}
		s.pass(e)
		s.had(e)
		return e
	}
	c, ok := s.class()
	if !ok {
		return nil
	}
	e := s.first(s.turnOf(c))
	if s.fits(e.Memory) {
		// Only the class that had the turn has had it: the tenant may have used it
		// for another, in which requests still wait for theirs.
		s.pass(e)
		s.passed[c] = 0
		s.had(e)
		return e
	}
	return s.filler(e)
}

// class is the class whose turn it is.
func (s *scheduler) class() (Class, bool) {
	best, found := Class(0), false
	for c := range classes {
		if s.turnOf(c) == nil {
			continue
		}
		if s.passed[c] >= maxPassed {
			return c, true
		}
		if !found {
			best, found = c, true
		}
	}
	return best, found
}

// turnOf is the tenant whose turn it is in a class, nil if none of those that wait
// there may start.
func (s *scheduler) turnOf(c Class) *tenant {
	if t := s.kept[c]; t != nil && s.may(t, c) {
		return t
	}
	if s.open(c) {
		return s.rankings[c].tenants[0]
	}
	return nil
}

// open reports whether the tenant that ranks first in a class may start. A tenant at
// its limit ranks behind all that are not.
func (s *scheduler) open(c Class) bool {
	return s.rankings[c].Len() > 0 && s.may(s.rankings[c].tenants[0], c)
}

// first is the request of a tenant whose turn it is.
func (s *scheduler) first(t *tenant) *entry {
	var best *entry
	for c := range t.lines {
		if t.lines[c].Len() == 0 || s.crowded(t, Class(c)) {
			continue
		}
		if best == nil || t.passed[c] >= maxPassed {
			best = t.lines[c].Front().Value.(*entry)
		}
		if t.passed[c] >= maxPassed {
			break
		}
	}
	return best
}

// pass counts what the start of e goes before. Of its own tenant that may be a request of
// an earlier class too: it waits because the class has as many runs as it may, and would
// wait for ever if the class had a slot only while the tenant had none.
func (s *scheduler) pass(e *entry) {
	for c := range classes {
		if c > e.Class && s.rankings[c].Len() > 0 {
			s.passed[c]++
		}
		if t := e.tenant; t.lines[c].Len() > 0 && (c > e.Class || c < e.Class && s.limits.PerClass[c] > 0) {
			t.passed[c]++
			if t.passed[c] >= maxPassed && s.limits.PerClass[c] > 0 && s.kept[c] == nil {
				s.kept[c] = t
			}
		}
	}
}

// had counts that a tenant has its turn in the class of e.
func (s *scheduler) had(e *entry) {
	e.tenant.passed[e.Class] = 0
	if s.kept[e.Class] == e.tenant {
		s.kept[e.Class] = nil
	}
}

// why names the limit that is in the way of a request, and nothing that changes
// while the limit is.
func (s *scheduler) why(e *entry) string {
	l := s.limits
	switch {
	case s.limits.full(e.tenant):
		return fmt.Sprintf("Waiting for its turn: %s of the tenant %s may run at once", plural.Count(l.PerTenant, "run"), e.tenant.name)
	case s.crowded(e.tenant, e.Class):
		return fmt.Sprintf("Waiting for its turn: %s of the class %s may run at once", plural.Count(l.PerClass[e.Class], "run"), e.Class)
	case l.Runs > 0 && len(s.slots) >= l.Runs:
		return fmt.Sprintf("Waiting for its turn: %s may run at once", plural.Count(l.Runs, "run"))
	case !s.fits(e.Memory):
		return fmt.Sprintf("Waiting for memory: the run takes %d MiB, and all runs may take %d MiB together", e.Memory>>20, l.Memory>>20)
	default:
		return fmt.Sprintf("Waiting for memory: a larger run comes first, and all runs may take %d MiB together", l.Memory>>20)
	}
}

// fits reports whether there is memory for one more run. A run that is larger
// than all there is runs alone.
func (s *scheduler) fits(memory int64) bool {
	return s.limits.Memory <= 0 || len(s.slots) == 0 || s.charged+memory <= s.limits.Memory
}

// may reports whether a tenant may have one more run of a class.
func (s *scheduler) may(t *tenant, c Class) bool { return !s.limits.full(t) && !s.crowded(t, c) }

// crowded reports whether a tenant may have no more runs of a class, because that has as
// many as it may or its last slot is kept for another tenant.
func (s *scheduler) crowded(t *tenant, c Class) bool {
	limit := s.limits.PerClass[c]
	if limit == 0 {
		return false
	}
	if s.kept[c] != nil && s.kept[c] != t {
		limit--
	}
	return s.running[c] >= limit
}
