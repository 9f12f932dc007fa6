package gitstate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/location"
	"github.com/terrier-iac/terrier/internal/source"
	"github.com/terrier-iac/terrier/internal/stack"
)

const (
	// patience is how long a pass waits for a git server. One that works answers sooner, so that
	// no stack says in between that it waits.
	patience = 5 * time.Second

	// slowAtOnce is how many calls a server has that does not answer in time. One of them finds
	// out when it does.
	slowAtOnce = 4

	// rememberSlow is how long it is known of a server that nothing asks any more that it did not
	// answer in time.
	rememberSlow = 10 * time.Minute
)

// Beside has States asked beside the passes of stacks, so that a git server that hangs stops
// only the stacks whose states it keeps.
//
//	the server answers in time    the pass goes on with the answer
//	it does not                   the pass ends with an error that says so, and the call goes on;
//	                              what it fetches or stores makes the next one short
//	passes after that             begin a call each, and do not wait for it
//	it answers in time again      the stacks that it kept are woken
//
// A pass uses only the answer to a call of its own. One from before may be older than the lock
// that the pass holds, and the state another one by now.
type Beside struct {
	States *States

	// Wake has the stacks reconciled whose state is in a place, as states.ManagedPlace names it.
	Wake func(ctx context.Context, place string)

	patience time.Duration
	work     chan func(context.Context)

	mu      sync.Mutex
	servers map[string]*server // by host
}

var _ kube.Elsewhere = (*Beside)(nil)

// server is what is known of a git server that is asked.
type server struct {
	slow    time.Time        // since when it does not answer in time; zero if it does
	used    time.Time        // last
	asked   map[string]*call // that it has not answered, by place
	waiting map[string]error // the places whose stacks wait, and what the last call for each ended with; nil if with nothing to tell
}

// call is one call for one place.
type call struct {
	host, place string
	began       time.Time
	left        bool // no pass waits for it any more
	ended       bool
}

// NewBeside has s asked beside the passes.
func NewBeside(s *States) *Beside {
	return &Beside{States: s, patience: patience, work: make(chan func(context.Context)), servers: map[string]*server{}}
}

// Run makes the calls until ctx ends, and then waits for those that go on, whose contexts end
// with it.
func (b *Beside) Run(ctx context.Context) error {
	var calls sync.WaitGroup
	defer calls.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case work := <-b.work:
			calls.Go(func() { work(ctx) })
		}
	}
}

// Load implements kube.Elsewhere.
func (b *Beside) Load(ctx context.Context, ref kube.StateRef) (kube.Stored, error) {
	return ask(ctx, b, ref, func(ctx context.Context, f *source.GitFile) (kube.Stored, error) {
		return b.States.load(ctx, ref, f)
	})
}

// Save implements kube.Elsewhere.
func (b *Beside) Save(ctx context.Context, ref kube.StateRef, owner kube.Owner, state []byte) error {
	return b.change(ctx, ref, saving(ref, owner, state))
}

// Reform implements kube.Elsewhere.
func (b *Beside) Reform(ctx context.Context, ref kube.StateRef) error {
	return b.change(ctx, ref, reforming(ref))
}

// Replace implements kube.Elsewhere. It is for users, who wait for the server.
func (b *Beside) Replace(ctx context.Context, ref kube.StateRef, r kube.Replacement) error {
	return b.States.Replace(ctx, ref, r)
}

func (b *Beside) change(ctx context.Context, ref kube.StateRef, decide decision) error {
	_, err := ask(ctx, b, ref, func(ctx context.Context, f *source.GitFile) (struct{}, error) {
		return struct{}{}, b.States.change(ctx, ref, f, decide)
	})
	return err
}

// answer is what a call ends with.
type answer[T any] struct {
	got T
	err error
}

