package controller

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func nn(ns, name string) types.NamespacedName { return types.NamespacedName{Namespace: ns, Name: name} }

// yard is a queue with stacks that come as soon as they are called.
type yard struct {
	*queue
	asks    map[string]ask
	called  []string
	started []string // in the order in which they took up their slots
	lazy    bool     // nobody comes
}

func newYard(l limits) *yard {
	y := &yard{asks: map[string]ask{}}
	y.queue = newQueue(l, func(k types.NamespacedName) { y.called = append(y.called, k.Name) }, time.Now)
	return y
}

// want asks for a run, or for another class of it.
func (y *yard) want(id, tenant string, c class, mib int64) string {
	y.asks[id] = ask{key: nn(tenant, id), class: c, tenant: tenant, memory: mib << 20}
	why := y.admit(id, y.asks[id])
	if why == "" {
		y.started = append(y.started, id)
	}
	y.come()
	return why
}

// end ends a run.
func (y *yard) end(id string) {
	y.leave(id)
	y.come()
}

// endOldest ends the run that has been at work for longest.
func (y *yard) endOldest() {
	for _, id := range y.started {
		if y.atWork(id) {
			y.end(id)
			return
		}
	}
}

func (y *yard) come() {
	for !y.lazy && len(y.called) > 0 {
		id := y.called[0]
		y.called = y.called[1:]
		if s := y.slots[id]; s == nil || s.called == nil {
			continue // it left in the meantime
		}
		if y.admit(id, y.asks[id]) == "" {
			y.started = append(y.started, id)
		}
	}
}

func (y *yard) atWork(id string) bool { s := y.slots[id]; return s != nil && s.called == nil }

// drain ends runs until nobody waits.
func (y *yard) drain() []string {
	for len(y.slots) > 0 {
		y.endOldest()
	}
	return y.started
}

func TestQueueOrder(t *testing.T) {
	type wants struct {
		id, tenant string
		class      class
	}
	for name, tt := range map[string]struct {
		limits limits
		wants  []wants
		want   string // in the order in which they start
	}{
		"in the order of asking":               {limits{runs: 1}, []wants{{"1", "a", changed}, {"2", "a", changed}, {"3", "a", changed}}, "1 2 3"},
		"deletes and applies first":            {limits{runs: 1}, []wants{{"1", "a", idle}, {"2", "a", idle}, {"3", "a", upstream}, {"4", "a", changed}, {"5", "a", asked}, {"6", "a", writing}}, "1 6 5 4 3 2"},
		"the class before the tenant":          {limits{runs: 1}, []wants{{"1", "a", idle}, {"2", "a", writing}, {"3", "b", idle}}, "1 2 3"},
		"fair over tenants":                    {limits{runs: 2}, []wants{{"1", "a", changed}, {"2", "a", changed}, {"3", "a", changed}, {"4", "b", changed}}, "1 2 4 3"},
		"fair with one slot":                   {limits{runs: 1}, []wants{{"1", "a", idle}, {"2", "a", idle}, {"3", "a", idle}, {"4", "b", idle}, {"5", "c", idle}}, "1 4 5 2 3"},
		"a tenant at its limit lets others by": {limits{runs: 3, perTenant: 1}, []wants{{"1", "a", writing}, {"2", "a", writing}, {"3", "a", writing}, {"4", "b", idle}}, "1 4 2 3"},
		"who asks for more goes up":            {limits{runs: 1}, []wants{{"1", "a", idle}, {"2", "a", idle}, {"3", "a", idle}, {"3", "a", asked}}, "1 3 2"},
		"who asks again keeps its place":       {limits{runs: 1}, []wants{{"1", "a", idle}, {"2", "a", idle}, {"3", "a", idle}, {"2", "a", idle}}, "1 2 3"},
	} {
		t.Run(name, func(t *testing.T) {
			y := newYard(tt.limits)
			for _, w := range tt.wants {
				y.want(w.id, w.tenant, w.class, 1)
			}
			if got := strings.Join(y.drain(), " "); got != tt.want {
				t.Errorf("started %s, want %s", got, tt.want)
			}
			if len(y.waiting)+len(y.tenants) != 0 || y.charged != 0 {
				t.Errorf("%d wait, %d tenants are known and %d bytes are charged at the end, want none", len(y.waiting), len(y.tenants), y.charged)
			}
		})
	}
}

