// Package leader is what the leader of several controllers does for all of them: it has
// the queue of runs, the audit log, the notifications and the figures. Each controller
// asks for that through a Leader, and the leader itself does, too.
//
// It does not decide which controller leads: package kube/members knows that.
//
// Start reading at Leader.
package leader

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/controller/policies"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/notify"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/shard"
)

// Calls reach other controllers, and answer them: peers.Peers.
type Calls interface {
	Call(ctx context.Context, to shard.Member, name string, in, out any) error
	Handle(name string, f func(context.Context, json.RawMessage) (any, error))
}

// Config is what a Leader needs.
type Config struct {
	Me      string                      // the ID of this member
	Current func() (shard.Member, bool) // the leader, as the newest shard.Map has it
	Calls   Calls
	Now     func() time.Time
	Log     *slog.Logger

	// What this controller does for all once it leads.
	Record func(context.Context, audit.Entry) error
	Notify func(notify.Event)
	Ran    func(runner.Report)
	Hours  policies.Ledger
}

// Leader is the leader as one controller asks it, which may be the leader itself.
type Leader struct {
	Queue *Queue

	record    func(context.Context, audit.Entry) (struct{}, error)
	destroyed func(context.Context, string) ([]policies.Destroyed, error)
	begin     func(context.Context, policies.Beginning) (struct{}, error)
	notices   *relay[notice]
	runs      *relay[runner.Report]
}

// New returns the leader of a controller that does not lead yet.
func New(c Config) *Leader {
	q := newQueue(c)
	return &Leader{
		Queue: q,
		record: onLeader(c, "audit", func(ctx context.Context, e audit.Entry) (struct{}, error) {
			if !q.leads() {
				return struct{}{}, errNoLeader
			}
			return struct{}{}, c.Record(ctx, e)
		}),
		destroyed: onLeader(c, "destroyed", func(ctx context.Context, tenant string) ([]policies.Destroyed, error) {
			if !q.leads() {
				return nil, errNoLeader
			}
			return c.Hours.Destroyed(ctx, tenant)
		}),
		begin: onLeader(c, "begin-destroying", func(ctx context.Context, b policies.Beginning) (struct{}, error) {
			if !q.leads() {
				return struct{}{}, errNoLeader
			}
			return struct{}{}, c.Hours.Begin(ctx, b)
		}),
		notices: newRelay(c, "notifications", func(n notice) bool {
			if q.leads() {
				n.Event.Labels = n.Labels
				c.Notify(n.Event)
			}
			return q.leads()
		}),
		runs: newRelay(c, "ends-of-runs", func(r runner.Report) bool {
			if q.leads() {
				c.Ran(r)
			}
			return q.leads()
		}),
	}
}

// Run talks to the leader until ctx ends.
func (l *Leader) Run(ctx context.Context) error {
	var all sync.WaitGroup
	all.Go(func() { l.Queue.run(ctx) })
	all.Go(func() { l.notices.run(ctx) })
	all.Go(func() { l.runs.run(ctx) })
	all.Wait()
	return nil
}

// Record implements controller.AuditLog. It returns once the leader has stored the entry.
func (l *Leader) Record(ctx context.Context, e audit.Entry) error {
	ctx, done := context.WithTimeout(ctx, auditLimit)
	defer done()
	if _, err := l.record(ctx, e); err != nil {
		return fmt.Errorf("recording %s in the audit log of the leader: %w", e.What, err)
	}
	return nil
}

// Destroyed implements policies.Ledger: the leader knows what the stacks of all controllers destroyed.
func (l *Leader) Destroyed(ctx context.Context, tenant string) ([]policies.Destroyed, error) {
	ctx, done := context.WithTimeout(ctx, auditLimit)
	defer done()
	return l.destroyed(ctx, tenant)
}

// Begin implements policies.Ledger. It returns once the leader has stored that the run begins.
func (l *Leader) Begin(ctx context.Context, b policies.Beginning) error {
	ctx, done := context.WithTimeout(ctx, auditLimit)
	defer done()
	if _, err := l.begin(ctx, b); err != nil {
		return fmt.Errorf("recording %s in the audit log of the leader: %w", b.Entry.What, err)
	}
	return nil
}

// Notify has the leader send a notification. It never waits.
func (l *Leader) Notify(e notify.Event) { l.notices.add(notice{e, e.Labels}) }

// Ran has the leader count a run that ended. It never waits.
func (l *Leader) Ran(r runner.Report) {
	l.runs.add(runner.Report{ // no more than is counted
		Stack: r.Stack, Beside: r.Beside, Name: r.Name, ObjectKind: r.ObjectKind, ID: r.ID, Kind: r.Kind, Phase: r.Phase,
		Outcome: r.Outcome, Reason: r.Reason, Started: r.Started, Finished: r.Finished, Changes: r.Changes,
	})
}

