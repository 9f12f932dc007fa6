package controller

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/internal/stack"
)

// limits bound what is at work at once. Zero means no bound.
type limits struct {
	runs      int
	perTenant int
	memory    int64 // bytes that the runs at work are charged together
}

// ask is what a stack wants a slot for.
type ask struct {
	key    types.NamespacedName // under which it is woken
	kind   stack.RunKind
	class  class
	tenant string
	memory int64     // bytes that the run is charged
	began  time.Time // when the run did, of one that was found at work
}

// queue admits runs within limits. What may start has a slot held for it at
// once and is woken to take it up; until it does, the slot counts as taken:
//
//	            admit                 its turn              admit
//	(nothing) ────────▶ waiting ◀──────────────▶ called ───────────▶ at work
//	                       │        too slow       │                    │
//	                       └──────────── leave ────┴──── leave ─────────┘
//
// Whose turn it is stands in schedule.go. A stack is known by its UID: one that
// was made again under an old name is another one, and both may have runs.
//
// Nothing here must survive a restart: runs that are found at work are counted
// before anything else is admitted (Stacks.countRuns), and what waited asks
// again.
type queue struct {
	limits limits
	wake   func(types.NamespacedName) // must not call back into the queue
	now    func() time.Time
	waited func(class, time.Duration) // is told how long a run waited; may be nil

	mu      sync.Mutex
	turn    uint64 // counts asks, starts and ends
	charged int64
	slots   map[string]*slot
	waiting map[string]*ticket
	tenants map[string]*tenant
	contest [classes]contest
	passed  [classes]int // starts of others since a class that waits had its last one
	large   *ticket      // the one that room is kept for; nil if none

	seen sight
}

// slot is a run at work, or the room that is kept for one.
type slot struct {
	ask
	id      string
	tenant  *tenant
	asked   time.Time   // since when it waited
	started time.Time   // when it was taken up
	called  *time.Timer // runs until the slot is taken up; nil once it is
	found   bool        // at work before this controller saw the stack
}

// callTime is how long a slot is held for a stack that does not come: its pass
// hangs, or ends early each time. It is long for a pass, and the most that one
// such stack costs whenever its turn comes.
const callTime = 30 * time.Second

func newQueue(l limits, wake func(types.NamespacedName), now func() time.Time) *queue {
	q := &queue{limits: l, wake: wake, now: now, slots: map[string]*slot{}, waiting: map[string]*ticket{}, tenants: map[string]*tenant{}}
	for c := range q.contest {
		q.contest[c].class = class(c)
	}
	return q
}

// admit lets a stack start a run, or says what it waits for. A stack that waits
// is woken when it is its turn. The answer is the same as long as the same
// limit holds it.
func (q *queue) admit(id string, a ask) (why string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.slots[id]; s != nil {
		q.take(s, a)
		return ""
	}
	switch t := q.waiting[id]; {
	case t == nil:
		q.enqueue(id, a, q.now())
	case t.class != a.class || t.ask.tenant != a.tenant:
		q.dequeue(t)
		q.enqueue(id, a, t.asked).passed = t.passed
	default:
		t.ask = a
	}
	q.call(id)
	if s := q.slots[id]; s != nil {
		q.take(s, a)
		return ""
	}
	return q.why(q.waiting[id])
}

// took counts a run that was found at work, whatever the limits say.
func (q *queue) took(id string, a ask) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.found(id, a)
	q.call("") // a label that moved it to another tenant makes room
}

// counted is took before anybody looked at the stack of the run.
func (q *queue) counted(id string, a ask) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.found(id, a).found = true
}

func (q *queue) found(id string, a ask) *slot {
	if t := q.waiting[id]; t != nil {
		q.dequeue(t)
	}
	s := q.slots[id]
	if s != nil && s.ask.tenant != a.tenant {
		a.memory = s.memory // as it was admitted
		q.free(id, s)
		s = nil
	}
	if s == nil {
		s = q.hold(id, a, q.now())
	}
	q.take(s, a)
	return s
}

