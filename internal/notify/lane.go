package notify

import (
	"context"
	"slices"
	"sync"
	"time"
)

// dispatch sends what is due, one message of a lane after the other, until ctx
// ends.
func (d *Desk) dispatch(ctx context.Context, all *sync.WaitGroup) {
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

// start sends what is due, and returns when it may be called again.
func (d *Desk) start(ctx context.Context, all *sync.WaitGroup) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, next := d.Now(), flushEvery
	for name, l := range d.lanes {
		switch {
		case l.busy:
		case len(l.parcels) == 0:
			delete(d.lanes, name)
		case now.Before(l.next):
			next = min(next, l.next.Sub(now))
		case d.away < atOnce:
			l.busy = true
			d.away++
			p := l.parcels[0]
			all.Go(func() { d.deliver(ctx, l, p) })
		}
	}
	return next
}

// deliver tries once.
func (d *Desk) deliver(ctx context.Context, l *lane, p *parcel) {
	p.Attempts++
	err := d.send(ctx, p)
	defer d.stir()
	now := d.Now()
	d.mu.Lock()
	l.busy = false
	d.away--
	switch {
	case err != nil && ctx.Err() != nil: // we end; the next one tries again
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
		if p.Attempts >= patience && len(l.parcels) > 1 {
			l.parcels = append(slices.DeleteFunc(l.parcels, func(q *parcel) bool { return q == p }), p)
		}
		next := l.next
		d.mu.Unlock()
		entry := p.delivery(now, Retrying, err.Error())
		entry.NextAt = next
		d.history.put(entry)
	}
}

// send finds out where a message goes, and sends it.
func (d *Desk) send(ctx context.Context, p *parcel) error {
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

// take removes a message from its lane. The caller holds mu.
func (d *Desk) take(l *lane, p *parcel) {
	before := len(l.parcels)
	l.parcels = slices.DeleteFunc(l.parcels, func(q *parcel) bool { return q == p })
	d.waiting -= before - len(l.parcels)
}

// over says what became of a message that is in no lane any more. That Flux's
// controller has an event is no news.
func (d *Desk) over(ctx context.Context, p *parcel, outcome Outcome, why string) {
	if !p.volatile {
		// Also while we end: else it would be delivered twice.
		d.forget(context.WithoutCancel(ctx), p)
	}
	if !p.volatile || outcome != Delivered || p.Attempts > 1 {
		d.history.put(p.delivery(d.Now(), outcome, why))
	}
}

// makeRoom removes messages until no more wait than may: of those that are no
// errors the oldest, and then the oldest of all. The caller holds mu.
func (d *Desk) makeRoom() []*parcel {
	var gone []*parcel
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

// least is the message that can be missed most easily and is not on its way.
func (d *Desk) least() (from *lane, least *parcel) {
	for _, l := range d.lanes {
		for i, p := range l.parcels {
			if i == 0 && l.busy {
				continue
			}
			info, was := p.Event.Severity != Error, least != nil && least.Event.Severity != Error
			if least == nil || info && !was || info == was && p.ID < least.ID {
				from, least = l, p
			}
		}
	}
	return from, least
}
