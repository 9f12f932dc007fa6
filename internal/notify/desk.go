package notify

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Bounds of the desk.
const (
	queued      = 1024             // events that are told and not looked at yet
	waiting     = 1000             // messages that are not delivered yet
	atOnce      = 8                // messages on their way
	sameWindow  = 5 * time.Minute  // in which nobody is told the same twice
	oldest      = 24 * time.Hour   // messages that nobody took until then are given up
	pauseFirst  = 5 * time.Second  // after the first attempt that failed
	pauseMost   = 15 * time.Minute // after many
	patience    = 5                // attempts after which a message no longer holds up those behind it
	flushEvery  = 10 * time.Second
	flushAtEnd  = 2 * time.Second
	upstream    = "notification-controller" // the name of the lane of Options.Upstream
	reasonGone  = "it was not delivered within a day"
	reasonSpace = "too many messages wait; those that are no errors go first, the oldest before the others"
)

// Options are what a desk needs.
type Options struct {
	Store     Store
	Directory Directory                                       // nil if we deliver nothing ourselves
	Send      func(context.Context, Destination, Event) error // Sender.Send
	Upstream  func(context.Context, Event) error              // sends to Flux's notification-controller; nil if there is none
	Pause     func(failures int) time.Duration                // between attempts; as documented if nil
	Now       func() time.Time
	Log       *slog.Logger
}

// Desk takes events and sees to it that they arrive. Make one with New; it
// works while Run does.
type Desk struct {
	Options
	told    chan Event
	wake    chan struct{}
	history *history

	mu      sync.Mutex
	lanes   map[string]*lane
	waiting int // in all lanes
	away    int // on their way
	serial  int
	same    map[string]sent
	lost    int // events that did not fit into the queue, since that was said last
}

// lane holds what one destination is to get, in order.
type lane struct {
	parcels  []*parcel
	busy     bool
	failures int // in a row
	next     time.Time
}

// sent is when a message was sent first, and whether its repetition was told.
type sent struct {
	at   time.Time
	said bool
}

// New returns a desk. What an earlier one did not deliver is read by Run.
func New(o Options) *Desk {
	if o.Pause == nil {
		o.Pause = pause
	}
	return &Desk{
		Options: o, told: make(chan Event, queued), wake: make(chan struct{}, 1), history: newHistory(o.Store),
		lanes: map[string]*lane{}, same: map[string]sent{},
	}
}

// pause doubles with each failure in a row.
func pause(failures int) time.Duration {
	return min(pauseFirst<<min(max(failures-1, 0), 10), pauseMost)
}

// Tell takes an event. It never waits: while more are told than can be looked
// at, the newest are lost, and the log says how many.
func (d *Desk) Tell(e Event) {
	select {
	case d.told <- e:
	default:
		d.mu.Lock()
		d.lost++
		d.mu.Unlock()
	}
}

// Deliveries returns what became of messages, in no order. It may be asked
// before Run and after it.
func (d *Desk) Deliveries() []Delivery { return d.history.all() }

// Run delivers until ctx ends. What is on its way then is delivered by the next
// one.
func (d *Desk) Run(ctx context.Context) error {
	d.history.load(ctx, d.Now(), d.Log)
	d.restore(ctx)
	var all sync.WaitGroup
	all.Go(func() { d.route(ctx) })
	all.Go(func() { d.keepHistory(ctx) })
	d.dispatch(ctx, &all)
	all.Wait()
	return nil
}

func (d *Desk) keepHistory(ctx context.Context) {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			d.history.flush(ctx, d.Log)
		case <-ctx.Done():
			last, done := context.WithTimeout(context.WithoutCancel(ctx), flushAtEnd)
			defer done()
			d.history.flush(last, d.Log)
			return
		}
	}
}

// route finds out who wants what was told.
func (d *Desk) route(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-d.told:
			d.accept(ctx, e)
		}
	}
}

// accept makes messages of an event. The one for Flux is not written down: its
// controller keeps nothing over a restart either, and every event would cost
// two writes.
func (d *Desk) accept(ctx context.Context, e Event) {
	d.mu.Lock()
	lost := d.lost
	d.lost = 0
	d.mu.Unlock()
	if lost > 0 {
		d.Log.Warn("events were not sent to anybody: too many at once", "events", lost)
	}
	if d.Upstream != nil {
		d.add(ctx, &parcel{Provider: upstream, Event: e, volatile: true})
	}
	if d.Directory == nil {
		return
	}
	routes, err := d.Directory.Routes(ctx, e)
	if err != nil {
		d.Log.Warn("who wants an event was not found out", "reason", e.Reason, "object", heading(e), "err", err)
	}
	for _, r := range routes {
		d.add(ctx, &parcel{Namespace: r.Namespace, Provider: r.Provider, Event: e.plain(r.Metadata)})
	}
}

// add puts a message into its lane, unless it says what was said just now.
func (d *Desk) add(ctx context.Context, p *parcel) {
	now := d.Now()
	d.mu.Lock()
	d.serial++
	p.ID, p.Accepted = parcelID(now, d.serial), now
	first, again := d.repeats(p, now)
	d.mu.Unlock()
	if again {
		if !first.said && !p.volatile {
			d.history.put(p.delivery(now, Dropped, "the same was sent at "+first.at.UTC().Format("15:04:05")+" UTC"))
		}
		return
	}
	if !p.volatile {
		if err := d.keep(ctx, p); err != nil {
			d.Log.Warn("a message is sent, and lost if this program ends before", "provider", p.lane(), "err", err)
		}
	}
	d.mu.Lock()
	d.enqueue(p)
	gone := d.makeRoom()
	d.mu.Unlock()
	for _, g := range gone {
		d.over(ctx, g, Dropped, reasonSpace)
	}
	d.stir()
}

// repeats reports whether the same was accepted for the same destination a
// short while ago. The caller holds mu.
func (d *Desk) repeats(p *parcel, now time.Time) (first sent, again bool) {
	for key, s := range d.same {
		if now.Sub(s.at) >= sameWindow {
			delete(d.same, key)
		}
	}
	e := p.Event
	o := e.InvolvedObject
	key := strings.Join([]string{p.lane(), o.Kind, o.Namespace, o.Name, o.UID, e.Severity, e.Reason, e.Message, fmt.Sprint(e.Metadata)}, "\x00")
	first, again = d.same[key]
	if again {
		d.same[key] = sent{first.at, true}
	} else {
		d.same[key] = sent{at: now}
	}
	return first, again
}

// enqueue is called with mu held.
func (d *Desk) enqueue(p *parcel) {
	l := d.lanes[p.lane()]
	if l == nil {
		l = &lane{}
		d.lanes[p.lane()] = l
	}
	l.parcels = append(l.parcels, p)
	d.waiting++
}

// stir has the lanes looked at.
func (d *Desk) stir() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}
