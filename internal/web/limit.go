package web

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
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

// seats bound the memory of requests that hold a whole state or the document of a plan: how many
// there are and how many bytes they take together, of each user and in all. Before such a
// document is read its size is not known, so that each request counts as if it were the largest;
// and once its answer begins, as what the answer takes. A client that sends or reads slowly has
// the server hold that for minutes. The zero seats have none.
type seats struct {
	each, all int
	bytes     int64 // of all; one user has half of them, and one request always fits

	mu    sync.Mutex
	taken held
	of    map[string]held // by user
	freed chan struct{}   // closed and replaced when there is room again; nil until a request waits
}

// held is what requests hold.
type held struct {
	requests int
	bytes    int64
}

var errSeats = fault.Wait(2*time.Second, access.ReasonNoSeat, errors.New("requests of yours, or of all users, hold as many states and plans as the server has memory for at this moment: try again in a few seconds"))

// take takes a seat of a user for so many bytes. It waits for one as long as patience, and not
// beyond ctx.
func (s *seats) take(ctx context.Context, name string, bytes int64, patience time.Duration) (*seat, error) {
	over := time.NewTimer(patience)
	defer over.Stop()
	for {
		one, freed := s.try(name, min(bytes, s.bytes))
		if one != nil {
			return one, nil
		}
		select {
		case <-freed:
		case <-over.C:
			return nil, errSeats
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// try takes a seat if one is free. Otherwise freed is closed when another try may succeed.
func (s *seats) try(name string, bytes int64) (one *seat, freed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.of[name]
	if s.taken.requests >= s.all || s.taken.bytes+bytes > s.bytes || own.requests >= s.each || own.requests > 0 && own.bytes+bytes > s.bytes/2 {
		if s.freed == nil {
			s.freed = make(chan struct{})
		}
		return nil, s.freed
	}
	s.add(name, 1, bytes)
	return &seat{of: s, name: name, bytes: bytes}, nil
}

// add changes what a user holds. The caller has the lock.
func (s *seats) add(name string, requests int, bytes int64) {
	if s.of == nil {
		s.of = map[string]held{}
	}
	own := s.of[name]
	s.taken = held{s.taken.requests + requests, s.taken.bytes + bytes}
	s.of[name] = held{own.requests + requests, own.bytes + bytes}
	if s.of[name] == (held{}) {
		delete(s.of, name)
	}
	if (requests < 0 || bytes < 0) && s.freed != nil {
		close(s.freed)
		s.freed = nil
	}
}

// seat is what one request holds.
type seat struct {
	of    *seats
	name  string
	bytes int64
}

// shrink gives back what the request does not need.
func (s *seat) shrink(bytes int64) {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	if bytes < s.bytes {
		s.of.add(s.name, 0, bytes-s.bytes)
		s.bytes = bytes
	}
}

// leave gives the seat back.
func (s *seat) leave() {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.add(s.name, -1, -s.bytes)
}

// seatedWriter shrinks the seat of a request when its answer begins: the handlers make an answer
// as a whole or in small parts, and write what they made at once.
type seatedWriter struct {
	gin.ResponseWriter
	seat *seat
}

func (w *seatedWriter) Write(b []byte) (int, error) {
	w.settle(len(b))
	return w.ResponseWriter.Write(b)
}

// WriteString implements io.StringWriter.
func (w *seatedWriter) WriteString(s string) (int, error) {
	w.settle(len(s))
	return w.ResponseWriter.WriteString(s)
}

// Unwrap is for http.ResponseController.
func (w *seatedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *seatedWriter) settle(n int) {
	if w.Written() {
		return
	}
	said, err := strconv.ParseInt(w.Header().Get("Content-Length"), 10, 64)
	if err != nil {
		said = 0
	}
	w.seat.shrink(copiesHeld * max(int64(n), said))
}

// copiesHeld is how often a request holds a document: as it was read, and as it is answered.
const copiesHeld = 2

// mostHeld is how many bytes a request may hold before the size of what it reads is known.
func mostHeld(r route, length int64) int64 {
	if r.body <= commandBytes {
		return copiesHeld * stateBytes
	}
	if length < 0 {
		length = r.body // in chunks
	}
	return stateBytes + length
}
