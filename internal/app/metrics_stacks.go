package app

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/terrier-iac/terrier/internal/query"
)

// stackBoard is where stacks are looked up for metrics.
type stackBoard interface {
	All() (rows []*query.Row, ready bool)
	Capacity(slots int) (query.CapacityInfo, error)
}

// mostTenants have series of their own, those with the most stacks; the others
// share one.
const mostTenants = 500

// otherTenants is whose series they share.
const otherTenants = "other"

// standing is how all stacks stand, in numbers.
type standing struct {
	statuses map[query.Status]int
	phases   map[string]int
	failing  since
	pending  since
	drifted  since
	locked   since
	gaps     int
	tenants  map[string]tally
}

// since counts what is so, and says how long the oldest has been.
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

// failures remembers since when stacks fail, by their UIDs: a stack remembers
// its newest failure only. After a restart it begins anew.
type failures struct {
	mu    sync.Mutex
	since map[string]time.Time
}

// stand counts rows. It is the only caller of failures that writes.
func (f *failures) stand(rows []*query.Row, now time.Time) standing {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := standing{statuses: map[query.Status]int{}, phases: map[string]int{}, tenants: map[string]tally{}}
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
		if waitsForSomebody(r) {
			s.pending.add(r.Plan.At, now)
			t.pending = 1
		}
		if r.Drift != nil {
			s.drifted.add(r.Drift.At, now)
			t.drifted = 1
		}
		if r.Lock != nil {
			s.locked.add(lockedSince(r), now)
		}
		if r.Untracked != nil {
			s.gaps++
		}
		tenant := cmp.Or(r.Tenant, r.Namespace)
		s.tenants[tenant] = s.tenants[tenant].plus(t)
	}
	f.since = still
	s.tenants = largest(s.tenants, mostTenants)
	return s
}

// waitsForSomebody reports whether a plan waits that is not just being applied.
func waitsForSomebody(r *query.Row) bool {
	return r.Plan != nil && (r.Run == nil || r.Run.Kind != "apply" && r.Run.Kind != "destroy")
}

// lockedSince is when the holder of a lock says that it took it, or else when it
// was met.
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

// stackGauges says how the stacks of a board stand.
func stackGauges(board stackBoard, slots int, now func() time.Time) prometheus.Collector {
	s := newSheet()
	s.gauge("terrier_stacks", "Stacks by status, in the words of the list of stacks.", "status")
	s.gauge("terrier_stacks_phase", "Stacks by phase, as status.terrier.phase has it.", "phase")
	s.gauge("terrier_stacks_failing", "Stacks whose last attempt failed, or of which somebody must do something.")
	s.gauge("terrier_stacks_failing_oldest_seconds", "How long one stack has been failing without a break, at most since the start of this program.")
	s.gauge("terrier_pending_plans", "Plans that wait for an approval.")
	s.gauge("terrier_pending_plan_oldest_seconds", "How long the oldest plan has waited for an approval.")
	s.gauge("terrier_stacks_drifted", "Stacks of which the world is not what was applied.")
	s.gauge("terrier_drift_oldest_seconds", "How long the oldest drift has been known.")
	s.gauge("terrier_state_locks_foreign", "Stacks whose state somebody else has locked.")
	s.gauge("terrier_state_lock_oldest_seconds", "Age of the oldest lock of a state that somebody else holds, as they say, or since it was met.")
	s.gauge("terrier_stacks_with_gap", "Stacks with something that was built and is in no state.")
	s.gauge("terrier_tenant_stacks", "Stacks by tenant: the label of --tenant-label, or the namespace. The 500 largest have their own series.", "tenant")
	s.gauge("terrier_tenant_stacks_failing", "Failing stacks by tenant.", "tenant")
	s.gauge("terrier_tenant_pending_plans", "Plans that wait, by tenant.", "tenant")
	s.gauge("terrier_tenant_stacks_drifted", "Drifted stacks by tenant.", "tenant")
	s.gauge("terrier_slots_needed", "Runs at once that it takes to look at every stack as often as it asks for.")
	failing := &failures{}
	s.fill = func(set func(string, float64, ...string)) {
		rows, ready := board.All()
		if !ready {
			return // they are being read: no number is better than a wrong one
		}
		failing.stand(rows, now()).write(set)
		if c, err := board.Capacity(slots); err == nil {
			set("terrier_slots_needed", c.SlotsNeeded)
		}
	}
	return s
}

func (s standing) write(set func(name string, value float64, labels ...string)) {
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
		{"terrier_stacks_drifted", "terrier_drift_oldest_seconds", s.drifted},
		{"terrier_state_locks_foreign", "terrier_state_lock_oldest_seconds", s.locked},
	} {
		set(g.count, float64(g.since.count))
		set(g.oldest, g.since.oldest.Seconds())
	}
	set("terrier_stacks_with_gap", float64(s.gaps))
	for tenant, t := range s.tenants {
		set("terrier_tenant_stacks", float64(t.stacks), tenant)
		set("terrier_tenant_stacks_failing", float64(t.failing), tenant)
		set("terrier_tenant_pending_plans", float64(t.pending), tenant)
		set("terrier_tenant_stacks_drifted", float64(t.drifted), tenant)
	}
}
