package metrics

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/query"
)

// stackBoard is where stacks are looked up for metrics.
type stackBoard interface {
	All() (rows []*query.Row, ready bool)
	Capacity(slots query.Slots) (query.CapacityInfo, error)
}

// mostTenants have series of their own, those with the most stacks; the others
// share one.
const mostTenants = 500

// otherTenants is whose series they share.
const otherTenants = "other"

// summary is the status of all stacks in numbers.
type summary struct {
	statuses  map[query.Status]int
	phases    map[string]int
	failing   since
	pending   since
	held      since
	drifted   since
	locked    since
	untracked int

	toleratedStacks, toleratedAttributes, toleranceEnds int

	checks  since
	tenants map[string]tally
}

// since counts stacks with a property, and the time since the oldest got it.
type since struct {
	count  int
	oldest time.Duration
}

func (s *since) add(from, now time.Time) {
	s.count++
	s.oldest = max(s.oldest, now.Sub(from))
}

// tally is the part of one tenant.
type tally struct{ stacks, failing, pending, drifted int }

func (t tally) plus(u tally) tally {
	return tally{t.stacks + u.stacks, t.failing + u.failing, t.pending + u.pending, t.drifted + u.drifted}
}

// failures keeps since when stacks fail, by their UIDs: a stack records
// its newest failure only. After a restart it starts again.
type failures struct {
	mu    sync.Mutex
	since map[string]time.Time
}

func (f *failures) summarize(rows []*query.Row, now time.Time) summary {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := summary{statuses: map[query.Status]int{}, phases: map[string]int{}, tenants: map[string]tally{}}
	still := map[string]time.Time{}
	for _, r := range rows {
		s.statuses[r.Status]++
		if r.Phase != "" {
			s.phases[r.Phase]++
		}
		t := tally{stacks: 1}
		if r.Failures > 0 || r.Stalled {
			from, known := f.since[r.UID]
			if !known {
				from = now
			}
			still[r.UID] = from
			s.failing.add(from, now)
			t.failing = 1
		}
		if isPending(r) {
			s.pending.add(r.Plan.At, now)
			t.pending = 1
			if v := r.Verdict; v != nil && v.Effect.Compare(policy.Hold) >= 0 {
				s.held.add(v.At, now)
			}
		}
		if r.Drift != nil {
			s.drifted.add(r.Drift.At, now)
			t.drifted = 1
		}
		if n := r.Tolerated.Total(); n > 0 {
			s.toleratedStacks++
			s.toleratedAttributes += n
			if end := r.Tolerated.NextEnd(); !end.IsZero() && end.Sub(now) <= policy.EndsWithin {
				s.toleranceEnds++
			}
		}
		if r.Lock != nil {
			s.locked.add(lockedSince(r), now)
		}
		if r.Untracked != nil {
			s.untracked++
		}
		if f := r.FailingCheckBlocks; f != nil {
			s.checks.add(f.Since, now)
		}
		tenant := cmp.Or(r.Tenant, r.Namespace)
		s.tenants[tenant] = s.tenants[tenant].plus(t)
	}
	f.since = still
	s.tenants = largest(s.tenants, mostTenants)
	return s
}

// isPending reports whether a stack has a pending plan that is not being applied.
func isPending(r *query.Row) bool {
	return r.Plan != nil && (r.Run == nil || r.Run.Kind != "apply" && r.Run.Kind != "destroy")
}

// lockedSince is the time in the lock, or else the time when the lock was
// found.
func lockedSince(r *query.Row) time.Time {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999 -0700 MST"} {
		if t, err := time.Parse(layout, r.Lock.Since); err == nil {
			return t
		}
	}
	return r.Lock.Seen
}

// largest keeps the most tenants with the most stacks, and adds up the others.
func largest(all map[string]tally, most int) map[string]tally {
	if len(all) <= most {
		return all
	}
	names := make([]string, 0, len(all))
	for n := range all {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(all[b].stacks, all[a].stacks), cmp.Compare(a, b)) })
	kept := map[string]tally{}
	for i, n := range names {
		if i >= most {
			n = otherTenants
		}
		kept[n] = kept[n].plus(all[names[i]])
	}
	return kept
}

