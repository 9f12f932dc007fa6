package controller

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/stack"
)

// shownFor is how long a line is shown before another is made: playing ten
// thousand runs to their end takes tens of milliseconds, and there may be many
// who look.
const shownFor = time.Second

// sight is the line as it was shown last.
type sight struct {
	mu   sync.Mutex
	at   time.Time
	line stack.Line
}

// Line returns who is at work, and who waits in which order, as of no longer
// than a second ago. Whoever gets it must not change it.
func (c *Stacks) Line() stack.Line {
	s, now := &c.queue.seen, c.queue.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at.IsZero() || now.Sub(s.at) >= shownFor || now.Before(s.at) {
		s.line, s.at = c.queue.line(), now
	}
	return s.line
}

func (of *queue) line() stack.Line {
	q, slots, started := of.copied()
	line := stack.Line{AtWork: make([]stack.Turn, 0, started), Waiting: make([]stack.Turn, 0, len(q.waiting)+len(slots)-started)}
	for i, s := range slots {
		t := s.turn()
		if i < started {
			line.AtWork = append(line.AtWork, t)
			continue
		}
		t.Called, t.Why = true, itsTurn
		line.Waiting = append(line.Waiting, t)
	}
	for _, t := range q.lineUp(slots) {
		turn := (&slot{ask: t.ask, id: t.id, asked: t.asked}).turn()
		turn.Why = t.why
		line.Waiting = append(line.Waiting, turn)
	}
	for i := range line.Waiting {
		line.Waiting[i].Position = i + 1
	}
	return line
}

// copied returns a queue that stands as q does and reaches nobody, to play on.
// Its slots are those at work, what started first before the others, and then
// those that are held for somebody who was called.
func (q *queue) copied() (c *queue, slots []*slot, started int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c = newQueue(q.limits, nil, q.now)
	c.turn, c.charged, c.passed = q.turn, q.charged, q.passed
	for name, t := range q.tenants {
		c.tenants[name] = &tenant{name: name, working: t.working, moved: t.moved, waiting: t.waiting, passed: t.passed, index: t.index}
	}
	for class := range q.contest {
		for _, t := range q.contest[class].tenants {
			c.contest[class].tenants = append(c.contest[class].tenants, c.tenants[t.name])
			for e := t.lines[class].Front(); e != nil; e = e.Next() {
				c.takeOver(e.Value.(*ticket), q)
			}
		}
	}
	var held []*slot
	for id, s := range q.slots {
		of := &slot{ask: s.ask, id: id, tenant: c.tenants[s.tenant.name], asked: s.asked, started: s.started, found: s.found}
		c.slots[id] = of
		if s.called == nil {
			slots = append(slots, of)
		} else {
			held = append(held, of)
		}
	}
	slices.SortFunc(slots, func(a, b *slot) int { return cmp.Or(a.started.Compare(b.started), cmp.Compare(a.id, b.id)) })
	slices.SortFunc(held, func(a, b *slot) int { return cmp.Or(a.asked.Compare(b.asked), cmp.Compare(a.id, b.id)) })
	return c, append(slots, held...), len(slots)
}

// takeOver puts a copy of a ticket of q into c, at the end of its line.
func (c *queue) takeOver(t *ticket, q *queue) {
	of := *t
	of.tenant, of.why = c.tenants[t.tenant.name], q.why(t)
	of.place = of.tenant.lines[t.class].PushBack(&of)
	c.waiting[t.id] = &of
	if q.large == t {
		c.large = &of
	}
}

// lineUp plays a copy to its end and returns the order in which those that wait
// would start: if the runs at work ended one after another, what started first
// before the others, and if nobody else came.
func (q *queue) lineUp(atWork []*slot) []*ticket {
	order := make([]*ticket, 0, len(q.waiting))
	for len(q.waiting) > 0 {
		t := q.next()
		switch {
		case t != nil:
			q.dequeue(t)
			atWork = append(atWork, q.hold(t.id, t.ask, t.asked))
			order = append(order, t)
		case len(atWork) > 0:
			q.free(atWork[0].id, atWork[0])
			atWork = atWork[1:]
		default:
			return order // never: with nothing at work, whoever is first fits
		}
	}
	return order
}

func (s *slot) turn() stack.Turn {
	t := stack.Turn{
		UID: s.id, Namespace: s.key.Namespace, Name: s.key.Name, Kind: s.kind, Class: s.class.String(),
		Tenant: s.ask.tenant, Memory: s.memory, Asked: s.asked, Started: s.started,
	}
	if s.found {
		t.Class = "" // nobody has looked yet why it runs
	}
	return t
}