func TestQueueWithMemory(t *testing.T) {
	for name, tt := range map[string]struct {
		limit int64 // MiB
		sizes []int64
		want  string // at work after they asked, in that order
	}{
		"as many as fit":                       {100, []int64{40, 40, 40}, "0 1"},
		"a smaller one goes by":                {100, []int64{60, 60, 40}, "0 2"},
		"one that is larger than all is alone": {100, []int64{400, 1}, "0"},
		"and waits until it is":                {100, []int64{10, 400}, "0"},
		"no limit":                             {0, []int64{400, 400, 400}, "0 1 2"},
	} {
		t.Run(name, func(t *testing.T) {
			y := newYard(limits{runs: 10, memory: tt.limit << 20})
			for i, mib := range tt.sizes {
				y.want(fmt.Sprint(i), "a", changed, mib)
			}
			if got := strings.Join(y.started, " "); got != tt.want {
				t.Errorf("at work %s, want %s", got, tt.want)
			}
			if got := y.drain(); len(got) != len(tt.sizes) {
				t.Errorf("%d of %d started in the end", len(got), len(tt.sizes))
			}
		})
	}
}

// A large run is passed by smaller ones, but not for ever.
func TestQueueKeepsRoomForALargeRun(t *testing.T) {
	y := newYard(limits{runs: 10, memory: 100 << 20})
	y.want("small-0", "a", changed, 30)
	y.want("small-1", "a", changed, 30)
	y.want("large", "b", changed, 90)
	for i := 2; i < 4*patience && !y.atWork("large"); i++ {
		y.want(fmt.Sprintf("small-%d", i), "a", changed, 30)
		if i%2 == 0 {
			y.endOldest()
		}
	}
	if !y.atWork("large") {
		t.Fatalf("the large run has not started after %d smaller ones", len(y.started))
	}
	if passed := len(y.started) - 1; passed > patience+3 {
		t.Errorf("%d smaller ones went before the large one, want no more than %d", passed, patience+3)
	}
}

// One tenant queues a thousand runs, another one: it starts before two more
// runs of the first have come to their end on each slot.
func TestQueueIsFairToALateTenant(t *testing.T) {
	for _, slots := range []int{1, 2, 4, 16} {
		y := newYard(limits{runs: slots})
		for i := range 1000 {
			y.want(fmt.Sprint("a", i), "a", changed, 1)
		}
		y.want("b", "b", changed, 1)
		ends := 0
		for ; !y.atWork("b"); ends++ {
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
	y := newYard(limits{runs: 4})
	for i := range 1000 {
		y.want(fmt.Sprint("apply", i), "a", writing, 1)
	}
	for c := asked; c < classes; c++ {
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
		if limit := 4 + 3*patience; id == idle.String() && i > limit {
			t.Errorf("the look for drift of the other tenant started as number %d, want within %d", i, limit)
		}
	}
	if !slices.Contains(y.started, idle.String()) {
		t.Error("the look for drift of the other tenant has not started")
	}
	if share := float64(applies) / float64(len(y.started)); share < 0.7 {
		t.Errorf("applies had %.0f %% of the starts, want at least 70", 100*share)
	}
}

// A tenant's own applies, at its limit, do not starve its own looks for drift
// while another tenant's looks go on.
func TestQueueStarvesNoClassOfATenant(t *testing.T) {
	y := newYard(limits{runs: 4, perTenant: 2})
	for i := range 200 {
		y.want(fmt.Sprint("apply", i), "a", writing, 1)
		y.want(fmt.Sprint("look", i), "b", idle, 1)
	}
	y.want("mine", "a", idle, 1)
	for range 4 * patience {
		y.endOldest()
	}
	if !slices.Contains(y.started, "mine") {
		t.Errorf("the tenant's look for drift has not started after %d others", len(y.started))
	}
}

func TestQueueForgetsWhoLeaves(t *testing.T) {
	y := newYard(limits{runs: 1})
	for _, id := range []string{"1", "gone", "2", "3"} {
		y.want(id, "a", changed, 1)
	}
	y.lazy = true
	y.leave("gone") // while it waits
	y.leave("1")
	y.leave("2") // while a slot is held for it
	if !slices.Equal(y.called, []string{"2", "3"}) {
		t.Errorf("called %v, want those that still waited, one after the other", y.called)
	}
	if why := y.want("3", "a", changed, 1); why != "" {
		t.Errorf("admit() = %q, want a slot", why)
	}
}

// A stack that does not come for its slot costs it for a while, not for ever,
// and is called again.
func TestQueueHandsOnWhatIsNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(limits{runs: 1})
		for _, id := range []string{"1", "late", "2"} {
			y.want(id, "a", changed, 1)
		}
		y.lazy = true
		y.leave("1")
		<-time.After(callTime) // of the bubble
		synctest.Wait()
		if !slices.Equal(y.called, []string{"late", "2"}) {
			t.Fatalf("called %v, want the next one after the one that did not come", y.called)
		}
		if why := y.want("late", "a", changed, 1); why == "" {
			t.Error("the one that came too late took the slot of another")
		}
		if why := y.want("2", "a", changed, 1); why != "" {
			t.Errorf("the next one has no slot: %s", why)
		}
		<-time.After(2 * callTime)
		synctest.Wait()
		if !y.atWork("2") {
			t.Error("a slot that was taken up was taken back")
		}
		y.leave("2")
		if got := y.called[len(y.called)-1]; got != "late" {
			t.Errorf("called %s last, want the one that was late", got)
		}
		y.leave("late")
	})
}

