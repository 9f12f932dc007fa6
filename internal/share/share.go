// Package share bounds how much work of one namespace goes on at once, where users choose the
// servers that the work waits for. A piece of work takes a place and gives it back. What finds no
// place waits: in a namespace in the order in which it came, and of several namespaces the one
// with the fewest places is next, and of those with as few the one whose last work began first.
//
//	Wait, Next, End    a dispatcher begins the work of all: what comes waits, and Next says what begins
//	Enter, End, Due    workers that have a queue of their own ask for one object: what is refused
//	                   waits, and Due says whom to wake when a place is given back
//
// It begins nothing, wakes nothing and has no clock. It knows namespaces, and not whose they are:
// a user who has several namespaces has the share of each. Start reading at Bounds.
package share

import (
	"container/heap"
	"container/list"
	"fmt"
	"math"
	"slices"
	"sync"
)

// Bounds say how many places there are, and how many a namespace has.
type Bounds struct {
	All  int // at once; any number if zero
	Most int // that one namespace has; All if zero

	// Sure is how many a namespace has whatever others have; Most if zero. It has more only
	// while as many are free for a namespace that comes.
	Sure int

	// Overtake has Enter give a free place to what comes, also if others of its namespace wait
	// which were woken and have not come yet. Without it a free place is kept for them.
	Overtake bool
}

// anyNumber is a bound that nothing reaches.
const anyNumber = math.MaxInt32

// Places are the places, and what waits for them. K is a piece of work, of one namespace: it
// waits once, and may be given several places. New makes them. All methods may be called at once
// from anywhere. What a call costs grows with the logarithm of the number of namespaces.
type Places[K comparable] struct {
	bounds Bounds

	mu     sync.Mutex
	busy   int // places that are taken
	turns  uint64
	of     map[string]*share   // that have places, or work that waits
	waits  map[K]*list.Element // in the lines of their namespaces; the value is a waiting[K]
	ranked ranking             // namespaces with work that waits, and with places left of their most
}

// share is what a namespace has.
type share struct {
	name string
	busy int       // places that it has
	turn uint64    // when work of it began last, or it came
	line list.List // of what waits
	at   int       // in the ranking; negative if it is not there
}

type waiting[K comparable] struct {
	of  *share
	key K
}

// New returns places that are all free.
func New[K comparable](b Bounds) *Places[K] {
	p := &Places[K]{of: map[string]*share{}, waits: map[K]*list.Element{}}
	p.ranked.fewest = b.All > 0 // else no namespace takes a place from another
	if b.All <= 0 {
		b.All = anyNumber
	}
	if b.Most <= 0 || b.Most > b.All {
		b.Most = b.All
	}
	if b.Sure <= 0 || b.Sure > b.Most {
		b.Sure = b.Most
	}
	p.bounds = b
	return p
}

// Wait has work wait until Next returns it, or it is withdrawn. Work that waits keeps its turn.
func (p *Places[K]) Wait(namespace string, key K) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wait(namespace, key)
}

// Next gives a place to the work whose turn it is, until End. It is false if none waits that may
// begin. If may is not nil, work for which it is false keeps its turn and is passed over. May
// must not call p. It is asked for one piece of work after another until it is true.
func (p *Places[K]) Next(may func(K) bool) (key K, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inTurn(func(of *share, _ int) bool {
		for e := of.line.Front(); e != nil; e = e.Next() {
			if k := e.Value.(waiting[K]).key; may == nil || may(k) {
				key, ok = k, true
				p.begin(e)
				return false
			}
		}
		return true
	})
	return key, ok
}

// Enter takes a place for work, until End. If there is none for it the work waits: once Due
// returns it, it is to ask again.
func (p *Places[K]) Enter(namespace string, key K) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.wait(namespace, key)
	free := p.free(e.Value.(waiting[K]).of)
	if !p.bounds.Overtake {
		for before := e.Prev(); before != nil && free > 0; before = before.Prev() {
			free-- // it is kept for that one
		}
	}
	if free > 0 {
		p.begin(e)
	}
	return free > 0
}

// Withdraw says that work waits no longer, and reports whether it did. A caller of Enter
// asks Due afterwards, since the work may have been woken for a place that is free now.
func (p *Places[K]) Withdraw(key K) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.waits[key]
	if e != nil {
		p.rank(p.remove(e))
	}
	return e != nil
}

// End gives back a place of a namespace. It panics if the namespace has none: a place is given
// back once.
func (p *Places[K]) End(namespace string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.of[namespace]
	if of == nil || of.busy == 0 {
		panic(fmt.Sprintf("the namespace %q has no place to give back", namespace))
	}
	of.busy--
	p.busy--
	p.rank(of)
}

