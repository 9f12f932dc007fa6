// Package worker compiles and evaluates policies in processes of their own. The library
// has no bound of time for compiling, and none of memory: one call of a function cannot be
// ended, and a text that is nested deep enough ends the whole process. A worker is ended
// instead, and the controller goes on. It has no network, no files and no environment.
//
//	Pool ── request, a line of JSON ──▶ standard input   terrier evaluate-policies, in a sandbox
//	     ◀── response ───────────────── standard output   rego.Compile, document.Make, Set.Evaluate
//
// It decides nothing, and reads no policies: package rego does. Start reading at Pool.
package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/policy/document"
	"github.com/terrier-iac/terrier/internal/review/rego"
)

// Bounds of time. An evaluation ends itself before its worker is ended, unless it is
// within one call of a function.
const (
	compileMost  = 10 * time.Second
	evaluateMost = rego.Deadline + 2*time.Second
	inputMost    = 10 * time.Second
	placeMost    = 30 * time.Second // that a plan waits for a worker
	idleMost     = time.Minute      // after which a worker ends that has nothing to do
	againAfter   = time.Minute      // when a policy is asked again that ended its worker
	endedKept    = 1000             // policies and namespaces for which that is known
	workersMost  = 4                // at once, each for compiling and for evaluating
)

// Pool has workers, and starts them when they are needed. New makes one.
type Pool struct {
	scratch   string // for their empty work directories
	memory    int64  // bytes that the objects of one worker may need
	compiling lane
	judging   lane
	most      times
	ended     cache.Map[string, error] // by policy and namespace: why it ended its worker
}

// times are how long a worker may take before it is ended, and how long a plan waits for one.
type times struct{ compile, evaluate, place time.Duration }

// lane is a number of places for workers. Policies are compiled on one lane and evaluated on
// another, so that neither waits for the other.
type lane struct {
	places chan struct{}

	mu     sync.Mutex
	idle   []*process
	closed bool
}

// Bounds of the memory of one worker: a share of what there is, so that no worker ends the
// controller with it. An evaluation is ended in good order by package rego before.
const (
	memoryShare = 8
	memoryLeast = 192 << 20
	memoryMost  = 3 << 29
)

// New returns a pool without workers. Memory is what the machine has, or the control group of
// this process, in bytes.
func New(scratch string, memory int64, now func() time.Time) *Pool {
	n := min(workersMost, max(1, runtime.GOMAXPROCS(0)))
	return &Pool{
		scratch: scratch, memory: min(memoryMost, max(memoryLeast, memory/memoryShare)),
		compiling: lane{places: make(chan struct{}, n)}, judging: lane{places: make(chan struct{}, n)},
		most: times{compileMost, evaluateMost, placeMost}, ended: cache.Map[string, error]{Size: endedKept, TTL: againAfter, Now: now},
	}
}

// Run ends the workers when ctx ends.
func (p *Pool) Run(ctx context.Context) error {
	<-ctx.Done()
	return errors.Join(p.compiling.close(), p.judging.close())
}

// Compile makes sure that a source compiles, and that it takes the parameters. Its error is
// Invalid and says in which file and line something is wrong, or which parameter.
// Any other error may pass: the time or the memory did not suffice, or no worker could be
// started.
func (p *Pool) Compile(ctx context.Context, s rego.Source, parameters any) error {
	return p.with(ctx, &p.compiling, func(w *process) error {
		err, broken := p.compile(ctx, w, source{s.Digest(), s, parameters})
		return keep(err, broken)
	})
}

func (p *Pool) compile(ctx context.Context, w *process, s source) (err error, broken bool) {
	out, err := w.exchange(ctx, p.most.compile, request{Compile: &s})
	if err != nil {
		return fmt.Errorf("compiling the policy: %w", err), true
	}
	return out.failure(), false
}

// Member is one of the policies that are asked about a plan.
type Member struct {
	Policy     string // ClusterPolicy/production
	Source     rego.Source
	Digest     string // of the source
	Parameters any
	DryRun     bool             // its findings are shown, and change nothing
	OnError    policy.Effect    // if it cannot be evaluated: Hold, unless it is Deny
	Approval   *policy.Approval // of holds that do not say who approves
}

// Asked is a plan that policies are asked about.
type Asked struct {
	Document []byte // of the plan, masked
	Facts    document.Facts
	Object   map[string]any // of the stack
	Now      time.Time
}

