package query

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/notify"
)

// Delivered is who knows what became of messages.
type Delivered interface {
	Deliveries() []notify.Delivery
}

// NewNotices answers questions about what was sent.
func NewNotices(of Delivered) Notices { return notices{of} }

type notices struct{ of Delivered }

// Bounds of a page of deliveries.
const (
	noticesShown = 100
	noticesMost  = 1000
)

// Deliveries implements Notices. What the scope does not have is not even
// counted.
func (n notices) Deliveries(_ context.Context, scope access.Scope, q NoticeQuery) (NoticePage, error) {
	page := NoticePage{Items: []Delivery{}, Counts: map[Outcome]int{}}
	providers, events := map[string]bool{}, map[string]bool{}
	var found []Delivery
	for _, kept := range n.of.Deliveries() {
		d := deliveryOf(kept)
		if !scope.Has(d.Namespace) {
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
