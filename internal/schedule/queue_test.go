package schedule

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func nn(ns, name string) Key { return Key{Kind: "stack", Namespace: ns, Name: name} }

// world is a queue with objects that take their slots as soon as they are woken.
type world struct {
	*Queue
	now     func() time.Time
	asks    map[string]Candidate
	called  []string
	started []string // in the order in which they took up their slots
	lazy    bool     // no object takes its slot
}

// after is a timer, of the bubble in tests with synctest.
func after(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }

func newWorld(l Limits) *world {
	y := &world{asks: map[string]Candidate{}, now: time.Now}
	y.Queue = New(func() Limits { return l }, Clock{Now: func() time.Time { return y.now() }, After: after})
	y.Listen("stack", Listener{Wake: func(k Key) { y.called = append(y.called, k.Name) }})
	return y
}

// want asks for a run, or for another class of it.
func (y *world) want(id, tenant string, c Class, mib int64) string {
	y.asks[id] = Candidate{Key: nn(tenant, id), Class: c, Tenant: tenant, Memory: mib << 20}
	why := y.Admit(id, y.asks[id])
	if why == "" {
		y.started = append(y.started, id)
	}
	y.come()
	return why
}

// end ends a run.
func (y *world) end(id string) {
	y.Leave(id)
	y.come()
}

// endOldest ends the run that has been running for longest.
func (y *world) endOldest() {
	for _, id := range y.started {
		if y.isRunning(id) {
			y.end(id)
			return
		}
	}
}

func (y *world) come() {
	for !y.lazy && len(y.called) > 0 {
		id := y.called[0]
		y.called = y.called[1:]
		if s := y.scheduler.slots[id]; s == nil || !s.reserved() {
			continue // it left in the meantime
		}
		if y.Admit(id, y.asks[id]) == "" {
			y.started = append(y.started, id)
		}
	}
}

func (y *world) isRunning(id string) bool {
	s := y.scheduler.slots[id]
	return s != nil && !s.reserved()
}

// drain ends runs until none waits.
func (y *world) drain() []string {
	for len(y.scheduler.slots) > 0 {
		y.endOldest()
	}
	return y.started
}

func TestQueueOrder(t *testing.T) {
	type wants struct {
		id, tenant string
		class      Class
	}
	for name, tt := range map[string]struct {
		limits Limits
		wants  []wants
		want   string // in the order in which they start
	}{
		"in the order of asking":               {Limits{Runs: 1}, []wants{{"1", "a", Spec}, {"2", "a", Spec}, {"3", "a", Spec}}, "1 2 3"},
		"deletes and applies first":            {Limits{Runs: 1}, []wants{{"1", "a", Drift}, {"2", "a", Drift}, {"3", "a", Upstream}, {"4", "a", Spec}, {"5", "a", Person}, {"6", "a", Apply}}, "1 6 5 4 3 2"},
		"the class before the tenant":          {Limits{Runs: 1}, []wants{{"1", "a", Drift}, {"2", "a", Apply}, {"3", "b", Drift}}, "1 2 3"},
		"fair over tenants":                    {Limits{Runs: 2}, []wants{{"1", "a", Spec}, {"2", "a", Spec}, {"3", "a", Spec}, {"4", "b", Spec}}, "1 2 4 3"},
		"fair with one slot":                   {Limits{Runs: 1}, []wants{{"1", "a", Drift}, {"2", "a", Drift}, {"3", "a", Drift}, {"4", "b", Drift}, {"5", "c", Drift}}, "1 4 5 2 3"},
		"a tenant at its limit lets others by": {Limits{Runs: 3, PerTenant: 1}, []wants{{"1", "a", Apply}, {"2", "a", Apply}, {"3", "a", Apply}, {"4", "b", Drift}}, "1 4 2 3"},
		"a more urgent class goes up":          {Limits{Runs: 1}, []wants{{"1", "a", Drift}, {"2", "a", Drift}, {"3", "a", Drift}, {"3", "a", Person}}, "1 3 2"},
		"a class at its limit lets others by":  {Limits{Runs: 3, PerClass: PerClass{Drift: 1}}, []wants{{"1", "a", Drift}, {"2", "a", Drift}, {"3", "b", Drift}, {"4", "b", Spec}, {"5", "a", Person}}, "1 4 5 3 2"},
		"asking again keeps the place":         {Limits{Runs: 1}, []wants{{"1", "a", Drift}, {"2", "a", Drift}, {"3", "a", Drift}, {"2", "a", Drift}}, "1 2 3"},
	} {
		t.Run(name, func(t *testing.T) {
			y := newWorld(tt.limits)
			for _, w := range tt.wants {
				y.want(w.id, w.tenant, w.class, 1)
			}
			if got := strings.Join(y.drain(), " "); got != tt.want {
				t.Errorf("started %s, want %s", got, tt.want)
			}
			if len(y.scheduler.waiting)+len(y.scheduler.tenants) != 0 || y.scheduler.charged != 0 {
				t.Errorf("%d wait, %d tenants are known and %d bytes are charged at the end, want none", len(y.scheduler.waiting), len(y.scheduler.tenants), y.scheduler.charged)
			}
		})
	}
}

