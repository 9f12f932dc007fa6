package testkit

import (
	"context"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/audit"
)

// Ledger is a clock that stands still unless the test lets time pass, and an audit log beside it.
type Ledger struct {
	mu  sync.Mutex
	now time.Time
	all []audit.Entry
}

// NewLedger is one whose clock begins at a time.
func NewLedger(now time.Time) *Ledger { return &Ledger{now: now} }

// Now is the time.
func (l *Ledger) Now() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

// Pass lets time pass.
func (l *Ledger) Pass(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = l.now.Add(d)
}

// Record keeps an entry.
func (l *Ledger) Record(_ context.Context, e audit.Entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, e)
	return nil
}

// Entries are those that were recorded, the oldest first.
func (l *Ledger) Entries() []audit.Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]audit.Entry(nil), l.all...)
}
