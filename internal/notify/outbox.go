package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
)

// message is one message to one destination.
type message struct {
	ID        string    `json:"id"`
	Namespace string    `json:"namespace"` // of the provider
	Provider  string    `json:"provider"`
	Accepted  time.Time `json:"accepted"`
	Event     Event     `json:"event"`

	Attempts   int    `json:"-"`
	volatile   bool   // for Options.Upstream, and not stored
	kind, host string // of the destination, once it is known
}

// messageID sorts messages by their times.
func messageID(now time.Time, serial int) string {
	return fmt.Sprintf("%016x-%08x", now.UnixNano(), serial)
}

func (p *message) queue() string {
	if p.volatile {
		return p.Provider // has no slash
	}
	return p.Namespace + "/" + p.Provider
}

// countsFor is the namespace whose messages are counted with this one: that of the provider. The
// messages to Flux's controller have one queue for all namespaces, and each counts for the
// namespace of its object.
func (p *message) countsFor() string {
	if p.volatile {
		return p.Event.InvolvedObject.Namespace
	}
	return p.Namespace
}

// delivery is the entry in the history.
func (p *message) delivery(at time.Time, outcome Outcome, why string) Delivery {
	o := p.Event.InvolvedObject
	d := Delivery{
		ID: p.ID, At: at, Caused: p.Event.Timestamp, Namespace: o.Namespace, Kind: o.Kind, Name: o.Name,
		Event: p.Event.Reason, Severity: p.Event.Severity, Message: shown(p.Event.Message, textRunes/4),
		Provider: p.Provider, Type: p.kind, Address: p.host, Attempts: p.Attempts, Outcome: outcome, Error: shown(why, textRunes/4),
	}
	if p.volatile {
		d.Type = "flux"
	}
	return d
}

func (d *Dispatcher) keep(ctx context.Context, p *message) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return d.Store.Put(ctx, record.OutboxMessage(p.ID), bytes.NewReader(b))
}

func (d *Dispatcher) forget(ctx context.Context, p *message) {
	if err := d.Store.Delete(ctx, record.OutboxMessage(p.ID)); err != nil {
		d.Log.Warn("message not removed: it is sent again after a restart", "id", p.ID, "err", err)
	}
}

// restore reads the undelivered messages that it has not read yet. It removes messages
// that are damaged, which would otherwise fail at each start. A message that cannot be
// read for another reason stays, and the next call reads it again.
func (d *Dispatcher) restore(ctx context.Context) {
	if !d.listed {
		keys, err := d.Store.List(ctx, record.Outbox())
		if err != nil {
			d.Log.Warn("stored messages not read: they are read again later", "err", err)
			d.late = true
			return
		}
		d.listed = true
		d.unread = slices.DeleteFunc(keys, func(key string) bool { // those of this Run are in their queues
			return d.late && strings.TrimPrefix(key, record.Outbox()) >= messageID(d.began, 0)
		})
	}
	var later []string
	for _, key := range d.unread {
		var p message
		b, err := read(ctx, d.Store, key)
		damaged := d.history.isDamage(err)
		if err == nil {
			err = json.Unmarshal(b, &p)
			damaged = err != nil
		}
		switch {
		case err == nil:
			p.ID = strings.TrimPrefix(key, record.Outbox())
			d.mu.Lock()
			d.enqueue(&p)
			d.mu.Unlock()
			d.stir()
		case damaged:
			d.Log.Warn("damaged message dropped", "key", key, "err", errors.Join(err, d.Store.Delete(ctx, key)))
		case fault.Of(err) != fault.Missing:
			if !d.told {
				d.Log.Warn("stored message not read: it is read again later", "key", key, "err", err)
			}
			later = append(later, key)
		}
	}
	d.unread, d.told = later, true
}

func read(ctx context.Context, s Store, key string) ([]byte, error) {
	r, err := s.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(r)
	return b, errors.Join(err, r.Close())
}

// after is how long an error asks to wait.
func after(err error) time.Duration {
	if f, ok := errors.AsType[*fault.Fault](err); ok {
		return f.After
	}
	return 0
}
