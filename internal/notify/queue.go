package notify

import (
	"context"
	"slices"
	"sync"
	"time"
)

// dispatch sends the due messages, those of a queue one after the other, until ctx
// ends.
func (d *Dispatcher) dispatch(ctx context.Context, all *sync.WaitGroup) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		next := d.start(ctx, all)
		timer.Reset(next)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-d.wake:
		}
	}
}

// start sends the due messages, and returns the time until the next one is due. Of the namespaces
// that have any, the one with the fewest deliveries is next, so that one with many receivers that
// do not answer has no more than its part.
func (d *Dispatcher) start(ctx context.Context, all *sync.WaitGroup) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, next := d.Now(), flushEvery
	for name, l := range d.queues {
		switch {
		case l.busy:
		case len(l.messages) == 0:
			d.places.Withdraw(l)
			delete(d.queues, name)
		case now.Before(l.next):
			next = min(next, l.next.Sub(now))
		default:
			d.places.Wait(l.namespace, l)
		}
	}
	for l, ok := d.places.Next(nil); ok; l, ok = d.places.Next(nil) {
		l.busy = true
		p := l.messages[0]
		all.Go(func() { d.deliver(ctx, l, p) })
	}
	return next
}

// deliver makes one attempt.
func (d *Dispatcher) deliver(ctx context.Context, l *queue, p *message) {
	p.Attempts++
	err := d.send(ctx, p)
	defer d.stir()
	now := d.Now()
	d.mu.Lock()
	l.busy = false
	d.places.End(l.namespace)
	switch {
	case err != nil && ctx.Err() != nil: // the process ends; the next one retries
		d.mu.Unlock()
	case err == nil:
		l.failures, l.next = 0, time.Time{}
		d.take(l, p)
		d.mu.Unlock()
		d.over(ctx, p, Delivered, "")
	case final(err), now.Sub(p.Accepted) >= oldest:
		d.take(l, p)
		d.mu.Unlock()
		text := err.Error()
		if !final(err) {
			text = reasonGone + ": " + text
		}
		d.over(ctx, p, Failed, text)
	default:
		l.failures++
		l.next = now.Add(max(d.Pause(l.failures), after(err)))
		if p.Attempts >= yieldAfter && len(l.messages) > 1 {
			l.messages = append(slices.DeleteFunc(l.messages, func(q *message) bool { return q == p }), p)
		}
		next := l.next
		d.mu.Unlock()
		entry := p.delivery(now, Retrying, err.Error())
		entry.NextAt = next
		d.history.put(entry)
	}
}

// send finds the destination of a message, and sends it.
func (d *Dispatcher) send(ctx context.Context, p *message) error {
	if p.volatile {
		return d.Upstream(ctx, p.Event)
	}
	to, err := d.Directory.Destination(ctx, p.Namespace, p.Provider)
	if err != nil {
		return err
	}
	p.kind, p.host = to.Type, to.Host()
	return d.Send(ctx, to, p.Event)
}

// take removes a message from its queue. The caller holds mu.
func (d *Dispatcher) take(l *queue, p *message) {
	before := len(l.messages)
	l.messages = slices.DeleteFunc(l.messages, func(q *message) bool { return q == p })
	d.waiting -= before - len(l.messages)
}

// over records the outcome of a message that has left its queue. The history has no
// deliveries to Flux's controller that succeed at once.
func (d *Dispatcher) over(ctx context.Context, p *message, outcome Outcome, why string) {
	if !p.volatile {
		// Also while the process ends: else it would be delivered twice.
		d.forget(context.WithoutCancel(ctx), p)
	}
	if !p.volatile || outcome != Delivered || p.Attempts > 1 {
		d.history.put(p.delivery(d.Now(), outcome, why))
	}
}

// makeRoom drops messages until no more wait than allowed: of the namespace that has the most, so
// that none loses its messages to another, the oldest of those that are no errors, and then the
// oldest of all. The caller holds mu.
func (d *Dispatcher) makeRoom() []*message {
	var gone []*message
	for d.waiting > waiting {
		l, p := d.least()
		if p == nil {
			break
		}
		d.take(l, p)
		gone = append(gone, p)
	}
	return gone
}

// least is the least important message, of the namespace with the most, that is not being
// delivered.
func (d *Dispatcher) least() (from *queue, least *message) {
	has := map[string]int{}
	for _, l := range d.queues {
		for _, p := range l.idle() {
			has[p.countsFor()]++
		}
	}
	for _, l := range d.queues {
		for _, p := range l.idle() {
			n, most := has[p.countsFor()], 0
			if least != nil {
				most = has[least.countsFor()]
			}
			if n > most || n == most && before(p, least) {
				from, least = l, p
			}
		}
	}
	return from, least
}

// idle are the messages of a queue that are not being delivered.
func (l *queue) idle() []*message {
	if l.busy {
		return l.messages[1:]
	}
	return l.messages
}

// before reports whether a message is dropped before another.
func before(p, other *message) bool {
	info, was := p.Event.Severity != Error, other.Event.Severity != Error
	return info && !was || info == was && p.ID < other.ID
}
