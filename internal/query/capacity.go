package query

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/stack"
)

// CapacityInfo is whether every stack can be looked at as often as it asks for.
type CapacityInfo struct {
	Stacks      int           `json:"stacks"`      // that are looked at by themselves
	SlotsNeeded float64       `json:"slotsNeeded"` // runs at once that keep up with them: the sum of run time by interval
	Slots       int           `json:"slots"`       // runs that there may be at once
	RunSeconds  float64       `json:"runSeconds"`  // of one look, on average
	Measured    int           `json:"measured"`    // stacks whose run time is known; others count as the average
	Interval    time.Duration `json:"interval"`    // at which all of them together would ask for as many looks; nanoseconds
	Cycle       time.Duration `json:"cycle"`       // how long it takes to look at all of them once with all slots; nanoseconds
	CycleMet    bool          `json:"cycleMet"`
	Warning     string        `json:"warning,omitempty"` // what to do if it is not
}

// Looked is a stack that is looked at now and then.
type Looked struct {
	Every time.Duration // between two looks
	Took  time.Duration // of one; 0 if unknown
}

// headroom is how much of the slots looks may take before somebody should know:
// runs that change something come on top of them.
const headroom = 0.8

// longest is an interval that nobody waits for: such a stack is looked at when
// something changes, and never by itself.
const longest = 10 * 365 * 24 * time.Hour

// Capacity says whether slots runs at once keep up with looking at stacks.
func Capacity(stacks []Looked, slots int) CapacityInfo {
	c := CapacityInfo{Slots: slots, CycleMet: true}
	var took time.Duration
	var rate float64 // looks per second
	for _, s := range stacks {
		if s.Every <= 0 || s.Every > longest {
			continue
		}
		c.Stacks++
		rate += 1 / s.Every.Seconds()
		if s.Took > 0 {
			c.Measured++
			took += s.Took
		}
	}
	if c.Measured == 0 {
		return c // nobody knows, and a guess would look like knowledge
	}
	average := took / time.Duration(c.Measured)
	c.RunSeconds = average.Seconds()
	c.Interval = time.Duration(float64(c.Stacks) / rate * float64(time.Second))
	var all time.Duration
	for _, s := range stacks {
		if s.Every <= 0 || s.Every > longest {
			continue
		}
		one := s.Took
		if one <= 0 {
			one = average
		}
		all += one
		c.SlotsNeeded += one.Seconds() / s.Every.Seconds()
	}
	if slots > 0 {
		c.Cycle = all / time.Duration(slots)
		c.CycleMet = c.SlotsNeeded <= float64(slots)
		c.Warning = c.warn()
	}
	return c
}

func (c CapacityInfo) warn() string {
	if c.SlotsNeeded <= headroom*float64(c.Slots) {
		return ""
	}
	enough := int(math.Ceil(c.SlotsNeeded / headroom))
	asks := fmt.Sprintf("Looking at %s every %s takes %.1f runs at once, and there may be %d", Count(c.Stacks, "stack"), roughly(c.Interval), c.SlotsNeeded, c.Slots)
	if c.CycleMet {
		return fmt.Sprintf("%s: little is left for applies. With --max-runs %d there is room for them.", asks, enough)
	}
	longer := time.Duration(float64(c.Interval) * c.SlotsNeeded / headroom / float64(c.Slots))
	return fmt.Sprintf("%s: drift is found later than the stacks ask for. Set --max-runs to %d, or the intervals of the stacks to %s.", asks, enough, roughly(longer))
}

// roughly is d as a person would say it.
func roughly(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(math.Ceil(d.Seconds())))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(math.Ceil(d.Minutes())))
	default:
		return fmt.Sprintf("%.0fh", math.Ceil(d.Hours()))
	}
}

// Capacity says whether slots runs at once keep up with all stacks, as long as
// their looks take as long as they did lately.
func (b *Board) Capacity(slots int) (CapacityInfo, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if !b.synced {
		return CapacityInfo{}, errNotReady
	}
	looked := make([]Looked, 0, len(b.order))
	for _, e := range b.order {
		looked = append(looked, Looked{Every: e.every, Took: e.took})
	}
	return Capacity(looked, slots), nil
}

// Ran takes in how long a run of a stack took that ended well. Only looks count,
// which are what comes back in every interval; the newest of them weighs a
// quarter, so that one slow answer of a cloud does not count for all.
func (b *Board) Ran(uid string, kind stack.RunKind, took time.Duration) {
	if kind != stack.CheckRun && kind != stack.PlanRun || took <= 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := b.byUID[uid]; {
	case e == nil:
	case e.took == 0:
		e.took = took
	default:
		e.took += (took - e.took) / 4
	}
}

// Measure takes in how long the last look at each stack took, as its records
// have it. Stacks that have run since are left as they are.
func (b *Board) Measure(ctx context.Context, records *Blobs) error {
	for _, id := range b.unmeasured() {
		r, err := records.report(ctx, id, record.QuietRun)
		switch {
		case fault.Of(err) == fault.Missing:
		case err != nil:
			return err
		case r.Outcome == stack.Succeeded:
			b.Ran(id.UID, r.Kind, r.Finished.Sub(r.Started))
		}
	}
	return nil
}

func (b *Board) unmeasured() []StackID {
	b.mu.RLock()
	defer b.mu.RUnlock()
	var out []StackID
	for _, c := range b.order {
		if c.took == 0 {
			out = append(out, c.row.ID())
		}
	}
	return out
}

// looksEvery is how often a stack is looked at by itself, however it stands at
// the moment; 0 if it is not, since a person or an event must come first.
func looksEvery(r Row, s stack.Spec) time.Duration {
	switch r.Status {
	case StatusPending, StatusSuspended, StatusDeleting:
		return 0
	}
	if s.Destroy && (r.Phase == string(stack.Destroyed) || r.Phase == string(stack.NothingLeft)) {
		return 0
	}
	return s.Interval
}