// Findings asks every policy about a plan. What cannot be evaluated is a finding that holds
// the plan, or denies it. The order is that of policy.Sort. There is an error only if no
// worker was free within half a minute, or before ctx ended: then no policy was asked.
func (p *Pool) Findings(ctx context.Context, a Asked, members []Member) ([]policy.Finding, error) {
	c := &conversation{Pool: p, ctx: ctx, asked: a}
	defer c.end()
	var all []policy.Finding
	for _, m := range members {
		found, err := c.of(m)
		if err != nil {
			return nil, err
		}
		all = append(all, m.finished(found)...)
	}
	policy.Sort(all)
	return all, nil
}

// Early are the findings that policies have before there is a plan, as Set.Early. It says
// nothing of a policy that cannot be evaluated within the time of ctx.
func (p *Pool) Early(ctx context.Context, f document.Facts, members []Member) []policy.Finding {
	var all []policy.Finding
	for _, m := range members {
		if m.Source.Format != "" && m.Source.Format != rego.Terrier {
			continue // they see only the plan
		}
		key := m.endedAs(f)
		if _, ended := p.ended.Get(key); ended {
			continue
		}
		r := request{Early: &early{m.Digest, m.Policy, f, m.Parameters}}
		err := p.with(ctx, &p.judging, func(w *process) error {
			out, err, broken := p.known(ctx, w, m, r)
			for _, found := range out.Findings {
				found.DryRun = m.DryRun
				all = append(all, found)
			}
			return keep(err, broken)
		})
		if err != nil && ctx.Err() != nil {
			break // the others would be later still
		}
		if _, broken := errors.AsType[spoilt](err); broken {
			p.ended.Put(key, err)
		}
	}
	policy.Sort(all)
	return all
}

// Broken are the findings of policies that cannot be asked.
func Broken(members []Member, err error) []policy.Finding {
	var all []policy.Finding
	for _, m := range members {
		all = append(all, m.finished(m.failed(err))...)
	}
	policy.Sort(all)
	return all
}

func (m Member) finished(found []policy.Finding) []policy.Finding {
	policy.OnError(m.OnError, found)
	for i := range found {
		found[i].DryRun = m.DryRun
		if found[i].Effect == policy.Hold && found[i].Approval == nil {
			found[i].Approval = m.Approval
		}
	}
	return found
}

func (m Member) failed(err error) []policy.Finding {
	return []policy.Finding{rego.Unable(m.Policy, err)}
}

// endedAs is how Pool.ended calls the policy where a stack is.
func (m Member) endedAs(f document.Facts) string { return m.Digest + " " + f.Stack.Namespace }

// conversation is one plan and a worker that knows it.
type conversation struct {
	*Pool
	ctx   context.Context // of the call, whose length the conversation has
	asked Asked
	w     *process // nil if there is none
	place bool     // on the lane
	wrong error    // of the input
}

// of asks one policy. The error is that of Findings. A worker that did other things before
// may have been broken by those: the policy is asked once more then, of a new one, and only
// what breaks that one is to blame.
func (c *conversation) of(m Member) ([]policy.Finding, error) {
	key := m.endedAs(c.asked.Facts)
	if err, ok := c.ended.Get(key); ok {
		return m.failed(fmt.Errorf("%w; it is asked again after a minute", err)), nil
	}
	if err := c.enter(); err != nil {
		return nil, err
	}
	for alone := false; ; alone = true {
		if err := c.begin(alone); err != nil {
			return m.failed(err), nil
		}
		used := c.w.used
		found, err, broken := c.evaluate(m)
		if !broken {
			c.w.used = true
			if err != nil {
				return m.failed(err), nil
			}
			return found, nil
		}
		c.drop()
		if c.ctx.Err() != nil {
			return m.failed(err), nil
		}
		if !used {
			c.ended.Put(key, err)
			return m.failed(err), nil
		}
	}
}

