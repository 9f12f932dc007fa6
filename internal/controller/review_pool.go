package controller

import (
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/internal/stack"
)

// How many stacks' webhooks are asked at once, and of one namespace. A webhook
// that hangs takes a place for as long as its deadline lasts, so no namespace
// has more than a few.
const (
	reviewsAtOnce       = 16
	reviewsPerNamespace = 2
)

// reviewPool has webhooks asked beside the reconciles, which must not wait for
// them. It holds at most one question of each stack, and its answer until the
// stack has taken it into its memory. What is in it is lost when the process
// ends, and asked again by the next.
type reviewPool struct {
	ask  func(context.Context, question) reply // ends when its context does
	wake func(types.NamespacedName)            // must not call back into the pool
	more chan struct{}                         // holds one: there may be something to begin

	mu      sync.Mutex
	stacks  map[string]*inquiry // by stack
	waiting []*inquiry          // in the order of asking
	busy    map[string]int      // by namespace
	working int
}

// reply is what came of a question.
type reply struct {
	verdict stack.Verdict
	lost    error // the plan is not among the records any more
}

// inquiry is one question on its way.
type inquiry struct {
	question
	cancel context.CancelFunc // of one that is being asked
	reply  *reply             // of one that was
}

func newReviewPool(ask func(context.Context, question) reply, wake func(types.NamespacedName)) *reviewPool {
	return &reviewPool{ask: ask, wake: wake, more: make(chan struct{}, 1), stacks: map[string]*inquiry{}, busy: map[string]int{}}
}

// asked reports whether a question is being asked, or was.
func (p *reviewPool) asked(q question) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := p.stacks[q.stack]
	return i != nil && i.id == q.id
}

// answer returns the answer to a question. If there is none yet it makes sure
// that it is asked, and the stack is woken by the answer. Another question of
// the same stack is given up.
func (p *reviewPool) answer(q question) (reply, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := p.stacks[q.stack]; i != nil && i.id == q.id {
		if i.reply != nil {
			return *i.reply, true
		}
		return reply{}, false
	}
	p.forget(q.stack)
	i := &inquiry{question: q}
	p.stacks[q.stack] = i
	p.waiting = append(p.waiting, i)
	p.signal()
	return reply{}, false
}

// drop forgets what was asked for a stack that does not want to know.
func (p *reviewPool) drop(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(id)
}

func (p *reviewPool) forget(id string) {
	i := p.stacks[id]
	if i == nil {
		return
	}
	delete(p.stacks, id)
	p.waiting = slices.DeleteFunc(p.waiting, func(w *inquiry) bool { return w == i })
	if i.cancel != nil {
		i.cancel()
	}
}

// Run asks what there is to ask until ctx ends, and then waits for those that
// are being asked, whose contexts end with it.
func (p *reviewPool) Run(ctx context.Context) error {
	var asking sync.WaitGroup
	defer asking.Wait()
	for {
		for i, each := p.begin(ctx); i != nil; i, each = p.begin(ctx) {
			asking.Go(func() {
				r := p.ask(each, i.question)
				p.end(i, r, ctx.Err() == nil)
			})
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.more:
		}
	}
}

// begin takes whose turn it is: of the namespaces with room the least busy
// one, there the longest waiting.
func (p *reviewPool) begin(ctx context.Context) (*inquiry, context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.working >= reviewsAtOnce {
		return nil, nil
	}
	best := -1
	for n, i := range p.waiting {
		busy := p.busy[i.key.Namespace]
		if busy < reviewsPerNamespace && (best < 0 || busy < p.busy[p.waiting[best].key.Namespace]) {
			best = n
		}
	}
	if best < 0 {
		return nil, nil
	}
	i := p.waiting[best]
	p.waiting = slices.Delete(p.waiting, best, best+1)
	p.busy[i.key.Namespace]++
	p.working++
	ctx, i.cancel = context.WithCancel(ctx)
	return i, ctx
}

// end keeps an answer, unless nobody wants it any more. One that was cut short
// by the end of everything is none.
func (p *reviewPool) end(i *inquiry, r reply, whole bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i.cancel()
	p.working--
	if p.busy[i.key.Namespace]--; p.busy[i.key.Namespace] == 0 {
		delete(p.busy, i.key.Namespace)
	}
	p.signal()
	if p.stacks[i.stack] != i || !whole {
		return
	}
	i.question = question{stack: i.stack, id: i.id, key: i.key} // what was sent may be large
	i.reply = &r
	p.wake(i.key)
}

func (p *reviewPool) signal() {
	select {
	case p.more <- struct{}{}:
	default:
	}
}
