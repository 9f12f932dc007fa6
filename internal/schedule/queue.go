package schedule

import (
	"sync"
	"time"
)

// Queue admits runs within the limits of the runner. A candidate that may start
// has a slot reserved at once, and its object is woken to take the slot; until
// then the slot counts as taken:
//
//	            Admit                 its turn                Admit
//	(nothing) ────────▶ waiting ◀────────────────▶ reserved ─────────▶ running
//	                       │        not taken in time  │                  │
//	                       └──────────── Leave ────────┴───── Leave ──────┘
//
// The scheduler decides whose turn it is. An object is known by its UID: one
// that was created again under an old name is another one, and both may have
// runs.
//
// Nothing here must survive a restart: the controllers count the runs that they
// find (Found) before they ask for slots, and what waited asks again.
type Queue struct {
	room  Room
	clock Clock

	mu        sync.Mutex
	scheduler *scheduler
	listeners map[string]Listener // by Key.Kind

	shown shownLine
}

// Clock is how a queue knows the time.
type Clock struct {
	Now func() time.Time
	// After calls f once d has passed, unless stop is called before.
	After func(d time.Duration, f func()) (stop func() bool)
}

// Listener is the controller of one kind of objects. Its functions must not
// call back into the queue, and may be nil.
type Listener struct {
	Wake    func(Key)                               // the turn of an object has come
	Called  func(id string)                         // the same, by its ID
	Started func(class Class, waited time.Duration) // a run starts
}

// turn says that the turn of an object has come.
func (l Listener) turn(e *entry) {
	if l.Wake != nil {
		l.Wake(e.Key)
	}
	if l.Called != nil {
		l.Called(e.id)
	}
}

// slotReservation is how long a slot is reserved for an object that does not
// take it: its reconcile hangs, or ends early each time. It is long for a
// reconcile, and the most that one such object costs whenever its turn comes.
const slotReservation = 30 * time.Second

// New returns an empty queue.
func New(room Room, clock Clock) *Queue {
	return &Queue{room: room, clock: clock, scheduler: newScheduler(room()), listeners: map[string]Listener{}}
}

// Listen has the objects of a kind woken.
func (q *Queue) Listen(kind string, l Listener) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.listeners[kind] = l
}

// lock locks the queue and asks how much room there is.
func (q *Queue) lock() {
	q.mu.Lock()
	if l := q.room(); l != q.scheduler.limits {
		q.scheduler.limit(l)
	}
}

// Admit lets an object start a run, or says what the run waits for. An object
// that waits is woken when its turn has come. The answer is the same as long as
// the same limit is in the way.
func (q *Queue) Admit(id string, r Candidate) (why string) {
	q.lock()
	defer q.mu.Unlock()
	s := q.scheduler
	if slot := s.slots[id]; slot != nil {
		if s.suits(slot, r) {
			q.take(slot, r)
			q.reserve(id) // a run of another class makes room in the first one
			return ""
		}
		s.free(slot) // it is for a run of another class or tenant, which has room
		s.enqueue(id, r, slot.asked)
	}
	switch e := s.waiting[id]; {
	case e == nil:
		s.enqueue(id, r, q.since(r))
	case e.Class != r.Class || e.Tenant != r.Tenant:
		s.dequeue(e)
		s.enqueue(id, r, e.asked).passed = e.passed
	default:
		e.Candidate = r
	}
	q.reserve(id)
	if slot := s.slots[id]; slot != nil {
		q.take(slot, r)
		return ""
	}
	return s.why(s.waiting[id])
}

// since is when a candidate began to wait.
func (q *Queue) since(r Candidate) time.Time {
	if r.Asked.IsZero() {
		return q.clock.Now()
	}
	return r.Asked
}

// Running counts a run that is already running, beyond the limits if need be.
func (q *Queue) Running(id string, r Candidate) {
	q.lock()
	defer q.mu.Unlock()
	if q.scheduler.lent[id] != nil {
		return // it is counted as the run that has its slot
	}
	q.count(id, r)
	q.reserve("") // one that is of another tenant or class now makes room
}

// Found is Running for a run whose object was not reconciled yet.
func (q *Queue) Found(id string, r Candidate) {
	q.lock()
	defer q.mu.Unlock()
	q.count(id, r).found = true
}

