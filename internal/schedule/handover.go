package schedule

import "container/heap"

// HandOver gives the slot of a place, whose run has ended, to the run whose turn it would
// be if the place ended now, if that is of the same tenant and class, and the place takes it: to is then its object, which
// is woken. Otherwise others says whether another run waits for the slot, so that the place
// has to end.
//
// As long as the new run has not begun, the slot is also the place's: it is the place's
// again if the object gives the slot up. Leave with the ID of the place ends that, once the
// place has ended or the new run has begun there.
func (q *Queue) HandOver(id string, takes func(Candidate) bool) (to string, others bool) {
	q.lock()
	defer q.mu.Unlock()
	s := q.scheduler
	of := s.slots[id]
	if of == nil || !of.Ending || s.limits.Memory > 0 {
		return "", true
	}
	switch e := (lending{s}).without(of); {
	case e == nil:
		return "", false
	case e.Class != of.Class || e.Tenant != of.Tenant || !takes(e.Candidate):
		return "", true // another class or tenant may have reached its limit before the place ends
	}
	s.free(of)
	e := s.next()
	s.dequeue(e)
	held := q.hold(e)
	held.of = of
	s.lent[id] = held
	q.listeners[e.Key.Kind].turn(e)
	return e.id, false
}

// lending is the part of a scheduler that is about slots that were handed over.
type lending struct{ *scheduler }

// without is the request whose turn it would be if a slot were free now; nil if none may
// start. It changes nothing.
func (s lending) without(of *slot) *entry {
	t, c := of.tenant, of.Class
	running, moved, share := t.running, t.moved, t.classes[c]
	rank := func() {
		for c := range t.lines {
			if t.lines[c].Len() > 0 {
				heap.Fix(&s.rankings[c], t.index[c])
			}
		}
	}
	delete(s.slots, of.id)
	s.running[c]--
	t.running, t.moved = t.running-1, s.turn+1
	t.classes[c].running, t.classes[c].moved = share.running-1, s.turn+1
	rank()
	defer func() {
		s.slots[of.id] = of
		s.running[c]++
		t.running, t.moved, t.classes[c] = running, moved, share
		rank()
	}()
	if s.limits.Runs > 0 && len(s.slots) >= s.limits.Runs {
		return nil
	}
	class, ok := s.class()
	if !ok {
		return nil
	}
	return s.first(s.turnOf(class))
}

// restore gives a slot that was handed over back to its place.
func (s lending) restore(of *slot) {
	delete(s.lent, of.id)
	of.tenant = s.tenant(of.Tenant)
	s.slots[of.id] = of
	s.charged += of.Memory
	s.addRuns(of.tenant, of.Class, +1)
}

// settle ends the right of a place to a slot that was handed over.
func (s lending) settle(id string) {
	if held := s.lent[id]; held != nil {
		held.of = nil
		delete(s.lent, id)
	}
}
