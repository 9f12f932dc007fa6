package schedule

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestBacklogAndPlace(t *testing.T) {
	y := newWorld(Limits{Runs: 1, PerTenant: 9, Memory: 1 << 30})
	start := time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
	now := start
	y.now = func() time.Time { now = now.Add(time.Second); return now }
	y.want("0", "a", Spec, 100)
	y.want("1", "a", Drift, 100)
	y.want("2", "b", Person, 100)
	y.want("3", "b", Drift, 100)
	y.want("4", "b", Drift, 100)
	got, ok := y.Place("4")
	want := Place{Class: "drift", Tenant: "b", Since: start.Add(6 * time.Second), Before: 2, Others: 1, Why: "Waiting for its turn: 1 run may run at once"}
	if diff := cmp.Diff(want, got); !ok || diff != "" {
		t.Errorf("Place() (-want +got):\n%s", diff)
	}
	if _, ok := y.Place("0"); ok {
		t.Error("an object whose run is running has a place in the line")
	}
	backlog := Backlog{
		Running: 1, MaxRuns: 1, MaxPerTenant: 9, Memory: 100 << 20, MaxMemory: 1 << 30, Waiting: 4, OldestSince: start.Add(3 * time.Second),
		Classes: []ClassBacklog{
			{Class: "apply"}, {Class: "person", Waiting: 1, OldestSince: start.Add(4 * time.Second)}, {Class: "spec", Running: 1}, {Class: "upstream"},
			{Class: "drift", Waiting: 3, OldestSince: start.Add(3 * time.Second)},
		},
		Tenants: []TenantBacklog{
			{Tenant: "a", Running: 1, Memory: 100 << 20, Waiting: map[string]int{"drift": 1}, OldestSince: start.Add(3 * time.Second)},
			{Tenant: "b", Waiting: map[string]int{"drift": 2, "person": 1}, OldestSince: start.Add(4 * time.Second)},
		},
	}
	if diff := cmp.Diff(backlog, y.Backlog()); diff != "" {
		t.Errorf("Backlog() (-want +got):\n%s", diff)
	}
	y.lazy = true
	y.Leave("0")
	if got, ok := y.Place("2"); !ok || !got.Called {
		t.Errorf("Place() = %+v, %v; want that it is its turn", got, ok)
	}
}

func TestARunKnowsHowLongItWaited(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	q := New(Limits{Runs: 1}.Always(), Clock{Now: func() time.Time { return now }, After: after})
	admit := func(id string) string { return q.Admit(id, Candidate{Key: nn("ns", id), Tenant: "ns"}) }
	if why := admit("first"); why != "" {
		t.Fatalf("admit() = %q, want the slot", why)
	}
	if why := admit("second"); why == "" {
		t.Fatal("a second run was admitted")
	}
	now = now.Add(5 * time.Second)
	q.Leave("first")
	now = now.Add(time.Second)
	if why := admit("second"); why != "" {
		t.Fatalf("admit() = %q, want the slot that became free", why)
	}
	for id, want := range map[string]time.Duration{"second": 6 * time.Second, "first": 0, "unheard of": 0} {
		if got := q.Waited(id); got != want {
			t.Errorf("Waited(%q) = %v, want %v", id, got, want)
		}
	}
}