// ask makes a call, and returns its answer if that comes in time.
func ask[T any](ctx context.Context, b *Beside, ref kube.StateRef, what func(context.Context, *source.GitFile) (T, error)) (T, error) {
	var none T
	f, err := b.States.file(ctx, ref)
	if err != nil {
		return none, err
	}
	host, err := location.GitHost(f.Git.URL)
	if err != nil {
		return none, noAccess(ref, err)
	}
	c, wait, err := b.begin(ref, host)
	if c == nil {
		return none, err
	}
	answered := make(chan answer[T], 1)
	select {
	case b.work <- func(life context.Context) {
		got, err := what(life, f)
		answered <- answer[T]{got, err}
		b.end(life, c, err)
	}:
	case <-ctx.Done():
		b.drop(c)
		return none, context.Cause(ctx)
	}
	if wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case a := <-answered:
			return a.got, a.err
		case <-t.C:
		case <-ctx.Done():
		}
	}
	if err := b.leave(ref, c, wait > 0 && ctx.Err() == nil); err != nil {
		return none, err
	}
	a := <-answered // it came at the last moment
	return a.got, a.err
}

// begin notes a call, and says how long its pass waits for it. It is nil if the pass makes none,
// and the error says why.
func (b *Beside) begin(ref kube.StateRef, host string) (*call, time.Duration, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now, place := b.States.Now(), ref.Git.Key(ref.Namespace)
	s := b.server(host, now)
	earlier := s.asked[place]
	switch {
	case earlier != nil:
		return nil, 0, s.unanswered(ref, host, earlier.began)
	case !s.slow.IsZero() && len(s.asked) >= slowAtOnce:
		return nil, 0, s.unanswered(ref, host, s.slow)
	}
	c := &call{host: host, place: place, began: now}
	s.asked[place] = c
	if !s.slow.IsZero() {
		return c, 0, nil
	}
	return c, b.patience, nil
}

// server is what is known of a server. Others are forgotten.
func (b *Beside) server(host string, now time.Time) *server {
	maps.DeleteFunc(b.servers, func(_ string, s *server) bool {
		return len(s.asked) == 0 && now.Sub(s.used) > rememberSlow
	})
	s := b.servers[host]
	if s == nil {
		s = &server{asked: map[string]*call{}, waiting: map[string]error{}}
		b.servers[host] = s
	}
	s.used = now
	return s
}

// unanswered is the error of a stack that waits for a server: what the last call for it ended
// with, if that says more than that there is no answer.
func (s *server) unanswered(ref kube.StateRef, host string, since time.Time) error {
	place := ref.Git.Key(ref.Namespace)
	err := s.waiting[place]
	s.waiting[place] = err
	if err != nil {
		return err
	}
	return fault.New(fault.Later, string(stack.StateFailed), fmt.Errorf(
		"the state is in %s: the git server %s has not answered in time since %s. Terrier asks it again by itself, and begins no run of this stack before it answers", ref.InWords(), host, since.UTC().Format(time.RFC3339)))
}

// leave has a pass end without the answer to its call. It is nil if there is one by now. Late is
// that the server had the time that it has.
func (b *Beside) leave(ref kube.StateRef, c *call, late bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.ended {
		return nil
	}
	c.left = true
	s := b.servers[c.host]
	if late && s.slow.IsZero() {
		s.slow = c.began
	}
	since := s.slow
	if since.IsZero() {
		since = c.began
	}
	return s.unanswered(ref, c.host, since)
}

// end notes that a call ended. One that ended in time says that the server answers.
func (b *Beside) end(life context.Context, c *call, err error) {
	b.mu.Lock()
	s := b.servers[c.host]
	delete(s.asked, c.place)
	c.ended = true
	now := b.States.Now()
	s.used = now
	var wake []string
	switch inTime := now.Sub(c.began) <= b.patience; {
	case life.Err() != nil: // it was cut short
	case inTime:
		wake = slices.Collect(maps.Keys(s.waiting))
		s.slow = time.Time{}
		clear(s.waiting)
	default:
		if s.slow.IsZero() {
			s.slow = c.began
		}
		if fault.Of(err) != fault.Later {
			err = nil // only its own pass may go by what it found
		}
		s.waiting[c.place] = err
	}
	b.forget(c.host)
	b.mu.Unlock()
	if b.Wake != nil {
		for _, place := range wake {
			b.Wake(life, place)
		}
	}
}

// drop takes back a call that was not made.
func (b *Beside) drop(c *call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.servers[c.host].asked, c.place)
	b.forget(c.host)
}

// forget drops what is known of a server if that is nothing.
func (b *Beside) forget(host string) {
	if s := b.servers[host]; len(s.asked) == 0 && len(s.waiting) == 0 && s.slow.IsZero() {
		delete(b.servers, host)
	}
}
