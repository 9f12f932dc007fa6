package secretsync

import (
	"sync"
	"time"
)

// steady is a clock that never goes back while the process lives, whatever is done to that of the
// machine: credentials end at their server all the same. One that is set forward is believed,
// since what is renewed too early does no harm.
type steady struct {
	wall  func() time.Time
	ticks func() time.Duration // since any moment; it never goes back

	mu   sync.Mutex
	last time.Time
	at   time.Duration
}

// newSteady is a clock that counts by the monotonic clock since a time of this process.
func newSteady(wall func() time.Time, since time.Time) *steady {
	return &steady{wall: wall, ticks: func() time.Duration { return time.Since(since) }, last: wall().Round(0)}
}

// Now is the time.
func (s *steady) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, at := s.wall().Round(0), s.ticks()
	if by := s.last.Add(at - s.at); now.Before(by) {
		now = by
	}
	s.last, s.at = now, at
	return now
}