// enter waits for a place on the lane.
func (c *conversation) enter() error {
	if c.place {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(c.ctx, c.most.place, fmt.Errorf("no process that evaluates policies was free within %v", c.most.place))
	defer cancel()
	if err := c.judging.enter(ctx); err != nil {
		return err
	}
	c.place = true
	return nil
}

// begin makes sure that there is a worker that knows the plan: a new one if alone is set.
func (c *conversation) begin(alone bool) error {
	if c.w != nil || c.wrong != nil {
		return c.wrong
	}
	if !json.Valid(c.asked.Document) {
		c.wrong = errors.New("reading the document of the plan: it is no JSON")
		return c.wrong
	}
	for ; ; alone = true {
		w, err := c.take(&c.judging, alone)
		if err != nil {
			return err
		}
		out, err := w.exchange(c.ctx, inputMost, request{Input: &input{c.asked.Document, c.asked.Facts, c.asked.Object, c.asked.Now}})
		c.w = w
		if err == nil {
			c.wrong = out.failure()
			return c.wrong
		}
		c.drop()
		if !w.used || c.ctx.Err() != nil {
			c.wrong = fmt.Errorf("reading the plan: %w", err)
			return c.wrong
		}
	}
}

// evaluate asks one policy, which is compiled before if the worker does not know it. Broken
// says that the worker is of no more use.
func (c *conversation) evaluate(m Member) (found []policy.Finding, err error, broken bool) {
	out, err, broken := c.known(c.ctx, c.w, m, request{Evaluate: &evaluate{m.Digest, m.Policy, m.Parameters}})
	return out.Findings, err, broken
}

// known makes a request about a policy, which is compiled before if the worker does not know
// it. Broken says that the worker is of no more use.
func (p *Pool) known(ctx context.Context, w *process, m Member, r request) (out response, err error, broken bool) {
	out, err = w.exchange(ctx, p.most.evaluate, r)
	if err == nil && out.Unknown {
		if err, broken := p.compile(ctx, w, source{m.Digest, m.Source, nil}); err != nil {
			return response{}, err, broken
		}
		out, err = w.exchange(ctx, p.most.evaluate, r)
	}
	if err == nil && out.Unknown {
		err = errors.New("the process that evaluates policies lost it")
	}
	if err != nil {
		return response{}, err, true
	}
	return out, out.failure(), false
}

// drop ends the worker.
func (c *conversation) drop() {
	if c.w != nil {
		_ = c.w.end() // killed: what is left of it is its empty directory
		c.w = nil
	}
}

func (c *conversation) end() {
	if c.w != nil {
		c.judging.put(c.w)
	}
	if c.place {
		<-c.judging.places
	}
}

// spoilt is an error after which a worker is of no more use.
type spoilt struct{ error }

func (s spoilt) Unwrap() error { return s.error }

func keep(err error, broken bool) error {
	if err != nil && broken {
		return spoilt{err}
	}
	return err
}

// with has do use a worker of a lane, in its turn. Where it breaks one that did other things
// before, do is called once more with a new one.
func (p *Pool) with(ctx context.Context, l *lane, do func(*process) error) error {
	if err := l.enter(ctx); err != nil {
		return err
	}
	defer func() { <-l.places }()
	for alone := false; ; alone = true {
		w, err := p.take(l, alone)
		if err != nil {
			return err
		}
		used := w.used
		err = do(w)
		if _, is := errors.AsType[spoilt](err); !is {
			w.used = true
			l.put(w)
			return err
		}
		_ = w.end() // killed: what is left of it is its empty directory
		if !used || ctx.Err() != nil {
			return err
		}
	}
}

func (l *lane) enter(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case l.places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// take returns a worker that is idle, or else a new one; a new one in any case if alone is
// set. The caller has a place.
func (p *Pool) take(l *lane, alone bool) (*process, error) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil, errors.New("the controller ends")
	}
	var w *process
	if n := len(l.idle); n > 0 {
		w, l.idle = l.idle[n-1], l.idle[:n-1]
	}
	l.mu.Unlock()
	if w == nil || !w.idle.Stop() { // that one just ended
		return start(p.scratch, p.memory)
	}
	if !alone {
		return w, nil
	}
	_ = w.end() // there are no more workers than places
	return start(p.scratch, p.memory)
}

// put keeps a worker for the next one, for some time.
func (l *lane) put(w *process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = w.end() // killed: what is left of it is its empty directory
		return
	}
	w.idle = time.AfterFunc(idleMost, func() {
		l.mu.Lock()
		for i, one := range l.idle {
			if one == w {
				l.idle = append(l.idle[:i], l.idle[i+1:]...)
				break
			}
		}
		l.mu.Unlock()
		_ = w.end() // killed: what is left of it is its empty directory
	})
	l.idle = append(l.idle, w)
}

// close ends the workers that are idle, and those in use once they are put back.
func (l *lane) close() error {
	l.mu.Lock()
	idle := l.idle
	l.idle, l.closed = nil, true
	l.mu.Unlock()
	var errs []error
	for _, w := range idle {
		if w.idle.Stop() {
			errs = append(errs, w.end())
		}
	}
	return errors.Join(errs...)
}
