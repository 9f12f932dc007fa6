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

// streams counts the open streams.
type streams struct {
	total, each int
	tell        func(open int) // may be nil

	mu   sync.Mutex
	all  int
	user map[string]int
}

// enter counts a stream of name, if the limits allow it.
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

// stream is an answer without an end. The goroutine of its request does everything:
// it waits for news, writes them, periodically checks the permissions,
// and sends heartbeats. Nothing is buffered for a reader that does not
// read: its stream is closed.
type stream struct {
	opener  *opener
	c       *gin.Context
	user    access.User
	control *http.ResponseController
	may     func(context.Context, access.User) error // whether user may read on; Denied ends the stream
	ends    time.Time                                // the latest end

	checks, beats *time.Ticker
	again         func() bool  // whether to write without a change; may be nil
	beat          func() error // sends a heartbeat; nil for streams without one
}

// errEnded is the end of a stream at its time limit. The reader may connect
// again.
var errEnded = errors.New("the stream has ended")

func streaming(l Limits) time.Duration { return l.Stream }

// opener opens streams, as many as the limits allow.
type opener struct {
	streams *streams
	callers callers
	limits  Limits
	now     func() time.Time
}

// open counts a stream. start sends its headers.
func (o *opener) open(c *gin.Context, may func(context.Context, access.User) error) (st *stream, done func(), err error) {
	// A stream is a GET, but it counts as long as it is open: a link of another site
	// to which a browser sends its cookie, such as one of another port of this host,
	// may lead to pages, but not to a stream.
	if !fromOwnPage(c.Request) || ledHere(c.Request) {
		return nil, nil, errOrigin
	}
	st = &stream{opener: o, c: c, user: userOf(c), may: may, control: http.NewResponseController(c.Writer)}
	leave, ok := o.streams.enter(st.user.Name)
	if !ok {
		return nil, nil, errStreams
	}
	st.ends = o.now().Add(o.limits.Stream)
	st.checks, st.beats = time.NewTicker(o.limits.Recheck), time.NewTicker(o.limits.Beat)
	return st, func() {
		st.checks.Stop()
		st.beats.Stop()
		leave()
	}, nil
}

// start sends the headers.
func (st *stream) start(mediaType string) error {
	st.c.Header("Content-Type", mediaType)
	st.c.Header("X-Accel-Buffering", "no") // proxies would buffer it
	st.c.Status(http.StatusOK)
	st.c.Writer.WriteHeaderNow()
	return st.flush()
}

// write sends b now, and then resets the write deadline:
// over HTTP/2 an expired deadline ends the stream even if nothing is written,
// as with a run that prints nothing for a while.
func (st *stream) write(b []byte) error {
	if err := st.control.SetWriteDeadline(st.opener.now().Add(st.opener.limits.Stall)); err != nil {
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

// wait returns when more is closed, or when again says so. In the
// meantime it checks the permissions and sends heartbeats.
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

// due checks the permissions if it is time, without waiting: a stream with constant
// news never waits.
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

// recheck checks whether the user is still the same, and may still read. An error of
// the check does not end the stream.
func (st *stream) recheck() error {
	ctx, cancel := context.WithTimeout(st.c.Request.Context(), st.opener.limits.Stall)
	defer cancel()
	user, err := st.opener.callers.identify(st.c.Request.WithContext(ctx))
	if err == nil && user.Name != st.user.Name {
		err = fault.New(fault.Denied, access.ReasonUnknownUser, fmt.Errorf("the credentials no longer belong to %s", st.user.Name))
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
