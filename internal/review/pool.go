package review

import (
	"context"
	"sync"

	"github.com/terrier-iac/terrier/internal/share"
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

	inside, outside *share.Places[*inquiry] // see Question.Inside

	mu     sync.Mutex
	stacks map[string]*inquiry // by stack
}

// inquiry is one question on its way.
type inquiry struct {
	Question
	cancel context.CancelFunc // of one that is being asked
	reply  *Reply             // of one that was
}

// NewPool returns a pool that asks with ask: Ask, with the time.
func NewPool(ask func(context.Context, Question) Reply) *Pool {
	return &Pool{
		ask: ask, more: make(chan struct{}, 1), stacks: map[string]*inquiry{},
		inside:  share.New[*inquiry](share.Bounds{All: questionsAtOnce, Most: insidePerNamespace}),
		outside: share.New[*inquiry](share.Bounds{All: questionsAtOnce, Most: questionsPerNamespace}),
	}
}

// places are those for a question.
func (p *Pool) places(q Question) *share.Places[*inquiry] {
	if q.Inside {
		return p.inside
	}
	return p.outside
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
	p.places(q).Wait(q.Namespace, i)
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
	p.places(i.Question).Withdraw(i)
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

// begin takes the next question; nil if none may begin.
func (p *Pool) begin(ctx context.Context) (*inquiry, context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i, ok := p.outside.Next(nil)
	if !ok {
		i, ok = p.inside.Next(nil)
	}
	if !ok {
		return nil, nil
	}
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
	p.places(i.Question).End(i.Namespace)
	p.signal()
	if p.stacks[i.Stack] != i || !whole {
		return
	}
	if r.Unasked {
		i.cancel = nil
		p.places(i.Question).Wait(i.Namespace, i)
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
