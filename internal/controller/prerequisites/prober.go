package prerequisites

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/prerequisite"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Bounds of the questions to other systems. One that swallows packets takes a place until the
// deadline, so no namespace has more than a few, and of those that wait none has all.
const (
	questionsAtOnce         = 32
	questionsPerNamespace   = 4
	questionsWaiting        = 512 // of one namespace, besides those of stacks whose turn has come
	answersKept             = 1 << 16
	answersKeptPerNamespace = 1 << 12

	// How long an answer counts. A system that answered may be gone a moment later, whatever
	// is asked; one that did not is asked again with each reconcile.
	metFor   = 30 * time.Second
	unmetFor = 4 * time.Second
)

// Prober asks other systems beside the reconciles, which must not wait for them. The stacks of
// a namespace share the answers, and namespaces take turns. What it knows is lost when the
// process ends, and asked again by the next.
//
//	Ask ─────▶ waiting ──▶ being asked ──▶ known for a while, and the stacks are woken
//	Confirm ─▶ urgent ────▲
type Prober struct {
	ask  func(context.Context, prerequisite.Prerequisite) prerequisite.Result // ends with its context
	now  func() time.Time
	more chan struct{} // holds one: there may be something to begin

	known cache.Map[questionKey, answer]

	mu      sync.Mutex
	asked   map[questionKey]*question // that wait or are being asked
	lines   map[string]*line          // of the namespaces that have any
	running int
	turns   uint64 // counts lines and questions that began
}

// questionKey is what is asked for a namespace.
type questionKey struct{ namespace, digest string }

// answer is what was known at a time.
type answer struct {
	prerequisite.Result
	at time.Time
}

// question is one system that is to be asked, and the stacks that want to know, by their IDs.
type question struct {
	key   questionKey
	of    prerequisite.Prerequisite
	wakes map[string]func()
}

// line has the questions of one namespace.
type line struct {
	urgent  []*question // of stacks whose turn has come: they hold up a run
	waiting []*question
	busy    int    // that are being asked
	served  uint64 // the turn at which one began last, or the line did
}

// first is the question of the line that begins next; nil if none waits.
func (l *line) first() *question {
	for _, of := range [][]*question{l.urgent, l.waiting} {
		if len(of) > 0 {
			return of[0]
		}
	}
	return nil
}

// remove takes a question that waits out of the line.
func (l *line) remove(q *question) {
	same := func(other *question) bool { return other == q }
	l.urgent, l.waiting = slices.DeleteFunc(l.urgent, same), slices.DeleteFunc(l.waiting, same)
}

// NewProber returns a prober of systems that are asked with ask, as Systems.Ask.
func NewProber(ask func(context.Context, prerequisite.Prerequisite) prerequisite.Result, now func() time.Time) *Prober {
	p := &Prober{ask: ask, now: now, more: make(chan struct{}, 1), asked: map[questionKey]*question{}, lines: map[string]*line{}}
	p.known.Size, p.known.Weight, p.known.GroupWeight = answersKept, answersKept, answersKeptPerNamespace
	p.known.Weigh = func(questionKey, answer) int { return 1 }
	p.known.Group = func(k questionKey) string { return k.namespace }
	return p
}

// keyOf is the question of a stack about another system.
func keyOf(s Stack, of prerequisite.Prerequisite) questionKey {
	return questionKey{s.Namespace, stack.Digest([]any{of.HTTP, of.TCP})}
}

// lastAnswer is what is known, and how old it is.
func (p *Prober) lastAnswer(key questionKey) (last answer, age time.Duration, known bool) {
	last, known = p.known.Get(key)
	age = p.now().Sub(last.at)
	return last, age, known && age >= 0 // a clock that was set back makes no answer young
}

