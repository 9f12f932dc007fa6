package query

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/stack"
)

// CapacityInfo says whether every stack can be checked at its interval.
type CapacityInfo struct {
	Stacks      int           `json:"stacks"`      // that have drift checks
	SlotsNeeded float64       `json:"slotsNeeded"` // runs at once that are needed: the sum of run time by interval
	Slots       int           `json:"slots"`       // runs that may go on at once
	RunSeconds  float64       `json:"runSeconds"`  // of one check, on average
	Measured    int           `json:"measured"`    // stacks whose run time is known; others count as the average
	Interval    time.Duration `json:"interval"`    // the average interval; nanoseconds
	Cycle       time.Duration `json:"cycle"`       // how long one check of each takes with all slots; nanoseconds
	CycleMet    bool          `json:"cycleMet"`
	Warning     string        `json:"warning,omitempty"` // what to do if it is not

	Tenants map[string]float64 `json:"-"` // what each tenant needs of SlotsNeeded; a caller may not see all of them
	tight   int                // tenants that need more than one tenant may have
	most    float64            // what the one of these needs that needs most
}

// Slots bound the drift checks that go on at once.
type Slots struct {
	Runs      int // --max-runs
	Checks    int // of them those that drift checks may take; 0 is all
	PerTenant int // 0 is no limit
}

// SlotsOf are those of a queue.
func SlotsOf(b schedule.Backlog) Slots {
	s := Slots{Runs: b.MaxRuns, PerTenant: b.MaxPerTenant}
	for _, c := range b.Classes {
		if c.Class == schedule.Drift.String() {
			s.Checks = c.MaxRuns
		}
	}
	return s
}

// forChecks is how many drift checks may go on at once, and by which flag.
func (s Slots) forChecks() (int, string) {
	if s.Checks > 0 && (s.Runs == 0 || s.Checks < s.Runs) {
		return s.Checks, "--max-runs-per-class drift"
	}
	return s.Runs, "--max-runs"
}

// Checked is a stack with drift checks.
type Checked struct {
	Tenant string
	Every  time.Duration // between two checks
	Took   time.Duration // of one check; 0 if unknown
}

// headroom is the part of the slots that checks may take without a warning: runs
// that change resources need slots as well.
const headroom = 0.8

// longest is the longest interval of drift checks: a stack with a longer one is
// checked only when something changes.
const longest = 10 * 365 * 24 * time.Hour

// Capacity says whether slots are enough for the drift checks of stacks.
func Capacity(stacks []Checked, limits Slots) CapacityInfo {
	slots, _ := limits.forChecks()
	c := CapacityInfo{Slots: slots, CycleMet: true, Tenants: map[string]float64{}}
	var took time.Duration
	var rate float64 // checks per second
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
		return c // no run time is known
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
		c.Tenants[s.Tenant] += one.Seconds() / s.Every.Seconds()
	}
	for _, needed := range c.Tenants {
		if limits.PerTenant > 0 && needed > float64(limits.PerTenant) {
			c.tight++
			c.most = max(c.most, needed)
		}
	}
	c.CycleMet = (slots == 0 || c.SlotsNeeded <= float64(slots)) && c.tight == 0
	if slots > 0 {
		c.Cycle = all / time.Duration(slots)
	}
	c.Warning = strings.Join(slices.DeleteFunc([]string{c.warn(limits), c.warnOfTenants(limits)}, func(s string) bool { return s == "" }), " ")
	return c
}

// warn says what all stacks need that is not there.
func (c CapacityInfo) warn(limits Slots) string {
	if c.Slots == 0 || c.SlotsNeeded <= headroom*float64(c.Slots) {
		return ""
	}
	_, flag := limits.forChecks()
	enough := int(math.Ceil(c.SlotsNeeded / headroom))
	asks := fmt.Sprintf("Drift checks of %s every %s need %.1f runs at once, and %s is %d", Count(c.Stacks, "stack"), roughly(c.Interval), c.SlotsNeeded, flag, c.Slots)
	switch {
	case c.SlotsNeeded > float64(c.Slots):
		longer := time.Duration(float64(c.Interval) * c.SlotsNeeded / headroom / float64(c.Slots))
		return fmt.Sprintf("%s: checks start later than their interval. Set %s to %d, or the intervals of the stacks to %s.", asks, flag, enough, roughly(longer))
	case c.Slots < limits.Runs:
		return "" // applies have slots that checks do not take
	default:
		return fmt.Sprintf("%s: applies may have to wait. Set %s to %d.", asks, flag, enough)
	}
}

// warnOfTenants says what single tenants need that one tenant may not have. It names
// none: not every reader may know of each.
func (c CapacityInfo) warnOfTenants(limits Slots) string {
	if c.tight == 0 {
		return ""
	}
	return fmt.Sprintf("Drift checks of %s need more than --max-runs-per-tenant allows, which is %d, and start later than their interval. The largest needs %.1f runs at once. Set --max-runs-per-tenant to %d, or longer intervals.",
		Count(c.tight, "tenant"), limits.PerTenant, c.most, int(math.Ceil(c.most/headroom)))
}

// roughly is d, rounded up, for people.
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

// Capacity says whether slots are enough for the drift checks of all stacks, by how
// long their last checks took.
func (b *Board) Capacity(slots Slots) (CapacityInfo, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if !b.synced {
		return CapacityInfo{}, errNotReady
	}
	checked := make([]Checked, 0, len(b.order))
	for _, e := range b.order {
		checked = append(checked, Checked{Tenant: e.row.Tenant, Every: e.every, Took: e.took})
	}
	return Capacity(checked, slots), nil
}

// Ran records how long a successful run of a stack took. Only plans and drift checks
// count, which return at every interval; the newest weighs a quarter, so that one
// slow answer of a cloud does not decide.
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

// Measure reads from the records how long the last drift check of each stack took.
// Stacks that have run since are left as they are.
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

// checksEvery is the interval of the drift checks of a stack; 0 if it has none until
// a user or an event changes its status.
func checksEvery(r Row, s stack.Spec) time.Duration {
	switch r.Status {
	case StatusPending, StatusSuspended, StatusDeleting:
		return 0
	case StatusRejected:
		if r.Drift == nil {
			return 0
		}
	}
	if s.Destroy && (r.Phase == string(stack.Destroyed) || r.Phase == string(stack.NothingLeft)) {
		return 0
	}
	return s.Interval
}
