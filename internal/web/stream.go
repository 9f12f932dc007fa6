package web

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/service"
)

// streams counts the streams that are open.
type streams struct {
	total, each int

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
	s.all++
	s.user[name]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all--
		if s.user[name]--; s.user[name] == 0 {
			delete(s.user, name)
		}
	}, true
}

// follow sends a log while it grows. The right to it is asked for again now
// and then, and a reader that takes nothing is dropped: nothing is kept for it.
func (s *server) follow(c *gin.Context) {
	user := userOf(c)
	leave, ok := s.streams.enter(user.Name)
	if !ok {
		s.refuse(c, errStreams)
		return
	}
	defer leave()
	ctx, cancel := context.WithCancel(c.Request.Context())
	r, err := s.Stacks.Log(ctx, keyOf(c), c.Param("run"), true)
	if err != nil {
		cancel()
		s.refuse(c, err)
		return
	}
	defer r.Close()
	var watch sync.WaitGroup
	watch.Go(func() { s.recheck(ctx, cancel, c.Copy(), user) })
	defer watch.Wait()
	defer cancel()
	c.Header("Content-Type", "text/plain; charset=utf-8")
	c.Writer.WriteHeaderNow()
	if err := s.copy(ctx, c.Writer, r); err != nil {
		panic(http.ErrAbortHandler) // a log that was cut must not look like a whole one
	}
}

// copy sends what r gives as it comes.
func (s *server) copy(ctx context.Context, w http.ResponseWriter, r io.Reader) error {
	control := http.NewResponseController(w)
	if err := control.Flush(); err != nil {
		return err
	}
	buf := make([]byte, 16<<10)
	for {
		n, err := r.Read(buf)
		if ctx.Err() != nil {
			return context.Cause(ctx) // a log that grows fast never comes to its end
		}
		if n > 0 {
			if err := control.SetWriteDeadline(s.Now().Add(s.Limits.Stall)); err != nil {
				return err
			}
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
			if err := control.Flush(); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// recheck ends a stream whose reader has lost the right to it, or is no longer
// known. That nobody can be asked ends nothing.
func (s *server) recheck(ctx context.Context, end context.CancelFunc, c *gin.Context, was service.User) {
	tick := time.NewTicker(s.Limits.Recheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		user, err := s.identify(c.Request.WithContext(ctx))
		if err == nil && user.Name != was.Name {
			end()
			return
		}
		if err == nil {
			err = s.Auth.Authorize(ctx, user, service.Access{Verb: "get", Resource: service.ResourceLog, Namespace: c.Param("namespace"), Name: c.Param("name")})
		}
		if fault.Of(err) == fault.Denied {
			end()
			return
		}
	}
}
