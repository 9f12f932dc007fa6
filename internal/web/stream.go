package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
)

// streams counts the streams that are open.
type streams struct {
	total, each int
	tell        func(open int) // may be nil

	mu   sync.Mutex
	all  int
	user map[string]int
}

// enter takes a place for name, or says that there is none left.
func (s *streams) enter(name string) (leave func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= s.total || s.user[name] >= s.each {
		return nil, false
	}
	if s.user == nil {
		s.user = map[string]int{}
	}
	s.count(+1)
	s.user[name]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.count(-1)
		if s.user[name]--; s.user[name] == 0 {
			delete(s.user, name)
		}
	}, true
}

func (s *streams) count(by int) {
	s.all += by
	if s.tell != nil {
		s.tell(s.all)
	}
}

// stream is an answer that goes on. Everything about it is done by the goroutine
// of its request: it waits for news, writes them, asks now and then whether it
// may go on, and says that it is alive. Nothing is kept for a reader that takes
// nothing: it is dropped.
type stream struct {
	server  *server
	c       *gin.Context
	user    access.User
	control *http.ResponseController
	may     func(context.Context, access.User) error // whether user may read on; Denied ends the stream
	ends    time.Time                                // when it is over, whatever happens

	checks, beats *time.Ticker
	again         func() bool  // whether there is something to say though nothing has happened; nil if there never is
	beat          func() error // says that the stream is alive; nil if it has no way to
}

// errEnded is the end of a stream whose time is over. Whoever wants more asks
// again.
var errEnded = errors.New("the stream has come to its end")

// streaming is the limit of the rows that go on.
func streaming(l Limits) time.Duration { return l.Stream }

// open takes a place for a stream. Its headers are sent by start.
func (s *server) open(c *gin.Context, may func(context.Context, access.User) error) (st *stream, done func(), err error) {
	// A GET, and yet it holds a place for as long as it goes on: a link of others
	// that a browser shows its cookie to, as one of another port of this host,
	// leads to pages and to no stream.
	if !fromOwnPage(c.Request) || ledHere(c.Request) {
		return nil, nil, errOrigin
	}
	st = &stream{server: s, c: c, user: userOf(c), may: may, control: http.NewResponseController(c.Writer)}
	leave, ok := s.streams.enter(st.user.Name)
	if !ok {
		return nil, nil, errStreams
	}
	st.ends = s.Now().Add(s.Limits.Stream)
	st.checks, st.beats = time.NewTicker(s.Limits.Recheck), time.NewTicker(s.Limits.Beat)
	return st, func() {
		st.checks.Stop()
		st.beats.Stop()
		leave()
	}, nil
}

// start sends the headers.
func (st *stream) start(mediaType string) error {
	st.c.Header("Content-Type", mediaType)
	st.c.Header("X-Accel-Buffering", "no") // proxies would keep it until it is whole
	st.c.Status(http.StatusOK)
	st.c.Writer.WriteHeaderNow()
	return st.flush()
}

// write sends b now. What is left of the time for it is taken back afterwards:
// over HTTP/2 a deadline that passes ends the stream though nothing is written,
// which is what a run that is silent for a while looks like.
func (st *stream) write(b []byte) error {
	if err := st.control.SetWriteDeadline(st.server.Now().Add(st.server.Limits.Stall)); err != nil {
		return err
	}
	if _, err := st.c.Writer.Write(b); err != nil {
		return err
	}
	if err := st.flush(); err != nil {
		return err
	}
	return st.control.SetWriteDeadline(st.ends)
}

func (st *stream) flush() error { return st.control.Flush() }

// wait returns when more is closed, or when there is something to say. In the
// meantime it does what has to be done now and then.
func (st *stream) wait(more <-chan struct{}) error {
	for {
		if err := st.due(); err != nil {
			return err
		}
		if st.again != nil && st.again() {
			return nil
		}
		beats := st.beats.C
		if st.beat == nil {
			beats = nil
		}
		select {
		case <-more:
			return nil
		case <-st.c.Request.Context().Done():
			return errEnded
		case <-st.checks.C:
			if err := st.recheck(); err != nil {
				return err
			}
		case <-beats:
			if err := st.beat(); err != nil {
				return err
			}
		}
	}
}

// due does what is due without waiting: a stream that always has more to send
// never waits.
func (st *stream) due() error {
	if st.c.Request.Context().Err() != nil {
		return errEnded
	}
	select {
	case <-st.checks.C:
		return st.recheck()
	default:
		return nil
	}
}

// recheck asks whether the reader is still who they were, and may read on. That
// nobody can be asked ends nothing.
func (st *stream) recheck() error {
	ctx, cancel := context.WithTimeout(st.c.Request.Context(), st.server.Limits.Stall)
	defer cancel()
	user, err := st.server.identify(st.c.Request.WithContext(ctx))
	if err == nil && user.Name != st.user.Name {
		err = fault.New(fault.Denied, access.ReasonUnknownUser, fmt.Errorf("%s is somebody else by now", st.user.Name))
	}
	if err == nil {
		err = st.may(ctx, user)
	}
	if fault.Of(err) == fault.Denied {
		return err
	}
	return nil
}

// wantsEvents reports whether a request prefers events to text.
func wantsEvents(c *gin.Context) bool {
	return strings.Contains(c.GetHeader("Accept"), "text/event-stream")
}
