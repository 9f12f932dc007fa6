package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
)

// Outcome is the outcome of a message.
type Outcome string

const (
	Failed    Outcome = "failed"
	Retrying  Outcome = "retrying"
	Delivered Outcome = "delivered"
	Dropped   Outcome = "dropped"
)

// Delivery is the outcome of one message, for users.
type Delivery struct {
	ID        string    `json:"id"`
	At        time.Time `json:"at"`
	Caused    time.Time `json:"caused,omitzero"` // when what it is about happened; zero in records of earlier releases
	Namespace string    `json:"namespace"`       // of the object
	Kind      string    `json:"kind"`
	Name      string    `json:"name"`
	Event     string    `json:"event"`
	Severity  string    `json:"severity"`
	Message   string    `json:"message"`
	Provider  string    `json:"provider"`
	Type      string    `json:"type,omitempty"`
	Address   string    `json:"address,omitempty"` // host
	Attempts  int       `json:"attempts"`
	Outcome   Outcome   `json:"outcome"`
	Error     string    `json:"error,omitempty"`
	NextAt    time.Time `json:"nextAt,omitzero"`
}

const (
	historyKept = 200 // of a namespace
	historyAge  = 30 * 24 * time.Hour
	noNamespace = "_cluster_" // no name of a namespace
)

// history keeps the newest deliveries of each namespace in memory, and stores
// changes at an interval.
type history struct {
	store  Store
	damage string // Options.Damage
	mu     sync.Mutex
	of     map[string][]Delivery // by namespace, the oldest first
	dirty  map[string]bool

	listed bool            // what is stored; before that nothing is stored
	unread map[string]bool // namespaces whose stored deliveries are not read: they are not written over
	told   bool            // which those are
}

func newHistory(s Store, damage string) *history {
	return &history{store: s, damage: damage, of: map[string][]Delivery{}, dirty: map[string]bool{}, unread: map[string]bool{}}
}

// put adds the outcome of a message, in place of an earlier one.
func (h *history) put(d Delivery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := slices.DeleteFunc(h.of[d.Namespace], func(was Delivery) bool { return was.ID == d.ID })
	list = append(list, d)
	if len(list) > historyKept {
		list = slices.Clone(list[len(list)-historyKept:])
	}
	h.of[d.Namespace], h.dirty[d.Namespace] = list, true
}

func (h *history) all() []Delivery {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []Delivery
	for _, list := range h.of {
		out = append(out, list...)
	}
	return out
}

// load reads the deliveries of an earlier process that it has not read yet. The next
// attempt replaces those that are retried. A damaged record counts as empty. A record that
// cannot be read for another reason stays, and the next call reads it again.
func (h *history) load(ctx context.Context, now time.Time, log *slog.Logger) {
	if !h.listed {
		keys, err := h.store.List(ctx, record.AllDeliveries())
		if err != nil {
			log.Warn("delivery history not read: it is read again later", "err", err)
			return
		}
		for _, key := range keys {
			h.unread[strings.TrimPrefix(key, record.AllDeliveries())] = true
		}
		h.listed = true
	}
	for part := range h.unread {
		key := record.Deliveries(part)
		var list []Delivery
		b, err := read(ctx, h.store, key)
		begin := fault.Of(err) == fault.Missing || h.isDamage(err)
		if err == nil {
			err = json.Unmarshal(b, &list)
			begin = err != nil
		}
		if err != nil && !h.told {
			log.Warn("delivery history not read", "key", key, "err", err)
		}
		if err != nil && !begin {
			continue
		}
		delete(h.unread, part)
		if begin {
			continue
		}
		list = slices.DeleteFunc(list, func(d Delivery) bool { return now.Sub(d.At) > historyAge })
		if len(list) == 0 {
			if err := h.store.Delete(ctx, key); err != nil {
				log.Warn("old delivery history not removed", "key", key, "err", err)
			}
			continue
		}
		h.join(part, list)
	}
	h.told = true
}

// isDamage reports whether a value is damaged, which another attempt to read it will not
// change.
func (h *history) isDamage(err error) bool {
	reason := fault.Reason(err, "")
	return reason != "" && reason == h.damage
}

// join puts stored deliveries before those of this process, which are newer.
func (h *history) join(part string, list []Delivery) {
	namespace := part
	if part == noNamespace {
		namespace = ""
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	mine := h.of[namespace]
	list = slices.DeleteFunc(list, func(was Delivery) bool {
		return slices.ContainsFunc(mine, func(d Delivery) bool { return d.ID == was.ID })
	})
	list = append(list, mine...)
	h.of[namespace] = list[max(0, len(list)-historyKept):]
}

// flush stores the changes, except over what load has not read.
func (h *history) flush(ctx context.Context, log *slog.Logger) {
	if !h.listed {
		return
	}
	h.mu.Lock()
	changed := map[string][]Delivery{}
	for namespace := range h.dirty {
		if !h.unread[partOf(namespace)] {
			changed[namespace] = slices.Clone(h.of[namespace])
			delete(h.dirty, namespace)
		}
	}
	h.mu.Unlock()
	for namespace, list := range changed {
		b, err := json.Marshal(list)
		if err == nil {
			err = h.store.Put(ctx, record.Deliveries(partOf(namespace)), bytes.NewReader(b))
		}
		if err != nil {
			log.Warn("delivery history not stored", "namespace", namespace, "err", err)
			h.mu.Lock()
			h.dirty[namespace] = true
			h.mu.Unlock()
		}
	}
}

// partOf is a namespace as a part of a key.
func partOf(namespace string) string {
	if namespace == "" {
		return noNamespace
	}
	return namespace
}
