package query

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/notify"
)

// Notices is what was sent to people about stacks and tenants, and what became
// of it.
type Notices interface {
	Deliveries(context.Context, access.Scope, NoticeQuery) (NoticePage, error)
}

// Outcome is what became of a delivery.
type Outcome string

// The outcomes; those that need an operator come first.
const (
	NoticeFailed    Outcome = "failed"    // given up
	NoticeRetrying  Outcome = "retrying"  // the last attempt failed, and another comes
	NoticeDelivered Outcome = "delivered" // the other end said that it has it
	NoticeDropped   Outcome = "dropped"   // not sent: too many at once, or it repeated what was sent before
)

// Outcomes lists all of them in the order above.
func Outcomes() []Outcome {
	return []Outcome{NoticeFailed, NoticeRetrying, NoticeDelivered, NoticeDropped}
}

// Delivery is one message to one provider.
type Delivery struct {
	ID        string    `json:"id"`
	At        time.Time `json:"at"`        // of the newest attempt
	Namespace string    `json:"namespace"` // of the object, whose rights decide who sees this
	Kind      string    `json:"kind"`      // of the object that it is about
	Name      string    `json:"name"`
	Event     string    `json:"event"` // the reason: PlanPending, Applied, …
	Severity  string    `json:"severity,omitempty"`
	Message   string    `json:"message,omitempty"`

	Provider string    `json:"provider"`          // the object that says where it goes
	Type     string    `json:"type,omitempty"`    // slack, msteams, generic, …
	Address  string    `json:"address,omitempty"` // host of it, and no more: paths of webhooks are secrets
	Attempts int       `json:"attempts"`
	Outcome  Outcome   `json:"outcome"`
	Error    string    `json:"error,omitempty"` // of the newest attempt
	NextAt   time.Time `json:"nextAt,omitzero"` // of the next attempt
}

// NoticeQuery chooses deliveries; the newest come first.
type NoticeQuery struct {
	Namespace string    // all if empty
	Name      string    // of the object; all if empty
	Provider  string    // all if empty
	Event     string    // all if empty
	Outcomes  []Outcome // any of them; all if empty
	Offset    int
	Limit     int // 100 if 0, 1000 at most
}

// NoticePage is what a query found.
type NoticePage struct {
	Items     []Delivery      `json:"items"`
	Total     int             `json:"total"`     // that the query chooses
	Counts    map[Outcome]int `json:"counts"`    // by outcome, of all that the query chooses but for Outcomes
	Providers []string        `json:"providers"` // that the scope has deliveries of
	Events    []string        `json:"events"`    // that the scope has deliveries of
	Since     time.Time       `json:"since,omitzero"`
}

// Delivered is who knows what became of messages.
type Delivered interface {
	Deliveries() []notify.Delivery
}

// NewNotices answers questions about what was sent. A user who may see some namespaces sees
// what is about each of them since it was created: what was before is about a former namespace
// of its name. Nil namespaces have no former ones.
func NewNotices(of Delivered, namespaces Namespaces) Notices { return notices{of, namespaces} }

type notices struct {
	of         Delivered
	namespaces Namespaces
}

// Bounds of a page of deliveries.
const (
	noticesShown = 100
	noticesMost  = 1000
)

// Deliveries implements Notices. What the scope does not have is not even
// counted.
func (n notices) Deliveries(ctx context.Context, scope access.Scope, q NoticeQuery) (NoticePage, error) {
	page := NoticePage{Items: []Delivery{}, Counts: map[Outcome]int{}}
	own, failed := n.namespaces.own(ctx)
	providers, events := map[string]bool{}, map[string]bool{}
	var found []Delivery
	for _, kept := range n.of.Deliveries() {
		d := deliveryOf(kept)
		if !scope.Has(d.Namespace) || !scope.All && !own(d.Namespace, cmp.Or(kept.Caused, d.At)) {
			continue
		}
		providers[d.Provider], events[d.Event] = true, true
		if page.Since.IsZero() || d.At.Before(page.Since) {
			page.Since = d.At
		}
		if !q.asks(d) {
			continue
		}
		page.Counts[d.Outcome]++
		if len(q.Outcomes) == 0 || slices.Contains(q.Outcomes, d.Outcome) {
			found = append(found, d)
		}
	}
	if err := failed(); err != nil {
		return NoticePage{}, err
	}
	slices.SortFunc(found, func(a, b Delivery) int {
		if c := b.At.Compare(a.At); c != 0 {
			return c
		}
		return strings.Compare(b.ID, a.ID)
	})
	page.Total = len(found)
	limit := q.Limit
	if limit <= 0 {
		limit = noticesShown
	}
	begin := min(max(q.Offset, 0), len(found))
	page.Items = append(page.Items, found[begin:min(begin+min(limit, noticesMost), len(found))]...)
	page.Providers, page.Events = slices.Sorted(maps.Keys(providers)), slices.Sorted(maps.Keys(events))
	return page, nil
}

// asks reports whether a delivery is among those that are asked for, whatever
// became of it.
func (q NoticeQuery) asks(d Delivery) bool {
	for _, pair := range [][2]string{{q.Namespace, d.Namespace}, {q.Name, d.Name}, {q.Provider, d.Provider}, {q.Event, d.Event}} {
		if pair[0] != "" && pair[0] != pair[1] {
			return false
		}
	}
	return true
}

func deliveryOf(d notify.Delivery) Delivery {
	return Delivery{
		ID: d.ID, At: d.At.Round(0).In(time.UTC), Namespace: d.Namespace, Kind: d.Kind, Name: d.Name, Event: d.Event, Severity: d.Severity, Message: d.Message,
		Provider: d.Provider, Type: d.Type, Address: d.Address, Attempts: d.Attempts, Outcome: Outcome(d.Outcome), Error: d.Error, NextAt: d.NextAt,
	}
}
