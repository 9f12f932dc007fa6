package schedule

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"
)

// Draw is what one drift check takes of one budget.
type Draw struct {
	Of     string        // the budget, as users read it; one budget has one name
	Checks int           // drift checks that it has in an hour; 0 if it does not count them
	CPU    time.Duration // that it has in an hour; 0 if it does not count it

	// MaxDelay bounds how long the budget delays a check: it counts as one that has a check for each
	// of its stacks in that time, if it has less. 0 if nothing bounds the delay.
	MaxDelay time.Duration
}

// lasts is how long the next check has to wait after one that took some CPU, if this process has
// a share of the budget.
func (d Draw) lasts(took time.Duration, share float64) time.Duration {
	var hours float64
	if d.Checks > 0 {
		hours = 1 / float64(d.Checks)
	}
	if d.CPU > 0 {
		hours = max(hours, float64(max(0, took))/float64(d.CPU))
	}
	return time.Duration(math.Round(min(hours/share, longestDraw.Hours()) * float64(time.Hour)))
}

// longestDraw bounds how long one check uses a budget up.
const longestDraw = 24 * time.Hour

// Wish is a drift check that is due.
type Wish struct {
	Due   time.Time     // since when; the zero value of a stack that was never checked
	Pause time.Duration // after which it was due: the stack with the shorter one is the more urgent
	Takes time.Duration // CPU that it is expected to take: what the last one took; 0 if unknown
	Share float64       // of the budgets that this process has, above 0 and up to 1
	Draws []Draw        // of different budgets
}

// unknownTakes is what a check is expected to take of which nothing is known. With nothing, all
// checks of a budget of CPU would begin at once after an upgrade.
const unknownTakes = time.Second

// Delay is how long a check waits for a budget. The zero value says that it begins now.
type Delay struct {
	Ask      time.Time // when the stack asks again
	Expected time.Time // when the check is expected to begin; others that are more urgent may come in between
	Latest   time.Time // the check begins by then; zero if nothing bounds the delay
	Of       string    // the budget that it waits for
	Stacks   int       // that share this budget
	Raised   bool      // the budget is too small for them, and counts as one that is not
}

// Budgets spread drift checks over the hour. A check uses up each of its budgets for as long as
// its part of the hour is: with 60 checks an hour for a minute. What is not used is not saved, so
// that no hour has more checks than the budget, and one.
//
// Of the checks that wait for a budget the one comes first that would first be late by four of its
// own pauses, or by the longest delay. So a stack that is checked every 10 minutes waits less than
// one that is checked once a day. These times do not move: once that of a stack has come, each other
// stack goes before it once at most, and the budget has a check for each of them in a longest delay.
// So no check is later than four pauses, or a longest delay, and a longest delay for each of its
// budgets. The zero value is ready to use.
type Budgets struct {
	// Wake, if it is set, has a stack ask before the time that its Delay says: those before it in the
	// line have left, and its turn has come earlier. Without it a budget may be idle meanwhile.
	Wake func(id string)

	mu      sync.Mutex
	named   map[string]*budget
	waitsIn map[string]waiting  // by stack
	granted map[string]grant    // by stack
	sharing map[string][]string // the budgets of a stack
}

// budget is what one has left, and who waits for it.
type budget struct {
	draw   Draw          // as its policy has it now
	share  float64       // of it
	from   time.Time     // when the newest check was charged
	took   time.Duration // CPU that was charged then, and what checks took since beyond what was expected
	line   []*waiter     // the most urgent first
	stacks int           // that share it
}

// waiter is a stack in the line of a budget.
type waiter struct {
	id     string
	urgent time.Time     // when it is late by four of its own pauses, or by the longest delay
	takes  time.Duration // CPU that its check is expected to take
}

// waiting is where a stack waits. A stack waits in one line: that of the budget that lets it go last.
// In two it would hold up those who wait for the plentiful one.
type waiting struct {
	turn   Delay
	woken  bool // it was told to ask earlier than its turn says
	due    time.Time
	since  time.Time // it waits
	waiter *waiter
	paid   []charge // budgets in whose line its turn came before
}

// charge is the CPU that a budget was charged for a check.
type charge struct {
	of   string
	took time.Duration
}

// grant is a check that may begin, and what its budgets were charged.
type grant struct {
	due  time.Time
	paid []charge
}

