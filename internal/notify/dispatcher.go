package notify

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/share"
)

// Bounds of a dispatcher.
const (
	queued      = 1024             // events without routes yet
	waiting     = 1000             // undelivered messages
	atOnce      = 8                // concurrent deliveries
	sameWindow  = 5 * time.Minute  // in which a destination gets an equal message once
	oldest      = 24 * time.Hour   // age at which an undelivered message fails
	pauseFirst  = 5 * time.Second  // after the first failed attempt
	pauseMost   = 15 * time.Minute // after many
	yieldAfter  = 5                // attempts after which a message lets those behind it pass
	flushEvery  = 10 * time.Second
	flushAtEnd  = 2 * time.Second
	upstream    = "notification-controller" // the name of the queue of Options.Upstream
	reasonGone  = "it was not delivered within a day"
	reasonSpace = "too many messages wait: those of the namespace that has the most are dropped, first those that are no errors, the oldest before the others"
)

// Options configure a Dispatcher.
type Options struct {
	Store     Store
	Damage    string                                          // the reason of the error of reading a damaged value
	Directory Directory                                       // nil if Terrier delivers nothing itself
	Send      func(context.Context, Destination, Event) error // Sender.Send
	Upstream  func(context.Context, Event) error              // sends to Flux's notification-controller; nil if there is none
	Pause     func(failures int) time.Duration                // between attempts; as documented if nil
	Now       func() time.Time
	Log       *slog.Logger
}

// Dispatcher delivers events to their destinations. New returns one; it works while
// Run does.
type Dispatcher struct {
	Options
	events  chan Event
	wake    chan struct{}
	history *history

	// Of restore, which Run calls first, and keepHistory afterwards.
	began  time.Time // Run
	listed bool      // the stored messages, in unread
	late   bool      // they could not be listed at first
	unread []string  // keys
	told   bool      // which cannot be read

	places *share.Places[*queue] // for deliveries

	mu      sync.Mutex
	queues  map[string]*queue
	waiting int // messages in all queues
	serial  int
	same    map[string]sent
	lost    int // events that did not fit into the queue, since the last log line about it
}

// queue holds the messages to one destination, in order.
type queue struct {
	namespace string // of the provider; empty for Options.Upstream
	messages  []*message
	busy      bool
	failures  int // in a row
	next      time.Time
}

// sent is when a message was sent first, and whether the history has its repetition.
type sent struct {
	at   time.Time
	said bool
}

// New returns a dispatcher. Run reads the undelivered messages of an earlier one.
func New(o Options) *Dispatcher {
	if o.Pause == nil {
		o.Pause = pause
	}
	return &Dispatcher{
		Options: o, events: make(chan Event, queued), wake: make(chan struct{}, 1), history: newHistory(o.Store, o.Damage),
		places: share.New[*queue](share.Bounds{All: atOnce}), queues: map[string]*queue{}, same: map[string]sent{},
	}
}

// pause doubles with each failure in a row.
func pause(failures int) time.Duration {
	return min(pauseFirst<<min(max(failures-1, 0), 10), pauseMost)
}

// Notify accepts an event. It never waits: if there are too many at once the newest
// are lost, and the log says how many.
func (d *Dispatcher) Notify(e Event) {
	e.Metadata = bounded(e.Metadata)
	select {
	case d.events <- e:
	default:
		d.mu.Lock()
		d.lost++
		d.mu.Unlock()
	}
}

// Deliveries returns the outcomes of messages, in no order. It may be called before
// Run and after it.
func (d *Dispatcher) Deliveries() []Delivery { return d.history.all() }

// Run delivers until ctx ends. The next Run delivers the rest.
func (d *Dispatcher) Run(ctx context.Context) error {
	d.began, d.listed, d.late, d.told = d.Now(), false, false, false
	d.history.load(ctx, d.Now(), d.Log)
	d.restore(ctx)
	var all sync.WaitGroup
	all.Go(func() { d.route(ctx) })
	all.Go(func() { d.keepHistory(ctx) })
	d.dispatch(ctx, &all)
	all.Wait()
	return nil
}

func (d *Dispatcher) keepHistory(ctx context.Context) {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			d.restore(ctx)
			d.history.load(ctx, d.Now(), d.Log)
			d.history.flush(ctx, d.Log)
		case <-ctx.Done():
			last, done := context.WithTimeout(context.WithoutCancel(ctx), flushAtEnd)
			defer done()
			d.history.flush(last, d.Log)
			return
		}
	}
}

// route finds the routes of events.
func (d *Dispatcher) route(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-d.events:
			d.accept(ctx, e)
		}
	}
}

// accept creates the messages of an event. The one for Flux is not stored: its
// controller keeps nothing over a restart either, and every event would cost two
// writes.
func (d *Dispatcher) accept(ctx context.Context, e Event) {
	d.mu.Lock()
	lost := d.lost
	d.lost = 0
	d.mu.Unlock()
	if lost > 0 {
		d.Log.Warn("events lost: too many at once", "events", lost)
	}
	if d.Upstream != nil {
		d.add(ctx, &message{Provider: upstream, Event: e, volatile: true})
	}
	if d.Directory == nil {
		return
	}
	routes, err := d.Directory.Routes(ctx, e)
	if err != nil {
		d.Log.Warn("routes of an event not found", "reason", e.Reason, "object", heading(e), "err", err)
	}
	for _, r := range routes {
		d.add(ctx, &message{Namespace: r.Namespace, Provider: r.Provider, Event: e.plain(r.Metadata)})
	}
}

// add puts a message into its queue, unless an equal one was just sent.
func (d *Dispatcher) add(ctx context.Context, p *message) {
	now := d.Now()
	d.mu.Lock()
	d.serial++
	p.ID, p.Accepted = messageID(now, d.serial), now
	first, again := d.repeats(p, now)
	d.mu.Unlock()
	if again {
		if !first.said && !p.volatile {
			d.history.put(p.delivery(now, Dropped, "an equal message was sent at "+first.at.UTC().Format("15:04:05")+" UTC"))
		}
		return
	}
	if !p.volatile {
		if err := d.keep(ctx, p); err != nil {
			d.Log.Warn("message not stored: it is lost if this process ends before its delivery", "provider", p.queue(), "err", err)
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

// repeats reports whether an equal message was accepted for the same destination a
// short while ago. The caller holds mu.
func (d *Dispatcher) repeats(p *message, now time.Time) (first sent, again bool) {
	for key, s := range d.same {
		if now.Sub(s.at) >= sameWindow {
			delete(d.same, key)
		}
	}
	e := p.Event
	o := e.InvolvedObject
	key := strings.Join([]string{p.queue(), o.Kind, o.Namespace, o.Name, o.UID, e.Severity, e.Reason, e.Message, fmt.Sprint(e.Metadata)}, "\x00")
	first, again = d.same[key]
	if again {
		d.same[key] = sent{first.at, true}
	} else {
		d.same[key] = sent{at: now}
	}
	return first, again
}

// enqueue is called with mu held.
func (d *Dispatcher) enqueue(p *message) {
	l := d.queues[p.queue()]
	if l == nil {
		l = &queue{namespace: p.Namespace}
		d.queues[p.queue()] = l
	}
	l.messages = append(l.messages, p)
	d.waiting++
}

// stir starts the due deliveries.
func (d *Dispatcher) stir() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}
