package review

import (
	"context"
	"slices"
	"sync"
)

// How many questions are asked at once, and of one namespace. A webhook that
// hangs takes a place for as long as its deadline lasts, so no namespace has more
// than a few. Questions for policies alone have as many places of their own, which no
// webhook takes; a namespace has a few more of those, since a program ends soon.
const (
	questionsAtOnce       = 16
	questionsPerNamespace = 2
	insidePerNamespace    = 4
)

// Pool has reviewers asked beside the reconciles, which must not wait for them.
// It holds at most one question of each stack, and its answer until the stack
// has taken it into its status. What is in it is lost when the process ends, and
// asked again by the next.
type Pool struct {
	ask  func(context.Context, Question) Reply // ends when its context does
	more chan struct{}                         // holds one: there may be something to begin

	mu      sync.Mutex
	stacks  map[string]*inquiry // by stack
	waiting []*inquiry          // in the order of asking
	busy    map[crowd]int
	running map[bool]int // by Question.Inside
}

// crowd are the questions that share the places of a namespace.
type crowd struct {
	namespace string
	inside    bool
}

func (q Question) crowd() crowd { return crowd{q.Namespace, q.Inside} }

// places is how many questions of a crowd are asked at once.
func (c crowd) places() int {
	if c.inside {
		return insidePerNamespace
	}
	return questionsPerNamespace
}

// inquiry is one question on its way.
type inquiry struct {
	Question
	cancel context.CancelFunc // of one that is being asked
	reply  *Reply             // of one that was
}

// NewPool returns a pool that asks with ask: Ask, with the time.
func NewPool(ask func(context.Context, Question) Reply) *Pool {
	return &Pool{ask: ask, more: make(chan struct{}, 1), stacks: map[string]*inquiry{}, busy: map[crowd]int{}, running: map[bool]int{}}
}

// Asked reports whether a question is being asked, or was.
func (p *Pool) Asked(q Question) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := p.stacks[q.Stack]
	return i != nil && i.ID == q.ID
}

// Ask has a question asked, once. The stack is woken by the answer. Another question
// of the same stack is given up.
func (p *Pool) Ask(q Question) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := p.stacks[q.Stack]; i != nil && i.ID == q.ID {
		return
	}
	p.forget(q.Stack)
	i := &inquiry{Question: q}
	p.stacks[q.Stack] = i
	p.waiting = append(p.waiting, i)
	p.signal()
}

// Answer returns the answer to a question, false if there is none yet.
func (p *Pool) Answer(q Question) (Reply, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := p.stacks[q.Stack]; i != nil && i.ID == q.ID && i.reply != nil {
		return *i.reply, true
	}
	return Reply{}, false
}

// Drop forgets what was asked for a stack that does not want to know.
func (p *Pool) Drop(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(id)
}

func (p *Pool) forget(id string) {
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
func (p *Pool) Run(ctx context.Context) error {
	var asking sync.WaitGroup
	defer asking.Wait()
	for {
		for i, each := p.begin(ctx); i != nil; i, each = p.begin(ctx) {
			asking.Go(func() {
				r := p.ask(each, i.Question)
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

// begin takes the next question: of the namespaces with room the least busy
// one, there the longest waiting.
func (p *Pool) begin(ctx context.Context) (*inquiry, context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	best, least := -1, 0
	for n, i := range p.waiting {
		busy := p.busy[i.crowd()]
		if p.running[i.Inside] < questionsAtOnce && busy < i.crowd().places() && (best < 0 || busy < least) {
			best, least = n, busy
		}
	}
	if best < 0 {
		return nil, nil
	}
	i := p.waiting[best]
	p.waiting = slices.Delete(p.waiting, best, best+1)
	p.busy[i.crowd()]++
	p.running[i.Inside]++
	ctx, i.cancel = context.WithCancel(ctx)
	return i, ctx
}

// end keeps an answer, unless the stack does not want it any more. One that was
// cut short by the end of the process is none. A question that no reviewer was asked in
// time waits again, behind the others.
func (p *Pool) end(i *inquiry, r Reply, whole bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i.cancel()
	p.running[i.Inside]--
	if p.busy[i.crowd()]--; p.busy[i.crowd()] == 0 {
		delete(p.busy, i.crowd())
	}
	p.signal()
	if p.stacks[i.Stack] != i || !whole {
		return
	}
	if r.Unasked {
		i.cancel = nil
		p.waiting = append(p.waiting, i)
		return
	}
	wake := i.Wake
	i.Question = Question{Stack: i.Stack, ID: i.ID, Namespace: i.Namespace} // what was sent may be large
	i.reply = &r
	wake()
}

func (p *Pool) signal() {
	select {
	case p.more <- struct{}{}:
	default:
	}
}