// Ask returns when a due drift check of a stack may begin. The zero Delay says now: then the budgets
// are charged, and the answer stays until the check has ended or is another one. Otherwise the
// stack asks again at the time that the Delay says.
func (b *Budgets) Ask(id string, w Wish, now time.Time) Delay {
	touched := b.budgetsOf(id)
	for _, d := range w.Draws {
		touched = append(touched, d.Of)
	}
	defer b.wake(touched)
	b.mu.Lock()
	defer b.mu.Unlock()
	if g, ok := b.granted[id]; ok && g.due.Equal(w.Due) {
		return Delay{}
	}
	was, waited := b.waitsIn[id]
	b.forget(id)
	b.share(id, w.Draws, w.Share)
	if w.Takes == 0 {
		w.Takes = unknownTakes
	}
	is := waiting{due: w.Due, since: now}
	if waited = waited && was.due.Equal(w.Due); waited {
		is.since, is.paid = was.since, was.paid
	}
	var bound time.Duration
	var late time.Time
	var open []Draw
	for _, d := range w.Draws {
		bound, late = bound+d.MaxDelay, latest(late, d.urgent(w))
		if slices.ContainsFunc(is.paid, func(c charge) bool { return c.of == d.Of }) {
			continue
		}
		turn, place := b.turn(id, d, w, now)
		if waited && was.turn.Of == d.Of && !turn.Ask.After(now) {
			// It is charged at once although it may wait for another budget: a stack whose turn went to
			// another one each time that it waits elsewhere would go from line to line for ever.
			is.paid = append(is.paid, b.charge(d, w, now))
			continue
		}
		if open = append(open, d); turn.Ask.After(now) && (is.turn.Of == "" || turn.Expected.After(is.turn.Expected)) {
			is.turn, is.waiter = turn, place
		}
	}
	if is.turn.Of != "" {
		if bounded(w.Draws) {
			is.turn.Latest = latest(late, is.since).Add(bound)
		}
		b.wait(id, is)
		return is.turn
	}
	for _, d := range open {
		is.paid = append(is.paid, b.charge(d, w, now))
	}
	if len(is.paid) > 0 {
		if b.granted == nil {
			b.granted = map[string]grant{}
		}
		b.granted[id] = grant{w.Due, is.paid}
	}
	return Delay{}
}

