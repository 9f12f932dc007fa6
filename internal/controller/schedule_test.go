package controller

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Whatever comes, goes, is late or changes its mind: no limit is exceeded, no
// room is left to nobody, and nobody is lost.
func TestQueueKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		y := newYard(limits{
			runs: rapid.IntRange(1, 5).Draw(t, "runs"), perTenant: rapid.IntRange(0, 3).Draw(t, "perTenant"),
			memory: rapid.Int64Range(0, 12).Draw(t, "memory") << 20,
		})
		y.lazy = true
		id := rapid.Custom(func(t *rapid.T) string { return fmt.Sprint("s", rapid.IntRange(0, 15).Draw(t, "id")) })
		wanted, counted := map[string]bool{}, map[string]bool{}
		drawn := func(t *rapid.T, id string) ask {
			tenant := fmt.Sprint("t", rapid.IntRange(0, 3).Draw(t, "tenant"))
			return ask{key: nn(tenant, id), tenant: tenant, class: class(rapid.IntRange(0, int(classes)-1).Draw(t, "class")), memory: rapid.Int64Range(1, 15).Draw(t, "mib") << 20}
		}
		for range rapid.IntRange(0, 6).Draw(t, "found at work") {
			id := id.Draw(t, "found")
			y.counted(id, drawn(t, id))
			wanted[id], counted[id] = true, true
		}
		t.Repeat(map[string]func(*rapid.T){
			"ask": func(t *rapid.T) {
				id := id.Draw(t, "id")
				if y.admit(id, drawn(t, id)) == "" && !y.atWork(id) {
					t.Fatalf("%s was admitted without a slot", id)
				}
				wanted[id] = true
			},
			"leave":    func(t *rapid.T) { id := id.Draw(t, "id"); y.leave(id); delete(wanted, id); delete(counted, id) },
			"withdraw": func(t *rapid.T) { id := id.Draw(t, "id"); work := y.atWork(id); y.withdraw(id); wanted[id] = work },
			"ended": func(t *rapid.T) {
				id := id.Draw(t, "id")
				if s := y.slots[id]; s != nil && s.found {
					wanted[id] = false
					delete(counted, id)
				}
				y.ended(id)
			},
			"see at work": func(t *rapid.T) {
				id := id.Draw(t, "id")
				if !y.atWork(id) {
					t.Skip("it does not run")
				}
				a := drawn(t, id)
				if y.limits.perTenant > 0 {
					a.tenant = y.slots[id].tenant.name // else it brings its new tenant over the limit, as it may
				}
				y.took(id, a)
			},
			"miss": func(t *rapid.T) {
				id := id.Draw(t, "id")
				if s := y.slots[id]; s != nil {
					y.missed(id, s)
				}
			},
			"": func(t *rapid.T) { checkPromises(t, y, wanted, counted) },
		})
		for id := range wanted {
			y.leave(id)
		}
		if len(y.slots)+len(y.waiting)+len(y.tenants) != 0 || y.charged != 0 {
			t.Fatalf("left at the end: %d slots, %d waiting, %d tenants, %d bytes", len(y.slots), len(y.waiting), len(y.tenants), y.charged)
		}
	})
}

func checkPromises(t *rapid.T, y *yard, wanted, counted map[string]bool) {
	var charged int64
	working := map[string]int{}
	fresh := map[string]bool{} // tenants of which one was admitted
	admitted := 0
	for id, s := range y.slots {
		charged += s.memory
		working[s.tenant.name]++
		if !counted[id] {
			admitted++
			fresh[s.tenant.name] = true
		}
		if !wanted[id] {
			t.Fatalf("a slot is held for %s, which wants none", id)
		}
	}
	for id, ok := range wanted {
		if ok && y.slots[id] == nil && y.waiting[id] == nil {
			t.Fatalf("%s was lost", id)
		}
	}
	l := y.limits
	if charged != y.charged {
		t.Fatalf("%d bytes are charged, want %d", y.charged, charged)
	}
	if admitted > 0 && len(y.slots) > l.runs {
		t.Fatalf("%d runs with %d allowed", len(y.slots), l.runs)
	}
	if l.memory > 0 && charged > l.memory && len(y.slots) > 1 && admitted > 0 {
		t.Fatalf("%d MiB taken by %d runs with %d allowed", charged>>20, len(y.slots), l.memory>>20)
	}
	for name, n := range working {
		if y.tenants[name].working != n {
			t.Fatalf("the tenant %s has %d at work, want %d", name, y.tenants[name].working, n)
		}
		if l.perTenant > 0 && n > l.perTenant && fresh[name] {
			t.Fatalf("the tenant %s has %d runs with %d allowed", name, n, l.perTenant)
		}
	}
	large := y.large != nil && !y.full(y.large.tenant) // room is kept for one
	if large && (y.large.passed < patience || y.waiting[y.large.id] != y.large) {
		t.Fatalf("room is kept for %s, which was passed over %d times", y.large.id, y.large.passed)
	}
	for id, w := range y.waiting {
		if len(y.slots) < l.runs && !y.full(w.tenant) && y.fits(w.memory) && !large {
			t.Fatalf("%s waits although there is room", id)
		}
	}
	for c := range classes {
		h := &y.contest[c]
		for i, tenant := range h.tenants {
			if tenant.index[c] != i || tenant.lines[c].Len() == 0 || i > 0 && h.Less(i, (i-1)/2) {
				t.Fatalf("the ranking of class %s is broken at %d", c, i)
			}
		}
	}
}

