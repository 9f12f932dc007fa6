package schedule

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// lineShownFor is how long a line is shown before another is made: playing ten
// thousand runs to their end takes tens of milliseconds, and many readers may
// ask at once.
const lineShownFor = time.Second

// shownLine is the line as it was shown last.
type shownLine struct {
	mu   sync.Mutex
	at   time.Time
	line Line
}

// Line returns what is running, and what waits in which order, as of no longer
// than a second ago. The caller must not change it.
func (q *Queue) Line() Line {
	s, now := &q.shown, q.clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at.IsZero() || now.Sub(s.at) >= lineShownFor || now.Before(s.at) {
		s.line, s.at = q.line(), now
	}
	return s.line
}

func (q *Queue) line() Line {
	f := q.forecast()
	line := Line{Running: make([]Turn, 0, f.running), Waiting: make([]Turn, 0, len(f.scheduler.waiting)+len(f.slots)-f.running)}
	for i, s := range f.slots {
		t := s.view()
		if i < f.running {
			line.Running = append(line.Running, t)
			continue
		}
		t.Called, t.Why = true, itsTurn
		line.Waiting = append(line.Waiting, t)
	}
	for _, e := range f.order() {
		t := (&slot{Candidate: e.Candidate, id: e.id, asked: e.asked}).view()
		t.Why = e.why
		line.Waiting = append(line.Waiting, t)
	}
	for i := range line.Waiting {
		line.Waiting[i].Position = i + 1
	}
	return line
}

// forecast plays a copy of the scheduler to its end.
type forecast struct {
	scheduler *scheduler
	slots     []*slot // those running, what started first before the others, and then those reserved
	running   int     // how many of the slots are running
}

// forecast copies the scheduler. The copy wakes no object.
func (q *Queue) forecast() *forecast {
	q.lock()
	defer q.mu.Unlock()
	f := &forecast{scheduler: newScheduler(q.scheduler.limits)}
	f.copyTenants(q.scheduler)
	f.copySlots(q.scheduler)
	return f
}

// copyTenants copies the tenants with their requests, and their ranks.
func (f *forecast) copyTenants(from *scheduler) {
	to := f.scheduler
	to.turn, to.charged, to.passed, to.running = from.turn, from.charged, from.passed, from.running
	for name, t := range from.tenants {
		to.tenants[name] = &tenant{name: name, running: t.running, moved: t.moved, classes: t.classes, waiting: t.waiting, passed: t.passed, index: t.index}
	}
	for class, t := range from.kept {
		if t != nil {
			to.kept[class] = to.tenants[t.name]
		}
	}
	for class := range from.rankings {
		for _, t := range from.rankings[class].tenants {
			of := to.tenants[t.name]
			to.rankings[class].tenants = append(to.rankings[class].tenants, of)
			for place := t.lines[class].Front(); place != nil; place = place.Next() {
				e := place.Value.(*entry)
				twin := *e
				twin.tenant, twin.why = of, from.why(e)
				twin.place = of.lines[class].PushBack(&twin)
				to.waiting[e.id] = &twin
				if from.large == e {
					to.large = &twin
				}
			}
		}
	}
}

func (f *forecast) copySlots(from *scheduler) {
	var reserved []*slot
	for id, s := range from.slots {
		twin := &slot{Candidate: s.Candidate, id: id, tenant: f.scheduler.tenants[s.tenant.name], asked: s.asked, started: s.started, found: s.found}
		f.scheduler.slots[id] = twin
		if s.reserved() {
			reserved = append(reserved, twin)
		} else {
			f.slots = append(f.slots, twin)
		}
	}
	slices.SortFunc(f.slots, func(a, b *slot) int { return cmp.Or(a.started.Compare(b.started), cmp.Compare(a.id, b.id)) })
	slices.SortFunc(reserved, func(a, b *slot) int { return cmp.Or(a.asked.Compare(b.asked), cmp.Compare(a.id, b.id)) })
	f.running = len(f.slots)
	f.slots = append(f.slots, reserved...)
}

// order is the order in which the requests that wait would start if the runs
// ended one after another, what started first before the others, and if no
// other request came. It uses the copy up.
func (f *forecast) order() []*entry {
	s, slots := f.scheduler, f.slots
	order := make([]*entry, 0, len(s.waiting))
	for len(s.waiting) > 0 {
		e := s.next()
		switch {
		case e != nil:
			s.dequeue(e)
			slots = append(slots, s.hold(e.id, e.Candidate, e.asked))
			order = append(order, e)
		case len(slots) > 0:
			s.free(slots[0])
			slots = slots[1:]
		default:
			return order // never: with nothing running, the first request fits
		}
	}
	return order
}