func bounded(draws []Draw) bool {
	return !slices.ContainsFunc(draws, func(d Draw) bool { return d.MaxDelay <= 0 })
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// urgency is by how many of its own pauses a stack would be late at the time that orders the line.
// With one, stacks with short pauses would wait as soon as some others are a day late.
const urgency = 4

// urgent orders the line.
func (d Draw) urgent(w Wish) time.Time {
	late := urgency * w.Pause
	if d.MaxDelay > 0 {
		late = min(late, d.MaxDelay)
	}
	return w.Due.Add(late)
}

// turn is when a budget lets a check begin, as far as is known now, and its place in the line. The
// stack asks when three quarters of the wait are over: checks before it may take less than is
// expected, and a budget that waits for its stacks lies idle.
func (b *Budgets) turn(id string, d Draw, w Wish, now time.Time) (Delay, *waiter) {
	of := b.of(d.Of)
	b.sweep(of, now)
	me := &waiter{id: id, urgent: d.urgent(w), takes: w.Takes}
	before, _ := of.place(me)
	each, raised := of.lasts(me.takes)
	wait := time.Duration(min(float64(before)*float64(each), float64(longestDraw)))
	if d.CPU > 0 { // otherwise all last as long
		wait = 0
		for _, other := range of.line[:before] {
			each, _ := of.lasts(other.takes)
			wait = min(wait+each, longestDraw)
		}
	}
	free := of.free(now)
	return Delay{Ask: free.Add(wait * 3 / 4), Expected: free.Add(wait), Of: d.Of, Stacks: of.stacks, Raised: raised}, me
}

// of is the budget of a name.
func (b *Budgets) of(name string) *budget {
	if b.named == nil {
		b.named = map[string]*budget{}
	}
	if b.named[name] == nil {
		b.named[name] = &budget{}
	}
	return b.named[name]
}

// share notes which budgets a stack shares, and what these are now.
func (b *Budgets) share(id string, draws []Draw, share float64) {
	var now []string
	for _, d := range draws {
		now = append(now, d.Of)
	}
	if was := b.sharing[id]; !slices.Equal(was, now) {
		for _, name := range now {
			b.of(name).stacks++
		}
		for _, name := range was {
			if of := b.of(name); of.stacks > 1 {
				of.stacks--
			} else {
				delete(b.named, name) // no stack shares it any more
			}
		}
		if b.sharing == nil {
			b.sharing = map[string][]string{}
		}
		if b.sharing[id] = now; len(now) == 0 {
			delete(b.sharing, id)
		}
	}
	for _, d := range draws {
		of := b.of(d.Of)
		of.draw, of.share = d, share
	}
}

// lasts is how long a check that took some CPU uses the budget up: no longer than each stack can have
// one in the longest delay. Raised says that it would be longer without that.
func (of *budget) lasts(took time.Duration) (lasts time.Duration, raised bool) {
	lasts = of.draw.lasts(took, of.share)
	if most := of.draw.MaxDelay / time.Duration(max(1, of.stacks)); of.draw.MaxDelay > 0 && most < lasts {
		return most, true
	}
	return lasts, false
}

// free is when the next check of the budget may begin, now or later. A time further ahead than
// checks can have put it is of a clock that was wrong.
func (of *budget) free(now time.Time) time.Time {
	lasts, _ := of.lasts(of.took)
	if at := of.from.Add(lasts); at.After(now) && at.Sub(now) <= 2*lasts {
		return at
	}
	return now
}

// sweep drops stacks that did not ask again although their time has come: they were suspended, or
// something else is done to them. They would let others wait.
func (b *Budgets) sweep(of *budget, now time.Time) {
	const late = time.Minute
	for len(of.line) > 0 {
		first := of.line[0].id
		if now.Sub(b.waitsIn[first].turn.Ask) <= late {
			return
		}
		delete(b.waitsIn, first)
		of.line = of.line[1:]
	}
}

func (of *budget) place(w *waiter) (int, bool) {
	return slices.BinarySearchFunc(of.line, w, func(a, b *waiter) int {
		return cmp.Or(a.urgent.Compare(b.urgent), cmp.Compare(a.id, b.id))
	})
}

func (b *Budgets) wait(id string, w waiting) {
	if b.waitsIn == nil {
		b.waitsIn = map[string]waiting{}
	}
	of := b.of(w.turn.Of)
	i, _ := of.place(w.waiter)
	of.line, b.waitsIn[id] = slices.Insert(of.line, i, w.waiter), w
}

// charge has a budget that is free charged for a check.
func (b *Budgets) charge(d Draw, w Wish, now time.Time) charge {
	of := b.of(d.Of)
	of.from, of.took = now, w.Takes
	return charge{d.Of, w.Takes}
}

// Ended says that a drift check of a stack has ended, and what CPU it took. If its budgets were
// charged, they are charged for what it really took.
func (b *Budgets) Ended(id string, took time.Duration) {
	defer b.wake(b.budgetsOf(id))
	b.mu.Lock()
	defer b.mu.Unlock()
	g, ok := b.granted[id]
	if !ok {
		return
	}
	delete(b.granted, id)
	for _, c := range g.paid {
		if of := b.named[c.of]; of != nil {
			of.took += took - c.took
		}
	}
}

// Leave says that no check of a stack is due.
func (b *Budgets) Leave(id string) {
	defer b.wake(b.budgetsOf(id))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(id)
}

// Drop says that a stack shares no budget.
func (b *Budgets) Drop(id string) {
	defer b.wake(b.budgetsOf(id))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(id)
	b.share(id, nil, 1)
}

// budgetsOf are the budgets of a stack, by name.
func (b *Budgets) budgetsOf(id string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.sharing[id])
}

// wake wakes the first stack of each of these budgets that would ask only after its turn.
func (b *Budgets) wake(names []string) {
	if b.Wake == nil {
		return
	}
	for _, name := range names {
		if id := b.tooLate(name); id != "" {
			b.Wake(id)
		}
	}
}

// tooLate is the first stack in the line of a budget, if the budget is free before it asks. It is told once.
func (b *Budgets) tooLate(name string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	of := b.named[name]
	if of == nil || len(of.line) == 0 {
		return ""
	}
	first := of.line[0].id
	lasts, _ := of.lasts(of.took)
	w := b.waitsIn[first]
	if w.woken || !w.turn.Ask.After(of.from.Add(lasts)) {
		return ""
	}
	w.woken = true
	b.waitsIn[first] = w
	return first
}

func (b *Budgets) forget(id string) {
	delete(b.granted, id)
	w, ok := b.waitsIn[id]
	if !ok {
		return
	}
	delete(b.waitsIn, id)
	of := b.named[w.turn.Of]
	if i, ok := of.place(w.waiter); ok {
		of.line = slices.Delete(of.line, i, i+1)
	}
}

// Waiting is how many stacks wait for a budget.
func (b *Budgets) Waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waitsIn)
}

// Raised is how many budgets are too small for their stacks.
func (b *Budgets) Raised() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, of := range b.named {
		if _, raised := of.lasts(of.took); raised {
			n++
		}
	}
	return n
}
