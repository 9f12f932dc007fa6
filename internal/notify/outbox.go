package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// delivery is the entry in the history.
func (p *message) delivery(at time.Time, outcome Outcome, why string) Delivery {
	o := p.Event.InvolvedObject
	d := Delivery{
		ID: p.ID, At: at, Namespace: o.Namespace, Kind: o.Kind, Name: o.Name,
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

// restore reads the undelivered messages. It removes messages that cannot be read,
// which would otherwise fail at each start.
func (d *Dispatcher) restore(ctx context.Context) {
	keys, err := d.Store.List(ctx, record.Outbox())
	if err != nil {
		d.Log.Warn("stored messages not read: they are not delivered", "err", err)
		return
	}
	for _, key := range keys {
		var p message
		b, err := read(ctx, d.Store, key)
		if err == nil {
			err = json.Unmarshal(b, &p)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			p.ID = strings.TrimPrefix(key, record.Outbox())
			d.mu.Lock()
			d.enqueue(&p)
			d.mu.Unlock()
		case fault.Of(err) != fault.Missing:
			d.Log.Warn("unreadable message dropped", "key", key, "err", errors.Join(err, d.Store.Delete(ctx, key)))
		}
	}
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