// A pass that cannot tell whether its stack runs frees no slot of a run.
func TestQueueWithdraw(t *testing.T) {
	y := newYard(limits{runs: 1})
	y.want("runs", "a", changed, 1)
	y.want("waits", "a", changed, 1)
	y.want("next", "a", changed, 1)
	y.withdraw("runs")
	y.withdraw("waits")
	if !y.atWork("runs") || len(y.waiting) != 1 {
		t.Errorf("at work %v, %d wait; want the run and the one that did not withdraw", y.atWork("runs"), len(y.waiting))
	}
	y.lazy = true
	y.leave("runs")
	y.withdraw("next")
	if len(y.slots) != 0 {
		t.Errorf("%d slots are held for nobody", len(y.slots))
	}
}

func TestQueueSaysWhatIsWaitedFor(t *testing.T) {
	for name, tt := range map[string]struct {
		limits limits
		want   string
	}{
		"all slots":  {limits{runs: 2}, "Waiting for its turn: 2 runs may be at work at once"},
		"its tenant": {limits{runs: 9, perTenant: 2}, "Waiting for its turn: 2 runs of the tenant a may be at work at once"},
		"memory":     {limits{runs: 9, memory: 1000 << 20}, "Waiting for memory: its runs take 400 MiB, and all runs at work may take 1000 MiB together"},
	} {
		t.Run(name, func(t *testing.T) {
			y := newYard(tt.limits)
			for i := range 5 {
				y.want(fmt.Sprint(i), "a", changed, 400)
			}
			for range 3 {
				if got := y.want("4", "a", changed, 400); got != tt.want {
					t.Errorf("admit() = %q, want %q", got, tt.want)
				}
				y.endOldest() // others move on, and it says the same
			}
		})
	}
}

// Ten thousand stacks of a hundred tenants wait, and one run after another ends.
func BenchmarkQueue(b *testing.B) {
	for _, tenants := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprintf("tenants=%d", tenants), func(b *testing.B) {
			y := newYard(limits{runs: 16, memory: 8 << 30})
			for i := range 10_000 {
				y.want(fmt.Sprint(i), fmt.Sprint("t", i%tenants), class(i%int(classes)), 256)
			}
			next := slices.Sorted(maps.Keys(y.slots))
			for b.Loop() {
				id := next[0]
				a := y.asks[id]
				y.leave(id)
				y.admit(id, a) // it wants to run again
				for _, k := range y.called {
					y.admit(k, y.asks[k])
				}
				next, y.called = append(next[1:], y.called...), y.called[:0]
			}
			if len(y.waiting)+len(y.slots) != 10_000 {
				b.Fatalf("%d wait and %d are at work", len(y.waiting), len(y.slots))
			}
		})
	}
}