// stackGauges are the metrics of the stacks of a board.
func stackGauges(board stackBoard, slots query.Slots, now func() time.Time) prometheus.Collector {
	s := newSheet()
	s.gauge("terrier_stacks", "Stacks by status, as in the list of stacks.", "status")
	s.gauge("terrier_stacks_phase", "Stacks by phase, from status.terrier.phase.", "phase")
	s.gauge("terrier_stacks_failing", "Stacks whose last attempt failed, or that are stalled.")
	s.gauge("terrier_stacks_failing_oldest_seconds", "How long the longest failing stack has been failing, at most since the start of this program.")
	s.gauge("terrier_pending_plans", "Pending plans.")
	s.gauge("terrier_pending_plan_oldest_seconds", "Age of the oldest pending plan.")
	s.gauge("terrier_held_plans", "Pending plans that policies hold or deny.")
	s.gauge("terrier_held_plan_oldest_seconds", "Time since policies judged the oldest of them.")
	s.gauge("terrier_stacks_drifted", "Stacks with drifted resources.")
	s.gauge("terrier_drift_oldest_seconds", "Time since the oldest drift was detected.")
	s.gauge("terrier_stacks_with_tolerated_drift", "Stacks whose resources differ in attributes that a rule lets drift.")
	s.gauge("terrier_tolerated_attributes", "Attributes that differ, and that a rule lets drift.")
	s.gauge("terrier_stacks_with_ending_tolerance", "Stacks with such attributes whose rule ends within 7 days.")
	s.gauge("terrier_state_locks_foreign", "Stacks whose state another holder has locked.")
	s.gauge("terrier_state_lock_oldest_seconds", "Age of the oldest lock of another holder, by its own time, or since it was found.")
	s.gauge("terrier_stacks_with_failing_checks", "Stacks with check blocks that fail.")
	s.gauge("terrier_failing_checks_oldest_seconds", "How long the check blocks of a stack have failed, of the stack where that is longest.")
	s.gauge("terrier_stacks_with_untracked_resources", "Stacks with resources that may exist and are not in the state.")
	s.gauge("terrier_stacks_with_gap", "Deprecated: the same as terrier_stacks_with_untracked_resources.")
	s.gauge("terrier_tenant_stacks", "Stacks by tenant: the label of --tenant-label, or the namespace. The 500 largest have their own series.", "tenant")
	s.gauge("terrier_tenant_stacks_failing", "Failing stacks by tenant.", "tenant")
	s.gauge("terrier_tenant_pending_plans", "Pending plans by tenant.", "tenant")
	s.gauge("terrier_tenant_stacks_drifted", "Drifted stacks by tenant.", "tenant")
	s.gauge("terrier_slots_needed", "Number of slots that are needed to meet the check intervals of all stacks.")
	s.gauge("terrier_tenant_slots_needed", "Number of slots that are needed to meet the check intervals of the stacks of a tenant.", "tenant")
	s.gauge("terrier_check_intervals_met", "1 if --max-runs, --max-runs-per-tenant and --max-runs-per-class leave enough slots to meet the check intervals of all stacks, 0 if not.")
	failing := &failures{}
	s.fill = func(set func(string, float64, ...string)) {
		rows, ready := board.All()
		if !ready {
			return // the stacks are still being read: no number is better than a wrong one
		}
		all := failing.summarize(rows, now())
		all.write(set)
		if c, err := board.Capacity(slots); err == nil {
			writeCapacity(c, all.tenants, set)
		}
	}
	return s
}

func (s summary) write(set func(name string, value float64, labels ...string)) {
	for _, status := range query.Statuses() {
		set("terrier_stacks", float64(s.statuses[status]), string(status))
	}
	for phase, n := range s.phases {
		set("terrier_stacks_phase", float64(n), phase)
	}
	for _, g := range []struct {
		count, oldest string
		since         since
	}{
		{"terrier_stacks_failing", "terrier_stacks_failing_oldest_seconds", s.failing},
		{"terrier_pending_plans", "terrier_pending_plan_oldest_seconds", s.pending},
		{"terrier_held_plans", "terrier_held_plan_oldest_seconds", s.held},
		{"terrier_stacks_drifted", "terrier_drift_oldest_seconds", s.drifted},
		{"terrier_stacks_with_failing_checks", "terrier_failing_checks_oldest_seconds", s.checks},
		{"terrier_state_locks_foreign", "terrier_state_lock_oldest_seconds", s.locked},
	} {
		set(g.count, float64(g.since.count))
		set(g.oldest, g.since.oldest.Seconds())
	}
	set("terrier_stacks_with_tolerated_drift", float64(s.toleratedStacks))
	set("terrier_tolerated_attributes", float64(s.toleratedAttributes))
	set("terrier_stacks_with_ending_tolerance", float64(s.toleranceEnds))
	set("terrier_stacks_with_untracked_resources", float64(s.untracked))
	set("terrier_stacks_with_gap", float64(s.untracked))
	for tenant, t := range s.tenants {
		set("terrier_tenant_stacks", float64(t.stacks), tenant)
		set("terrier_tenant_stacks_failing", float64(t.failing), tenant)
		set("terrier_tenant_pending_plans", float64(t.pending), tenant)
		set("terrier_tenant_stacks_drifted", float64(t.drifted), tenant)
	}
}

// writeCapacity writes what slots are needed, by the tenants that have series of their own.
func writeCapacity(c query.CapacityInfo, tenants map[string]tally, set func(name string, value float64, labels ...string)) {
	met := 0.0
	if c.CycleMet {
		met = 1
	}
	set("terrier_slots_needed", c.SlotsNeeded)
	set("terrier_check_intervals_met", met)
	others := c.SlotsNeeded
	for tenant := range tenants {
		if tenant != otherTenants {
			set("terrier_tenant_slots_needed", c.Tenants[tenant], tenant)
			others -= c.Tenants[tenant]
		}
	}
	if _, ok := tenants[otherTenants]; ok {
		set("terrier_tenant_slots_needed", max(0, others), otherTenants)
	}
}