var errNoLeader = fault.Wait(firstPause, access.ReasonNoLeader, errors.New("the controllers that share stacks have no leader for a moment: try again in a few seconds"))

// onLeader has the leader answer: this controller itself if it is the leader. The answer of
// one that does not lead is errNoLeader.
func onLeader[In, Out any](c Config, name string, answer func(context.Context, In) (Out, error)) func(context.Context, In) (Out, error) {
	c.Calls.Handle(name, func(ctx context.Context, data json.RawMessage) (any, error) {
		var in In
		if err := json.Unmarshal(data, &in); err != nil {
			return nil, fault.New(fault.Invalid, "ReplicaCall", fmt.Errorf("reading the call %s: %w", name, err))
		}
		return answer(ctx, in)
	})
	return func(ctx context.Context, in In) (out Out, err error) {
		leader, ok := c.Current()
		switch {
		case !ok:
			return out, errNoLeader
		case leader.ID == c.Me:
			return answer(ctx, in)
		default:
			err = c.Calls.Call(ctx, leader, name, in, &out)
			return out, err
		}
	}
}

// auditLimit is how long an action waits for the leader to record it.
const auditLimit = 10 * time.Second

// relayed bounds what waits for the leader, and relayEnd how long the end of this process
// waits for it.
const (
	relayed  = 1000
	relayEnd = 5 * time.Second
)

// relay brings what happened to the leader, in order and once. It keeps what waits in
// memory: what is there when the process ends is lost, and so is the newest if the leader
// is gone for too long.
type relay[T any] struct {
	what  string
	me    string
	log   *slog.Logger
	items chan T
	send  func(context.Context, numbered[T]) (struct{}, error)
}

// numbered is one item of a controller. A number that the leader had comes again after an
// answer was lost.
type numbered[T any] struct {
	Member string `json:"member"`
	Number uint64 `json:"number"`
	Item   T      `json:"item"`
}

// newRelay returns a relay to take, which reports whether this controller leads, and
// so has the item.
func newRelay[T any](c Config, what string, take func(T) bool) *relay[T] {
	var mu sync.Mutex
	had := map[string]uint64{}
	return &relay[T]{what: what, me: c.Me, log: c.Log, items: make(chan T, relayed), send: onLeader(c, what, func(_ context.Context, n numbered[T]) (struct{}, error) {
		mu.Lock()
		defer mu.Unlock()
		if n.Number > had[n.Member] {
			if !take(n.Item) {
				return struct{}{}, errNoLeader
			}
			had[n.Member] = n.Number
		}
		return struct{}{}, nil
	})}
}

// add never waits.
func (r *relay[T]) add(item T) {
	select {
	case r.items <- item:
	default:
		r.log.Error("the leader does not answer: lost", "what", r.what)
	}
}

// run brings the items to the leader until ctx ends, and then those that are left, as far
// as that takes no longer than relayEnd.
func (r *relay[T]) run(ctx context.Context) {
	last, done := context.WithCancel(context.WithoutCancel(ctx))
	defer done()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(relayEnd, done) })()
	for number := uint64(1); ; number++ {
		item, ok := r.next(ctx)
		if !ok {
			return
		}
		if !r.bring(last, numbered[T]{r.me, number, item}) {
			r.log.Error("this controller ends before the leader answers: lost", "what", r.what, "lost", 1+len(r.items))
			return
		}
	}
}

// next is the next item; false if there is none when ctx has ended.
func (r *relay[T]) next(ctx context.Context) (item T, ok bool) {
	select {
	case item = <-r.items:
		return item, true
	default:
	}
	select {
	case item = <-r.items:
		return item, true
	case <-ctx.Done():
		return item, false
	}
}

// bring tries again until the leader has an item; false if ctx ended first.
func (r *relay[T]) bring(ctx context.Context, n numbered[T]) bool {
	var fails failures
	for {
		bounded, done := context.WithTimeout(ctx, reportLimit)
		_, err := r.send(bounded, n)
		done()
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		if fails.add() {
			r.log.Warn("the leader does not answer: tried again", "what", r.what, "err", err)
		}
		select {
		case <-time.After(time.Until(fails.until)): // at once if the pause is over by now
		case <-ctx.Done():
		}
	}
}

// notice is a notification on its way to the leader.
type notice struct {
	Event  notify.Event      `json:"event"`
	Labels map[string]string `json:"labels,omitempty"` // an Event is written without them
}
