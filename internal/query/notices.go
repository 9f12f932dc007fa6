package query

import (
	"context"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
)

// Notices is what was sent to people about stacks and tenants, and what became
// of it.
type Notices interface {
	Deliveries(context.Context, access.Scope, NoticeQuery) (NoticePage, error)
}

// Outcome is what became of a delivery.
type Outcome string

// The outcomes, those that somebody has to look at first.
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
