package controller

import (
	"container/heap"
	"container/list"
	"time"
)

// Whose turn it is, in three steps:
//
//  1. The class: the first that has somebody waiting.
//  2. The tenant: the one with the fewest runs at work, of whatever class;
//     among equals the one for which nothing has started or ended for longest.
//  3. The stack: of the first class in which the tenant has one, the one that
//     asked first.
//
// A rank without bounds would starve what comes last, so at each step patience
// bounds how often in a row something may be passed over: a class by the
// classes before it; a class of one tenant by that tenant's own classes before
// it; a run that needs more memory than is free by smaller ones, after which
// room is kept until it fits. The share that what is late can take from what
// is urgent is therefore at most four starts in patience, however much of it
// there is. Age in minutes was not taken instead: after an hour of overload
// everything is old, and a destroy would queue behind ten thousand looks for
// drift.
const patience = 16

// lookAhead bounds how many tickets are looked at for a run that fits.
const lookAhead = 64

// class is how urgent a run is.
type class int

// The classes, most urgent first.
const (
	writing  class = iota // applies and destroys: half done, or on its way out
	asked                 // a person waits for it
	changed               // the object was changed
	upstream              // something that the object is made from was changed, or an attempt is made again
	idle                  // nobody waits for it: drift
	classes
)

// String names the class for people and metrics.
func (c class) String() string {
	return [classes]string{"apply", "person", "spec", "upstream", "drift"}[c]
}

// tenant shares slots with the others.
type tenant struct {
	name    string
	working int
	moved   uint64 // the turn at which it came, or its number at work changed last
	waiting int
	lines   [classes]list.List // of *ticket
	passed  [classes]int       // its own starts since a line that waits had its last one
	index   [classes]int       // in the contest of each class in which it waits
}

// ticket is a stack that waits.
type ticket struct {
	ask
	id     string
	tenant *tenant
	asked  time.Time
	passed int // how often smaller ones went before it
	place  *list.Element
	why    string // of a copy: what it waits for
}

// tenant finds a tenant, or takes it in.
func (q *queue) tenant(name string) *tenant {
	t := q.tenants[name]
	if t == nil {
		q.turn++
		t = &tenant{name: name, moved: q.turn}
		q.tenants[name] = t
	}
	return t
}

// busy counts runs at work of a tenant, which changes its rank.
func (q *queue) busy(t *tenant, by int) {
	q.turn++
	t.working, t.moved = t.working+by, q.turn
	for c := range t.lines {
		if t.lines[c].Len() > 0 {
			heap.Fix(&q.contest[c], t.index[c])
		}
	}
	q.forget(t)
}

// forget drops a tenant that has nothing here.
func (q *queue) forget(t *tenant) {
	if t.working == 0 && t.waiting == 0 {
		delete(q.tenants, t.name)
	}
}

func (q *queue) enqueue(id string, a ask, asked time.Time) *ticket {
	t := &ticket{ask: a, id: id, tenant: q.tenant(a.tenant), asked: asked}
	q.waiting[id] = t
	line := &t.tenant.lines[a.class]
	t.place = line.PushBack(t)
	t.tenant.waiting++
	if line.Len() == 1 {
		heap.Push(&q.contest[a.class], t.tenant)
	}
	return t
}

func (q *queue) dequeue(t *ticket) {
	delete(q.waiting, t.id)
	if q.large == t {
		q.large = nil
	}
	line := &t.tenant.lines[t.class]
	line.Remove(t.place)
	t.tenant.waiting--
	if line.Len() == 0 {
		t.tenant.passed[t.class] = 0
		heap.Remove(&q.contest[t.class], t.tenant.index[t.class])
		if q.contest[t.class].Len() == 0 {
			q.passed[t.class] = 0
		}
	}
	q.forget(t.tenant)
}

// next is who may start now, nil if nobody may. It is called for a start, so
// it counts who is passed over by it.
func (q *queue) next() *ticket {
	if q.limits.runs > 0 && len(q.slots) >= q.limits.runs {
		return nil
	}
	if t := q.large; t != nil && !q.full(t.tenant) {
		if !q.fits(t.memory) {
			return nil
		}
		q.pass(t)
		t.tenant.passed[t.class] = 0
		return t
	}
	c, ok := q.class()
	if !ok {
		return nil
	}
	t := q.contest[c].tenants[0].first()
	if q.fits(t.memory) {
		// Only the class that had the turn has had it: the tenant may have used it
		// for another, in which others still wait for theirs.
		q.pass(t)
		q.passed[c], t.tenant.passed[t.class] = 0, 0
		return t
	}
	small := q.smaller()
	if small == nil {
		return nil
	}
	// It takes what would be left over, and that was nobody's turn. But a tenant
	// that has runs at work ranks behind others, so its own order counts here, too.
	own := small.tenant.first()
	if q.fits(own.memory) {
		small = own
	}
	q.pass(small)
	if small == own {
		small.tenant.passed[small.class] = 0
	}
	for _, over := range small.tenant.over(small, own, t) {
		q.skip(over)
	}
	return small
}

// class is the class whose turn it is.
func (q *queue) class() (class, bool) {
	best, found := class(0), false
	for c := range classes {
		if !q.open(c) {
			continue
		}
		if q.passed[c] >= patience {
			return c, true
		}
		if !found {
			best, found = c, true
		}
	}
	return best, found
}

// open reports whether somebody waits in a class who may start. A tenant at its
// limit ranks behind all that are not.
func (q *queue) open(c class) bool {
	return q.contest[c].Len() > 0 && !q.full(q.contest[c].tenants[0])
}

// first is whose turn it is among the stacks of a tenant.
func (t *tenant) first() *ticket {
	var best *ticket
	for c := range t.lines {
		if t.lines[c].Len() == 0 {
			continue
		}
		if best == nil || t.passed[c] >= patience {
			best = t.lines[c].Front().Value.(*ticket)
		}
		if t.passed[c] >= patience {
			break
		}
	}
	return best
}

// pass counts what the start of t goes before.
func (q *queue) pass(t *ticket) {
	for k := t.class + 1; k < classes; k++ {
		if q.contest[k].Len() > 0 {
			q.passed[k]++
		}
		if t.tenant.lines[k].Len() > 0 {
			t.tenant.passed[k]++
		}
	}
}