func TestQueueWithMemory(t *testing.T) {
	for name, tt := range map[string]struct {
		limit int64 // MiB
		sizes []int64
		want  string // running after they asked, in that order
	}{
		"as many as fit":                       {100, []int64{40, 40, 40}, "0 1"},
		"a smaller one goes by":                {100, []int64{60, 60, 40}, "0 2"},
		"one that is larger than all is alone": {100, []int64{400, 1}, "0"},
		"and waits until it is":                {100, []int64{10, 400}, "0"},
		"no limit":                             {0, []int64{400, 400, 400}, "0 1 2"},
	} {
		t.Run(name, func(t *testing.T) {
			y := newWorld(Limits{Runs: 10, Memory: tt.limit << 20})
			for i, mib := range tt.sizes {
				y.want(fmt.Sprint(i), "a", Spec, mib)
			}
			if got := strings.Join(y.started, " "); got != tt.want {
				t.Errorf("running %s, want %s", got, tt.want)
			}
			if got := y.drain(); len(got) != len(tt.sizes) {
				t.Errorf("%d of %d started in the end", len(got), len(tt.sizes))
			}
		})
	}
}

// A large run is passed by smaller ones, but not for ever.
func TestQueueKeepsRoomForALargeRun(t *testing.T) {
	y := newWorld(Limits{Runs: 10, Memory: 100 << 20})
	y.want("small-0", "a", Spec, 30)
	y.want("small-1", "a", Spec, 30)
	y.want("large", "b", Spec, 90)
	for i := 2; i < 4*maxPassed && !y.isRunning("large"); i++ {
		y.want(fmt.Sprintf("small-%d", i), "a", Spec, 30)
		if i%2 == 0 {
			y.endOldest()
		}
	}
	if !y.isRunning("large") {
		t.Fatalf("the large run has not started after %d smaller ones", len(y.started))
	}
	if passed := len(y.started) - 1; passed > maxPassed+3 {
		t.Errorf("%d smaller ones went before the large one, want no more than %d", passed, maxPassed+3)
	}
}

// One tenant queues a thousand runs, another one: it starts before two more
// runs of the first have come to their end on each slot.
func TestQueueIsFairToALateTenant(t *testing.T) {
	for _, slots := range []int{1, 2, 4, 16} {
		y := newWorld(Limits{Runs: slots})
		for i := range 1000 {
			y.want(fmt.Sprint("a", i), "a", Spec, 1)
		}
		y.want("b", "b", Spec, 1)
		ends := 0
		for ; !y.isRunning("b"); ends++ {
			y.endOldest()
		}
		if ends > slots {
			t.Errorf("with %d slots the one run of the other tenant started after %d others ended, want one round", slots, ends)
		}
	}
}