// Due is the work to wake after a place of a namespace was given back, or work of it was
// withdrawn: as much as finds places now, whose turn it is. What was woken before and has not
// come is named once more.
func (p *Places[K]) Due(namespace string) []K {
	p.mu.Lock()
	defer p.mu.Unlock()
	var due []K
	room := p.bounds.All - p.busy
	call := func(of *share, free int) bool {
		for e := of.line.Front(); e != nil && free > 0 && room > 0; e = e.Next() {
			due = append(due, e.Value.(waiting[K]).key)
			free, room = free-1, room-1
		}
		return room > 0
	}
	if p.bounds.All < anyNumber {
		p.inTurn(call)
	} else if of := p.of[namespace]; of != nil { // no other namespace has more places by that
		call(of, p.free(of))
	}
	return due
}

// Behind has a namespace wait until others with as few places had their turn.
func (p *Places[K]) Behind(namespace string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if of := p.of[namespace]; of != nil {
		p.turns++
		of.turn = p.turns
		p.rank(of)
	}
}

// Waiting is the work of a namespace that waits, in its order.
func (p *Places[K]) Waiting(namespace string) []K {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.of[namespace]
	if of == nil {
		return nil
	}
	all := make([]K, 0, of.line.Len())
	for e := of.line.Front(); e != nil; e = e.Next() {
		all = append(all, e.Value.(waiting[K]).key)
	}
	return all
}

// Busy is how many places are taken.
func (p *Places[K]) Busy() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.busy
}

// Idle reports whether no place is taken and no work waits. Nothing is remembered then.
func (p *Places[K]) Idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.of) == 0
}

// free is how many more places a namespace may have now. Of two namespaces the one with fewer
// places may have at least as many more as the other.
func (p *Places[K]) free(of *share) int {
	b := p.bounds
	own := max(b.Sure-of.busy, min(b.Most-of.busy, b.All-b.Sure-p.busy))
	return max(0, min(own, b.All-p.busy))
}

// inTurn calls f with the namespaces that have work which may begin, the next one first, and with
// how many more places they may have, until f is false.
func (p *Places[K]) inTurn(f func(of *share, free int) bool) {
	var passed []*share
	for more := true; more && p.ranked.Len() > 0; {
		of := p.ranked.all[0]
		free := p.free(of)
		if free == 0 {
			break // and so it is for all that follow
		}
		heap.Pop(&p.ranked)
		passed = append(passed, of)
		more = f(of, free)
	}
	for _, of := range passed {
		p.rank(of)
	}
}

// wait returns the element of work that waits, and has it wait if it does not.
func (p *Places[K]) wait(name string, key K) *list.Element {
	if e := p.waits[key]; e != nil {
		return e
	}
	of := p.of[name]
	if of == nil {
		p.turns++
		of = &share{name: name, turn: p.turns, at: -1} // behind those that wait
		p.of[name] = of
	}
	e := of.line.PushBack(waiting[K]{of, key})
	p.waits[key] = e
	p.rank(of)
	return e
}

// begin gives a place to work that waits.
func (p *Places[K]) begin(e *list.Element) {
	of := p.remove(e)
	p.turns++
	of.turn = p.turns
	of.busy++
	p.busy++
	p.rank(of)
}

// remove takes work out of its line. Rank follows.
func (p *Places[K]) remove(e *list.Element) *share {
	w := e.Value.(waiting[K])
	delete(p.waits, w.key)
	w.of.line.Remove(e)
	return w.of
}

// rank puts a namespace where it belongs, after any change of it, and forgets it if it has no
// place and no work.
func (p *Places[K]) rank(of *share) {
	switch ranked := of.line.Len() > 0 && of.busy < p.bounds.Most; {
	case ranked && of.at < 0:
		heap.Push(&p.ranked, of)
	case ranked:
		heap.Fix(&p.ranked, of.at)
	case of.at >= 0:
		heap.Remove(&p.ranked, of.at)
	}
	if of.busy == 0 && of.line.Len() == 0 {
		delete(p.of, of.name)
	}
}

// ranking is a heap of namespaces, the next one first.
type ranking struct {
	all    []*share
	fewest bool // the number of places comes before the turn
}

func (r *ranking) Len() int { return len(r.all) }

func (r *ranking) Less(i, j int) bool {
	a, b := r.all[i], r.all[j]
	if r.fewest && a.busy != b.busy {
		return a.busy < b.busy
	}
	return a.turn < b.turn
}

func (r *ranking) Swap(i, j int) {
	r.all[i], r.all[j] = r.all[j], r.all[i]
	r.all[i].at, r.all[j].at = i, j
}

func (r *ranking) Push(of any) {
	one := of.(*share)
	one.at = len(r.all)
	r.all = append(r.all, one)
}

func (r *ranking) Pop() any {
	last := len(r.all) - 1
	one := r.all[last]
	one.at = -1
	r.all = slices.Delete(r.all, last, last+1) // and the pointer is cleared
	return one
}