// Ask returns what is known of a prerequisite, and has the system asked if that is too old.
func (p *Prober) Ask(s Stack, of prerequisite.Prerequisite) prerequisite.Result {
	if p == nil {
		return is(prerequisite.Denied, "this controller asks no other systems: remove http and tcp from the annotation, or ask the operator")
	}
	key := keyOf(s, of)
	last, age, known := p.lastAnswer(key)
	if known && (age < unmetFor || last.OK() && age < metFor) {
		return last.Result
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	waits := p.wait(s, key, of)
	switch {
	case known:
		last.Stale = true
		return last.Result
	case !waits:
		return is(prerequisite.TooMany, "the stacks of the namespace %s wait for the answers of %d other systems already, and this one is asked once fewer wait", s.Namespace, questionsWaiting)
	}
	return is(prerequisite.Checking, "it is being asked")
}

// Confirm has the prerequisites of a stack that begins a run asked once more, before others.
// It returns the names of those whose answer is still to come. An answer counts if it is not
// old, or was given since the turn of the stack had come; zero if that is now.
func (p *Prober) Confirm(s Stack, all []prerequisite.Prerequisite, since time.Time) (asked []string) {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, of := range all {
		if of.HTTP == nil && of.TCP == nil {
			continue
		}
		key := keyOf(s, of)
		last, age, known := p.lastAnswer(key)
		if known && last.OK() && (age < metFor || !since.IsZero() && !last.at.Before(since)) {
			continue
		}
		p.hasten(s, key, of)
		asked = append(asked, of.Name)
	}
	return asked
}

// wait puts a question into the line of its namespace, unless that is full.
func (p *Prober) wait(s Stack, key questionKey, of prerequisite.Prerequisite) bool {
	if q := p.asked[key]; q != nil {
		q.wakes[s.ID] = s.Wake
		return true
	}
	l := p.line(key.namespace)
	if len(l.waiting) >= questionsWaiting {
		return false
	}
	l.waiting = append(l.waiting, p.question(s, key, of))
	return true
}

// hasten puts a question before all others of its namespace, unless it is being asked.
func (p *Prober) hasten(s Stack, key questionKey, of prerequisite.Prerequisite) {
	l, q := p.line(key.namespace), p.asked[key]
	switch {
	case q == nil:
		l.urgent = append(l.urgent, p.question(s, key, of))
		return
	case slices.Contains(l.waiting, q):
		l.remove(q)
		l.urgent = append(l.urgent, q)
	}
	q.wakes[s.ID] = s.Wake
}

func (p *Prober) question(s Stack, key questionKey, of prerequisite.Prerequisite) *question {
	q := &question{key, of, map[string]func(){s.ID: s.Wake}}
	p.asked[key] = q
	p.signal()
	return q
}

func (p *Prober) line(namespace string) *line {
	l := p.lines[namespace]
	if l == nil {
		p.turns++
		l = &line{served: p.turns} // behind those that wait
		p.lines[namespace] = l
	}
	return l
}

func (p *Prober) signal() {
	select {
	case p.more <- struct{}{}:
	default:
	}
}

// Run asks what there is to ask until ctx ends, and then waits for the questions that are
// being asked, whose contexts end with it.
func (p *Prober) Run(ctx context.Context) error {
	var asking sync.WaitGroup
	defer asking.Wait()
	for {
		for q := p.begin(); q != nil; q = p.begin() {
			asking.Go(func() {
				r := p.ask(ctx, q.of)
				p.end(q, r, ctx.Err() == nil)
			})
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.more:
		}
	}
}

// begin takes the next question; nil if none may begin. What holds up a run comes first. Of
// the namespaces that have room, the least busy is next, and among those the one whose last
// question began first: a namespace whose systems are silent keeps no other waiting for more
// than its own places.
func (p *Prober) begin() *question {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running >= questionsAtOnce {
		return nil
	}
	var best *line
	for _, l := range p.lines {
		if l.first() != nil && l.busy < questionsPerNamespace && (best == nil || l.before(best)) {
			best = l
		}
	}
	if best == nil {
		return nil
	}
	q := best.first()
	best.remove(q)
	p.turns++
	p.running++
	best.busy, best.served = best.busy+1, p.turns
	return q
}

// before reports whether a question of l begins before one of other.
func (l *line) before(other *line) bool {
	switch urgent := len(l.urgent) > 0; {
	case urgent != (len(other.urgent) > 0):
		return urgent
	case l.busy != other.busy:
		return l.busy < other.busy
	}
	return l.served < other.served
}

// end keeps an answer, and wakes the stacks that want it; one that was cut short by the end of
// the process is none.
func (p *Prober) end(q *question, r prerequisite.Result, whole bool) {
	p.mu.Lock()
	p.running--
	l := p.lines[q.key.namespace]
	if l.busy--; l.busy == 0 && l.first() == nil {
		delete(p.lines, q.key.namespace)
	}
	delete(p.asked, q.key)
	if whole {
		p.known.Put(q.key, answer{r, p.now()})
	}
	p.signal()
	p.mu.Unlock()
	if !whole {
		return
	}
	for _, wake := range q.wakes {
		wake()
	}
}

// shownAsked is how many names of prerequisites a message has.
const shownAsked = 4

// Confirming says that a run waits for its prerequisites to be confirmed.
func Confirming(names []string) string {
	text := strings.Join(names[:min(len(names), shownAsked)], ", ")
	if len(names) > shownAsked {
		text += " and others"
	}
	return "Its turn has come, and its prerequisites are asked once more: " + text
}
