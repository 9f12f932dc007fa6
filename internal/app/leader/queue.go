package leader

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/schedule/shared"
	"github.com/terrier-iac/terrier/internal/shard"
)

// How long the calls about the queue take.
const (
	answerLimit = 500 * time.Millisecond // a reconcile waits for it
	reportLimit = 10 * time.Second
	pollLimit   = 30 * time.Second
	pollHeld    = 20 * time.Second // then the leader answers that there is nothing new
	shownLimit  = 2 * time.Second  // a page waits for it
	noticeEvery = time.Second      // how soon another leader is noticed at the latest
	firstPause  = 100 * time.Millisecond
	lastPause   = 2 * time.Second
)

// Queue is the queue of runs as one of several controllers has it: its own Client, and the
// Server once it leads.
type Queue struct {
	*shared.Client
	Config
	server atomic.Pointer[shared.Server]
	polls  stopper

	exchange func(context.Context, shared.Report) (shared.Answer, error)
	place    func(context.Context, string) (*schedule.Place, error)
	backlog  func(context.Context, struct{}) (schedule.Backlog, error)
	line     func(context.Context, struct{}) (schedule.Line, error)
}

func newQueue(to Config) *Queue {
	clock := schedule.Clock{Now: to.Now, After: func(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }}
	q := &Queue{Client: shared.NewClient(to.Me, clock), Config: to}
	q.Patience = answerLimit
	q.exchange = onLeader(to, "queue", func(ctx context.Context, r shared.Report) (shared.Answer, error) {
		s := q.server.Load()
		if s == nil {
			return shared.Answer{}, errNoLeader
		}
		ctx, done := context.WithTimeout(ctx, pollHeld)
		defer done()
		return s.Exchange(ctx, r), nil
	})
	q.place = onLeader(to, "queue-place", func(_ context.Context, id string) (*schedule.Place, error) {
		return ofQueue(q, func(s *schedule.Queue) *schedule.Place {
			if p, ok := s.Place(id); ok {
				return &p
			}
			return nil
		})
	})
	q.backlog = onLeader(to, "queue-backlog", func(context.Context, struct{}) (schedule.Backlog, error) {
		return ofQueue(q, (*schedule.Queue).Backlog)
	})
	q.line = onLeader(to, "queue-line", func(context.Context, struct{}) (schedule.Line, error) {
		return ofQueue(q, (*schedule.Queue).Line)
	})
	return q
}

// ofQueue asks the queue of this controller, if it leads.
func ofQueue[Out any](q *Queue, of func(*schedule.Queue) Out) (out Out, err error) {
	s := q.server.Load()
	if s == nil {
		return out, errNoLeader
	}
	return of(s.Queue()), nil
}

// Lead has this controller answer the others. It grants nothing before all have claimed
// their shards.
func (q *Queue) Lead(room schedule.Room) { q.server.Store(shared.NewServer(q.Me, room, q.Now)) }

func (q *Queue) leads() bool { return q.server.Load() != nil }

// run reports to the leader, and hears what it grants, until ctx ends.
func (q *Queue) run(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() { q.report(ctx) })
	both.Go(func() { q.poll(ctx) })
	both.Wait()
}

// report tells the leader what it does not know yet.
func (q *Queue) report(ctx context.Context) {
	tick := time.NewTicker(noticeEvery)
	defer tick.Stop()
	var followed string
	var fails failures
	for {
		select {
		case <-q.Changed():
		case <-tick.C:
		case <-fails.over():
		case <-ctx.Done():
			return
		}
		leader, ok := q.Current()
		if !ok || fails.waits() && leader.ID == followed {
			continue
		}
		if leader.ID != followed {
			followed = leader.ID
			q.polls.stop() // of the leader before
		}
		r := q.Report(leader.ID)
		if r.Number == 0 {
			continue
		}
		q.tell(ctx, leader, r, reportLimit, &fails)
	}
}

// poll waits for what the leader grants.
func (q *Queue) poll(ctx context.Context) {
	tick := time.NewTicker(noticeEvery)
	defer tick.Stop()
	var fails failures
	for ctx.Err() == nil {
		leader, ok := q.Current()
		if !ok || fails.waits() {
			select {
			case <-tick.C:
			case <-fails.over():
			case <-ctx.Done():
			}
			continue
		}
		polling := q.polls.context(ctx)
		if now, ok := q.Current(); ok && now == leader { // else nothing might end the call
			q.tell(polling, leader, q.Poll(leader.ID), pollLimit, &fails)
		}
	}
}

// tell brings a report to the leader, and its answer back.
func (q *Queue) tell(ctx context.Context, leader shard.Member, r shared.Report, limit time.Duration, fails *failures) {
	bounded, done := context.WithTimeout(ctx, limit)
	defer done()
	a, err := q.exchange(bounded, r)
	if err == nil {
		fails.end()
		q.Accept(r, a)
		return
	}
	if ctx.Err() != nil {
		return
	}
	q.Unanswered()
	if fails.add() {
		q.Log.Warn("the leader does not answer about the queue of runs: no run starts here until it does", "leader", leader.ID, "err", err)
	}
}

// Place implements query.Queue. Without the leader, what comes before the stack is not
// known.
func (q *Queue) Place(id string) (schedule.Place, bool) {
	known, waits := q.Client.Place(id)
	if waits {
		ctx, done := context.WithTimeout(context.Background(), shownLimit)
		defer done()
		if p, err := q.place(ctx, id); err == nil && p != nil {
			known = *p
		}
	}
	return known, waits
}

// Backlog implements query.Queue. It is empty without the leader.
func (q *Queue) Backlog() schedule.Backlog { return asked(q.backlog) }

// Line implements query.Queue. It is empty without the leader.
func (q *Queue) Line() schedule.Line { return asked(q.line) }

// asked is what the leader shows, and nothing if it does not answer.
func asked[Out any](of func(context.Context, struct{}) (Out, error)) (none Out) {
	ctx, done := context.WithTimeout(context.Background(), shownLimit)
	defer done()
	if out, err := of(ctx, struct{}{}); err == nil {
		return out
	}
	return none
}

// Measured is the queue, for metrics. It is false at a controller that does not lead: else
// each run would be counted twice.
func (q *Queue) Measured() (schedule.Backlog, bool) {
	if s := q.server.Load(); s != nil {
		return s.Queue().Backlog(), true
	}
	return schedule.Backlog{}, false
}

// failures are how often in a row a call failed, and the pause after it.
type failures struct {
	n     int
	until time.Time
}

// add counts one more, and reports whether it is the first.
func (f *failures) add() bool {
	f.n++
	f.until = time.Now().Add(min(firstPause<<min(f.n-1, 10), lastPause))
	return f.n == 1
}

func (f *failures) end() { *f = failures{} }

func (f *failures) waits() bool { return f.n > 0 && time.Now().Before(f.until) }

// over is when the pause is over; nil if there is none.
func (f *failures) over() <-chan time.Time {
	if !f.waits() {
		return nil
	}
	return time.After(time.Until(f.until))
}

// stopper ends the call that waits.
type stopper struct {
	mu     sync.Mutex
	cancel context.CancelFunc
}

func (s *stopper) context(ctx context.Context) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancel != nil {
		s.cancel() // it has ended
	}
	ctx, s.cancel = context.WithCancel(ctx)
	return ctx
}

func (s *stopper) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancel != nil {
		s.cancel()
	}
}
