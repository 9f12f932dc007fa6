package schedule

import (
	"container/heap"
	"slices"
)

// How memory that is left over is filled, and kept for a run that is large.

// maxExamined bounds how many requests are examined for one that fits.
const maxExamined = 64

// filler is the request that may take the memory that is left over, because
// first, whose turn it is, does not fit. It is nil if none fits.
func (s *scheduler) filler(first *entry) *entry {
	small, larger := s.smaller()
	if small == nil {
		return nil
	}
	// It takes what would be left over, and that was no request's turn. But a
	// tenant that has runs ranks behind others, so its own order counts here, too.
	own := s.first(small.tenant)
	if s.fits(own.Memory) {
		small = own
	}
	s.pass(small)
	if small == own {
		s.had(small)
	}
	for _, over := range s.passedBy(small, append(larger, own, first)...) {
		s.skip(over)
	}
	return small
}

// smaller is the first, in the same order, that fits into the memory that is
// left over. It examines a bounded number: thousands that are all too large
// must not be examined at each start. Larger are the first of the tenants that rank before
// it in its class.
func (s *scheduler) smaller() (found *entry, larger []*entry) {
	examined := 0
	for c := range classes {
		var aside []*tenant
		for found == nil && examined < maxExamined && s.open(c) {
			t := heap.Pop(&s.rankings[c]).(*tenant)
			aside = append(aside, t)
			for place := t.lines[c].Front(); place != nil && examined < maxExamined; place = place.Next() {
				examined++
				if e := place.Value.(*entry); s.fits(e.Memory) {
					found = e
					break
				}
			}
		}
		for _, t := range aside {
			if found != nil && found.Class == c && t != found.tenant {
				larger = append(larger, t.lines[c].Front().Value.(*entry))
			}
			heap.Push(&s.rankings[c], t)
		}
	}
	return found, larger
}

// passedBy are the requests that are passed over when small starts: those of
// others, and what its tenant wants as much or more.
func (s *scheduler) passedBy(small *entry, others ...*entry) (over []*entry) {
	for c := range small.Class + 1 {
		if line := &small.tenant.lines[c]; line.Len() > 0 && !s.crowded(small.tenant, c) {
			others = append(others, line.Front().Value.(*entry))
		}
	}
	for _, o := range others {
		if o != small && !slices.Contains(over, o) {
			over = append(over, o)
		}
	}
	return over
}

// skip counts that a smaller run goes before e. When that was often enough,
// room is kept for e.
func (s *scheduler) skip(e *entry) {
	e.passed++
	if e.passed >= maxPassed && s.large == nil {
		s.large = e
	}
}
