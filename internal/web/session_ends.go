package web

import (
	"context"
	"maps"
	"sync"
	"time"
)

// signOuts are SignOuts in memory.
type signOuts struct {
	now func() time.Time

	mu    sync.Mutex
	until map[string]time.Time
}

func newSignOuts(now func() time.Time) *signOuts {
	return &signOuts{now: now, until: map[string]time.Time{}}
}

// End implements SignOuts. Expired sessions are dropped, so that they do not
// fill the memory.
func (s *signOuts) End(_ context.Context, id string, until time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	maps.DeleteFunc(s.until, func(_ string, t time.Time) bool { return !now.Before(t) })
	s.until[id] = until
	return nil
}

// Ended implements SignOuts.
func (s *signOuts) Ended(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now().Before(s.until[id])
}