// However many applies there are, what is less urgent moves on, and takes no
// more than its share.
func TestQueueStarvesNoClass(t *testing.T) {
	y := newWorld(Limits{Runs: 4})
	for i := range 1000 {
		y.want(fmt.Sprint("apply", i), "a", Apply, 1)
	}
	for c := Person; c < classes; c++ {
		y.want(c.String(), "b", c, 1)
		for i := range 100 {
			y.want(fmt.Sprint(c, i), "a", c, 1)
		}
	}
	for range 400 {
		y.endOldest()
	}
	applies := 0
	for i, id := range y.started {
		if strings.HasPrefix(id, "apply") {
			applies++
		}
		if limit := 4 + 3*maxPassed; id == Drift.String() && i > limit {
			t.Errorf("the drift check of the other tenant started as number %d, want within %d", i, limit)
		}
	}
	if !slices.Contains(y.started, Drift.String()) {
		t.Error("the drift check of the other tenant has not started")
	}
	if share := float64(applies) / float64(len(y.started)); share < 0.7 {
		t.Errorf("applies had %.0f %% of the starts, want at least 70", 100*share)
	}
}

// A tenant's own applies, at its limit, do not starve its own drift checks
// while the drift checks of another tenant go on.
func TestQueueStarvesNoClassOfATenant(t *testing.T) {
	y := newWorld(Limits{Runs: 4, PerTenant: 2})
	for i := range 200 {
		y.want(fmt.Sprint("apply", i), "a", Apply, 1)
		y.want(fmt.Sprint("check", i), "b", Drift, 1)
	}
	y.want("mine", "a", Drift, 1)
	for range 4 * maxPassed {
		y.endOldest()
	}
	if !slices.Contains(y.started, "mine") {
		t.Errorf("the drift check of the tenant has not started after %d others", len(y.started))
	}
}

// A tenant that always has applies has its turn in a class with one slot, too: also when
// the class and the tenant are never free at the same moment.
func TestQueueStarvesNoTenantOfAClassWithALimit(t *testing.T) {
	for _, perTenant := range []int{0, 1} {
		y := newWorld(Limits{Runs: 2, PerTenant: perTenant, PerClass: PerClass{Spec: 1}})
		for i := range 200 {
			y.want(fmt.Sprint("apply", i), "a", Apply, 1)
			y.want(fmt.Sprint("change", i), "b", Spec, 1)
		}
		y.want("mine", "a", Spec, 1)
		for range 4 * maxPassed {
			y.endOldest()
		}
		if !slices.Contains(y.started, "mine") {
			t.Errorf("with %d runs for a tenant: its change has not started after %d others", perTenant, len(y.started))
		}
	}
}

func TestQueueForgetsWhatLeaves(t *testing.T) {
	y := newWorld(Limits{Runs: 1})
	for _, id := range []string{"1", "gone", "2", "3"} {
		y.want(id, "a", Spec, 1)
	}
	y.lazy = true
	y.Leave("gone") // while it waits
	y.Leave("1")
	y.Leave("2") // while a slot is held for it
	if !slices.Equal(y.called, []string{"2", "3"}) {
		t.Errorf("called %v, want those that still waited, one after the other", y.called)
	}
	if why := y.want("3", "a", Spec, 1); why != "" {
		t.Errorf("admit() = %q, want a slot", why)
	}
}