// Among tenants that all have stacks waiting, none is given a slot while it has
// more at work than another.
func TestQueueIsFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		y := newYard(limits{runs: rapid.IntRange(1, 8).Draw(t, "runs")})
		tenants := rapid.IntRange(2, 5).Draw(t, "tenants")
		n := 0
		refill := func(tenant string) { n++; y.want(fmt.Sprint(tenant, "-", n), tenant, changed, 1) }
		for i := range tenants {
			for range rapid.IntRange(20, 60).Draw(t, "backlog") {
				refill(fmt.Sprint("t", i))
			}
		}
		for range 100 {
			var running []string
			for _, id := range y.started {
				if y.atWork(id) {
					running = append(running, id)
				}
			}
			ending := rapid.SampledFrom(running).Draw(t, "ending")
			from := y.slots[ending].tenant.name
			before := map[string]int{}
			for name, tenant := range y.tenants {
				before[name] = tenant.working
			}
			before[from]--
			refill(from)
			y.end(ending)
			given := y.slots[y.started[len(y.started)-1]].tenant.name
			for name, working := range before {
				if working < before[given] {
					t.Fatalf("a slot went to %s with %d at work before %s with %d", given, before[given], name, working)
				}
			}
		}
	})
}

// Whoever waits starts in the end, whatever the others ask for in the meantime.
func TestQueueStarvesNobody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		y := newYard(limits{
			runs: rapid.IntRange(1, 4).Draw(t, "runs"), perTenant: rapid.IntRange(0, 2).Draw(t, "perTenant"),
			memory: rapid.SampledFrom([]int64{0, 8, 12}).Draw(t, "memory") << 20,
		})
		n := 0
		// The others ask for what is drawn from few kinds, so that histories in
		// which one kind always comes first are common.
		kinds := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) ask {
			return ask{tenant: fmt.Sprint("t", rapid.IntRange(0, 2).Draw(t, "tenant")), class: class(rapid.IntRange(0, int(classes)-1).Draw(t, "class")), memory: rapid.Int64Range(1, 10).Draw(t, "mib")}
		}), 1, 4).Draw(t, "kinds")
		more := func() {
			k := kinds[n%len(kinds)]
			n++
			y.want(fmt.Sprint("other-", n), k.tenant, k.class, k.memory)
		}
		for range 12 {
			more()
		}
		y.want("one", fmt.Sprint("t", rapid.IntRange(0, 3).Draw(t, "its tenant")), class(rapid.IntRange(0, int(classes)-1).Draw(t, "its class")), rapid.Int64Range(1, 20).Draw(t, "its mib"))
		newest := rapid.Bool().Draw(t, "the newest runs end first")
		// A class may wait for patience starts, each of which may wait until it was
		// passed over patience times.
		const bound = 3 * patience * patience
		for i := 0; !slices.Contains(y.started, "one"); i++ {
			if i > bound {
				t.Fatalf("it has not started after %d others ended", i)
			}
			for len(y.waiting) < 12 {
				more()
			}
			if last := y.started[len(y.started)-1]; newest && i%8 != 0 && y.atWork(last) {
				y.end(last)
			} else {
				y.endOldest()
			}
		}
	})
}