func (q *Queue) count(id string, r Candidate) *slot {
	s := q.scheduler
	if e := s.waiting[id]; e != nil {
		s.dequeue(e)
	}
	slot := s.slots[id]
	if slot != nil && slot.Tenant != r.Tenant {
		r.Memory = slot.Memory // as it was admitted
		s.free(slot)
		slot = nil
	}
	if slot == nil {
		slot = s.hold(id, r, q.since(r))
	}
	q.take(slot, r)
	return slot
}

// Claim counts the runs that go on of stacks that this process owns from now on. It
// owns all stacks, so the shards make no difference.
func (q *Queue) Claim(_ uint64, _ []int, running map[string]Candidate) {
	for id, r := range running {
		q.Found(id, r)
	}
}

// Release does nothing: no other process owns stacks.
func (q *Queue) Release([]int) {}

// Leave frees the slot, or the place in the line, of an object that has no run
// and wants none.
func (q *Queue) Leave(id string) {
	q.lock()
	defer q.mu.Unlock()
	lending{q.scheduler}.settle(id)
	if slot := q.scheduler.slots[id]; slot != nil {
		q.scheduler.free(slot)
	}
	q.withdraw(id)
}

// Withdraw gives up the place in the line of an object of which the controller
// does not know whether it has a run: the slot of a run stays.
func (q *Queue) Withdraw(id string) {
	q.lock()
	defer q.mu.Unlock()
	if slot := q.scheduler.slots[id]; slot != nil && slot.reserved() {
		q.scheduler.free(slot)
	}
	q.withdraw(id)
}

func (q *Queue) withdraw(id string) {
	if e := q.scheduler.waiting[id]; e != nil {
		q.scheduler.dequeue(e)
	}
	q.reserve("")
}

// Ended frees the slot of a run that ended and whose object was never reconciled here:
// the object may be gone, or belong to another controller. The places that the run left
// are counted first, as the run was, until each Leaves.
func (q *Queue) Ended(id string, left ...string) {
	q.lock()
	defer q.mu.Unlock()
	slot := q.scheduler.slots[id]
	if slot == nil || !slot.found {
		return
	}
	for _, place := range left {
		if q.scheduler.lent[place] == nil { // else it is counted as the run that has its slot
			q.count(place, slot.Candidate.Ended(q.clock.Now()))
		}
	}
	q.scheduler.free(slot)
	q.reserve("")
}

// Idle reports whether a tenant has nothing running and nothing waiting.
func (q *Queue) Idle(tenant string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.scheduler.tenants[tenant] == nil
}

// Waited is how long the object that has a slot waited for it, in tenths of a
// second: a slot that was free was not waited for.
func (q *Queue) Waited(id string) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	if slot := q.scheduler.slots[id]; slot != nil && !slot.asked.IsZero() {
		return max(0, slot.started.Sub(slot.asked)).Truncate(100 * time.Millisecond)
	}
	return 0
}

// reserve reserves slots for the candidates whose turn it is, as long as there is
// room, and wakes their objects, except the one that is asking now.
func (q *Queue) reserve(asking string) {
	for {
		e := q.scheduler.next()
		if e == nil {
			return
		}
		q.scheduler.dequeue(e)
		q.hold(e)
		if e.id != asking {
			q.listeners[e.Key.Kind].turn(e)
		}
	}
}

// hold reserves a slot for a candidate.
func (q *Queue) hold(e *entry) *slot {
	slot := q.scheduler.hold(e.id, e.Candidate, e.asked)
	slot.expiry = q.clock.After(slotReservation, func() { q.expire(slot) })
	return slot
}

// expire hands on a slot that was not taken, and puts its object back into the
// line.
func (q *Queue) expire(slot *slot) {
	q.lock()
	defer q.mu.Unlock()
	if q.scheduler.slots[slot.id] != slot || !slot.reserved() {
		return // it was taken in the meantime
	}
	q.scheduler.free(slot)
	q.scheduler.enqueue(slot.id, slot.Candidate, slot.asked)
	q.reserve("")
}

// take says that the object has taken its slot, and for which run.
func (q *Queue) take(slot *slot, r Candidate) {
	q.scheduler.classify(slot, r.Class)
	slot.Kind, slot.found = r.Kind, false
	switch {
	case !r.Began.IsZero():
		slot.started = r.Began
	case slot.started.IsZero():
		slot.started = q.clock.Now()
		if started := q.listeners[slot.Key.Kind].Started; started != nil {
			started(slot.Class, slot.started.Sub(slot.asked))
		}
	}
	slot.keep()
}