// An object that does not take its slot costs the slot for a while, not for ever,
// and is woken again.
func TestQueueHandsOnWhatIsNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newWorld(Limits{Runs: 1})
		for _, id := range []string{"1", "late", "2"} {
			y.want(id, "a", Spec, 1)
		}
		y.lazy = true
		y.Leave("1")
		<-time.After(slotReservation) // of the bubble
		synctest.Wait()
		if !slices.Equal(y.called, []string{"late", "2"}) {
			t.Fatalf("called %v, want the next one after the one that did not come", y.called)
		}
		if why := y.want("late", "a", Spec, 1); why == "" {
			t.Error("the one that came too late took the slot of another")
		}
		if why := y.want("2", "a", Spec, 1); why != "" {
			t.Errorf("the next one has no slot: %s", why)
		}
		<-time.After(2 * slotReservation)
		synctest.Wait()
		if !y.isRunning("2") {
			t.Error("a slot that was taken up was taken back")
		}
		y.Leave("2")
		if got := y.called[len(y.called)-1]; got != "late" {
			t.Errorf("called %s last, want the one that was late", got)
		}
		y.Leave("late")
	})
}

// A reconcile that cannot tell whether its object has a run frees no slot of a run.
func TestQueueWithdraw(t *testing.T) {
	y := newWorld(Limits{Runs: 1})
	y.want("runs", "a", Spec, 1)
	y.want("waits", "a", Spec, 1)
	y.want("next", "a", Spec, 1)
	y.Withdraw("runs")
	y.Withdraw("waits")
	if !y.isRunning("runs") || len(y.scheduler.waiting) != 1 {
		t.Errorf("running %v, %d wait; want the run and the one that did not withdraw", y.isRunning("runs"), len(y.scheduler.waiting))
	}
	y.lazy = true
	y.Leave("runs")
	y.Withdraw("next")
	if len(y.scheduler.slots) != 0 {
		t.Errorf("%d slots are held for objects that want none", len(y.scheduler.slots))
	}
}

func TestQueueSaysWhatIsWaitedFor(t *testing.T) {
	for name, tt := range map[string]struct {
		limits Limits
		want   string
	}{
		"all slots":  {Limits{Runs: 2}, "Waiting for its turn: 2 runs may run at once"},
		"its class":  {Limits{Runs: 9, PerClass: PerClass{Spec: 2}}, "Waiting for its turn: 2 runs of the class spec may run at once"},
		"its tenant": {Limits{Runs: 9, PerTenant: 2}, "Waiting for its turn: 2 runs of the tenant a may run at once"},
		"memory":     {Limits{Runs: 9, Memory: 1000 << 20}, "Waiting for memory: the run takes 400 MiB, and all runs may take 1000 MiB together"},
	} {
		t.Run(name, func(t *testing.T) {
			y := newWorld(tt.limits)
			for i := range 5 {
				y.want(fmt.Sprint(i), "a", Spec, 400)
			}
			for range 3 {
				if got := y.want("4", "a", Spec, 400); got != tt.want {
					t.Errorf("admit() = %q, want %q", got, tt.want)
				}
				y.endOldest() // others move on, and it says the same
			}
		})
	}
}

// Ten thousand objects of a hundred tenants wait, and one run after another ends.
func BenchmarkQueue(b *testing.B) {
	for _, tenants := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprintf("tenants=%d", tenants), func(b *testing.B) {
			y := newWorld(Limits{Runs: 16, Memory: 8 << 30})
			for i := range 10_000 {
				y.want(fmt.Sprint(i), fmt.Sprint("t", i%tenants), Class(i%int(classes)), 256)
			}
			next := slices.Sorted(maps.Keys(y.scheduler.slots))
			for b.Loop() {
				id := next[0]
				a := y.asks[id]
				y.Leave(id)
				y.Admit(id, a) // it wants to run again
				for _, k := range y.called {
					y.Admit(k, y.asks[k])
				}
				next, y.called = append(next[1:], y.called...), y.called[:0]
			}
			if len(y.scheduler.waiting)+len(y.scheduler.slots) != 10_000 {
				b.Fatalf("%d wait and %d are running", len(y.scheduler.waiting), len(y.scheduler.slots))
			}
		})
	}
}
