package controller

import (
	"container/heap"
	"slices"
)

// How what is left of the memory is filled, and kept for what is large.

// smaller is the first, in the same order, that fits into what is left of the
// memory. It looks at a bounded number: with thousands that are all too large,
// nobody wants to know of each.
func (q *queue) smaller() (found *ticket) {
	looked := 0
	for c := range classes {
		var aside []*tenant
		for found == nil && looked < lookAhead && q.open(c) {
			t := heap.Pop(&q.contest[c]).(*tenant)
			aside = append(aside, t)
			for e := t.lines[c].Front(); e != nil && looked < lookAhead; e = e.Next() {
				looked++
				if tk := e.Value.(*ticket); q.fits(tk.memory) {
					found = tk
					break
				}
			}
		}
		for _, t := range aside {
			heap.Push(&q.contest[c], t)
		}
	}
	return found
}

// over are those that are passed over when small starts: those of others, and
// what its tenant wants as much or more.
func (t *tenant) over(small *ticket, others ...*ticket) (over []*ticket) {
	for c := range small.class + 1 {
		if line := &t.lines[c]; line.Len() > 0 {
			others = append(others, line.Front().Value.(*ticket))
		}
	}
	for _, o := range others {
		if o != small && !slices.Contains(over, o) {
			over = append(over, o)
		}
	}
	return over
}

// skip counts that a smaller run goes before t. When that was often enough,
// room is kept for it.
func (q *queue) skip(t *ticket) {
	t.passed++
	if t.passed >= patience && q.large == nil {
		q.large = t
	}
}
