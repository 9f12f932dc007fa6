package web

import (
	"context"
	"sync"
	"time"
)

// EndedSessions are SignOuts in memory.
type EndedSessions struct {
	now func() time.Time

	mu    sync.Mutex
	until map[string]time.Time
}

// NewEndedSessions returns that no session was ended.
func NewEndedSessions(now func() time.Time) *EndedSessions {
	return &EndedSessions{now: now, until: map[string]time.Time{}}
}

// End implements SignOuts. Expired sessions are dropped, so that they do not
// fill the memory.
func (s *EndedSessions) End(_ context.Context, id string, until time.Time) error {
	s.Expire()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until[id] = until
	return nil
}

func (s *EndedSessions) Ended(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now().Before(s.until[id])
}

// Expire drops the sessions that have expired, and returns them.
func (s *EndedSessions) Expire() (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, until := range s.until {
		if !s.now().Before(until) {
			ids = append(ids, id)
			delete(s.until, id)
		}
	}
	return ids
}
