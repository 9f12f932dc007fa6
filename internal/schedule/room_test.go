package schedule

import (
	"slices"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/stack"
)

// Objects of all kinds share the slots, and each is woken by its own controller.
func TestKindsShareOneQueue(t *testing.T) {
	q := New(Limits{Runs: 1}.Always(), Clock{Now: time.Now, After: after})
	var woken []string
	for _, kind := range []string{"Terraform", "Stack"} {
		q.Listen(kind, Listener{Wake: func(k Key) { woken = append(woken, kind+" "+k.Name) }})
	}
	request := func(kind, name string) Candidate {
		return Candidate{Key: Key{Kind: kind, Namespace: "ns", Name: name}, Tenant: "ns"}
	}
	if why := q.Admit("1", request("Terraform", "a")); why != "" {
		t.Fatalf("Admit() = %q, want the slot", why)
	}
	for id, kind := range map[string]string{"2": "Stack", "3": "Unknown"} {
		if why := q.Admit(id, request(kind, "a")); why == "" {
			t.Fatalf("%s has a second run", kind)
		}
	}
	q.Leave("3")
	q.Leave("1")
	if want := []string{"Stack a"}; !slices.Equal(woken, want) {
		t.Errorf("woken %v, want %v", woken, want)
	}
}

// The room may change while runs run: what is said then counts for the next
// start, and takes nothing from what runs.
func TestRoomMayChange(t *testing.T) {
	room := Limits{Runs: 1}
	q := New(func() Limits { return room }, Clock{Now: time.Now, After: after})
	admit := func(id string) bool { return q.Admit(id, Candidate{Key: nn("ns", id), Tenant: "ns"}) == "" }
	if !admit("1") || admit("2") {
		t.Fatal("want one run with one slot")
	}
	room.Runs = 2
	if !admit("2") {
		t.Error("the second slot is not given")
	}
	room.Runs = 1
	q.Leave("1")
	if admit("1") {
		t.Error("a second run starts with one slot")
	}
	if b := q.Backlog(); b.Running != 1 || b.MaxRuns != 1 {
		t.Errorf("Backlog() = %+v, want the run that goes on and the room that there is", b)
	}
}

func TestEstimates(t *testing.T) {
	const mib = 1 << 20
	for name, tt := range map[string]struct{ estimate, took, want int64 }{
		"the first run":         {0, 250 * mib, 256 * mib},
		"the same again":        {256 * mib, 250 * mib, 256 * mib},
		"more counts at once":   {256 * mib, 1000 * mib, 1008 * mib},
		"much less, bit by bit": {1008 * mib, 10 * mib, 768 * mib},
		"a little less is less": {768 * mib, 740 * mib, 752 * mib},
		"no less than it took":  {32 * mib, 10 * mib, 16 * mib},
	} {
		if got := Observe(tt.estimate, tt.took); got != tt.want {
			t.Errorf("%s: Observe() = %d MiB, want %d", name, got/mib, tt.want/mib)
		}
	}
	for name, tt := range map[string]struct {
		kind           stack.RunKind
		observed, most int64
		want           int64
	}{
		"nothing is known":         {stack.PlanRun, 0, 0, UnknownMemory},
		"what was observed":        {stack.PlanRun, 100 * mib, 0, 100 * mib},
		"no more than it may take": {stack.PlanRun, 900 * mib, 700 * mib, 700 * mib},
		"a check of the health":    {stack.HealthRun, 900 * mib, 0, healthMemory},
	} {
		if got := Memory(tt.kind, tt.observed, tt.most); got != tt.want {
			t.Errorf("%s: Memory() = %d MiB, want %d", name, got/mib, tt.want/mib)
		}
	}
}

// One object of a tenant goes first, until it is reconciled.
func TestNewcomers(t *testing.T) {
	var n Newcomers
	one, two := nn("ns", "1"), nn("ns", "2")
	if !n.Take("t", one) || n.Take("t", two) || !n.Take("u", two) {
		t.Error("want the first of each tenant, and no other")
	}
	n.Reconciled(one)
	if !n.Take("t", two) {
		t.Error("the next one does not go first after the first was reconciled")
	}
}