// leave frees the slot or the place of a stack that does not run, or no longer
// wants to.
func (q *queue) leave(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.slots[id]; s != nil {
		q.free(id, s)
	}
	q.withdrawn(id)
}

// withdraw gives up the place of a stack of which nobody knows whether it runs:
// if it does, its slot stays.
func (q *queue) withdraw(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.slots[id]; s != nil && s.called != nil {
		q.free(id, s)
	}
	q.withdrawn(id)
}

func (q *queue) withdrawn(id string) {
	if t := q.waiting[id]; t != nil {
		q.dequeue(t)
	}
	q.call("")
}

// ended frees the slot of a run that ended and whose stack was never seen here:
// it may be gone, or none of ours.
func (q *queue) ended(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.slots[id]; s != nil && s.found {
		q.free(id, s)
		q.call("")
	}
}

// call holds slots for those whose turn it is, as long as there is room, and
// wakes them, but not the one that asks.
func (q *queue) call(asking string) {
	for {
		t := q.next()
		if t == nil {
			return
		}
		q.dequeue(t)
		s := q.hold(t.id, t.ask, t.asked)
		s.called = time.AfterFunc(callTime, func() { q.missed(t.id, s) })
		if t.id != asking {
			q.wake(t.key)
		}
	}
}

// missed hands on the slot of a stack that did not come, and lets it wait anew.
func (q *queue) missed(id string, s *slot) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.slots[id] != s || s.called == nil {
		return // it came in the meantime
	}
	q.free(id, s)
	q.enqueue(id, s.ask, s.asked)
	q.call("")
}

// take says that the stack has come for its slot, and for which run.
func (q *queue) take(s *slot, a ask) {
	s.kind, s.class, s.found = a.kind, a.class, false
	switch {
	case !a.began.IsZero():
		s.started = a.began
	case s.started.IsZero():
		s.started = q.now()
		if q.waited != nil {
			q.waited(s.class, s.started.Sub(s.asked))
		}
	}
	if s.called != nil {
		s.called.Stop()
		s.called = nil
	}
}

// hold counts a slot.
func (q *queue) hold(id string, a ask, asked time.Time) *slot {
	s := &slot{ask: a, id: id, tenant: q.tenant(a.tenant), asked: asked}
	q.slots[id] = s
	q.charged += a.memory
	q.busy(s.tenant, +1)
	return s
}

// free takes a slot back.
func (q *queue) free(id string, s *slot) {
	if s.called != nil {
		s.called.Stop()
	}
	delete(q.slots, id)
	q.charged -= s.memory
	q.busy(s.tenant, -1)
}

// why names the limit that holds a ticket, and nothing that changes while it
// does.
func (q *queue) why(t *ticket) string {
	l := q.limits
	switch {
	case q.full(t.tenant):
		return fmt.Sprintf("Waiting for its turn: %d runs of the tenant %s may be at work at once", l.perTenant, t.tenant.name)
	case l.runs > 0 && len(q.slots) >= l.runs:
		return fmt.Sprintf("Waiting for its turn: %d runs may be at work at once", l.runs)
	case !q.fits(t.memory):
		return fmt.Sprintf("Waiting for memory: its runs take %d MiB, and all runs at work may take %d MiB together", t.memory>>20, l.memory>>20)
	default:
		return fmt.Sprintf("Waiting for memory: a larger run comes first, and all runs at work may take %d MiB together", l.memory>>20)
	}
}

// fits reports whether there is memory for one more run. One that is larger
// than all there is runs alone.
func (q *queue) fits(memory int64) bool {
	return q.limits.memory <= 0 || len(q.slots) == 0 || q.charged+memory <= q.limits.memory
}

// full reports whether a tenant may have no more runs at work.
func (q *queue) full(t *tenant) bool {
	return q.limits.perTenant > 0 && t.working >= q.limits.perTenant
}
