package web

import (
	"sync"
	"time"
)

// limit bounds how often something may happen in a minute: for each name, and in
// all. The zero limit allows nothing.
type limit struct {
	each, all int

	mu    sync.Mutex
	since time.Time
	taken int
	of    map[string]int
}

// take counts one more of a name. Wait is zero if that is within the limit, else
// how long the minute goes on; back takes it off again.
func (l *limit) take(name string, now time.Time) (back func(), wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil || now.Sub(l.since) >= time.Minute {
		l.since, l.taken, l.of = now, 0, map[string]int{}
	}
	if l.taken >= l.all || l.of[name] >= l.each {
		return nil, max(time.Second, l.since.Add(time.Minute).Sub(now))
	}
	l.taken++
	l.of[name]++
	since := l.since
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.since.Equal(since) {
			l.taken--
			l.of[name]--
		}
	}, 0
}
