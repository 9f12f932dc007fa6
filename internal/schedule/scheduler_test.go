package schedule

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Whatever asks, leaves, is late or asks for something else: no limit is
// exceeded, no room is left unused, and no request is lost.
func TestQueueKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		y := newWorld(Limits{
			Runs: rapid.IntRange(1, 5).Draw(t, "runs"), PerTenant: rapid.IntRange(0, 3).Draw(t, "perTenant"),
			Memory: rapid.Int64Range(0, 12).Draw(t, "memory") << 20, PerClass: classLimits(t),
		})
		y.lazy = true
		id := rapid.Custom(func(t *rapid.T) string { return fmt.Sprint("s", rapid.IntRange(0, 15).Draw(t, "id")) })
		wanted, counted := map[string]bool{}, map[string]bool{}
		drawn := func(t *rapid.T, id string) Candidate {
			tenant := fmt.Sprint("t", rapid.IntRange(0, 3).Draw(t, "tenant"))
			return Candidate{Key: nn(tenant, id), Tenant: tenant, Class: Class(rapid.IntRange(0, int(classes)-1).Draw(t, "class")), Memory: rapid.Int64Range(1, 15).Draw(t, "mib") << 20}
		}
		for range rapid.IntRange(0, 6).Draw(t, "found running") {
			id := id.Draw(t, "found")
			y.Found(id, drawn(t, id))
			wanted[id], counted[id] = true, true
		}
		t.Repeat(map[string]func(*rapid.T){
			"request": func(t *rapid.T) {
				id := id.Draw(t, "id")
				if y.Admit(id, drawn(t, id)) == "" && !y.isRunning(id) {
					t.Fatalf("%s was admitted without a slot", id)
				}
				wanted[id] = true
			},
			"leave":    func(t *rapid.T) { id := id.Draw(t, "id"); y.Leave(id); delete(wanted, id); delete(counted, id) },
			"withdraw": func(t *rapid.T) { id := id.Draw(t, "id"); work := y.isRunning(id); y.Withdraw(id); wanted[id] = work },
			"ended": func(t *rapid.T) {
				id := id.Draw(t, "id")
				place := id + "/place"
				left := []string{place}
				if wanted[place] || rapid.Bool().Draw(t, "its place has ended, too") {
					left = nil // or an earlier run has left one
				}
				if s := y.scheduler.slots[id]; s != nil && s.found {
					if left != nil {
						wanted[place] = true
						if counted[id] {
							counted[place] = true
						}
					}
					wanted[id] = false
					delete(counted, id)
				}
				y.Ended(id, left...)
			},
			"see running": func(t *rapid.T) {
				id := id.Draw(t, "id")
				if !y.isRunning(id) {
					t.Skip("it does not run")
				}
				a := drawn(t, id)
				// Else it brings its new tenant or class over the limit, as it may.
				if y.scheduler.limits.PerTenant > 0 {
					a.Tenant = y.scheduler.slots[id].tenant.name
				}
				if y.scheduler.limits.PerClass != (PerClass{}) {
					a.Class = y.scheduler.slots[id].Class
				}
				y.Running(id, a)
			},
			"miss": func(t *rapid.T) {
				id := id.Draw(t, "id")
				if s := y.scheduler.slots[id]; s != nil {
					y.expire(s)
				}
			},
			"leave a place": func(t *rapid.T) {
				id := id.Draw(t, "id")
				place := id + "/place"
				if s := y.scheduler.slots[id]; s == nil || s.reserved() || wanted[place] {
					t.Skip("it does not run, or has left one")
				}
				run := y.scheduler.slots[id].Candidate
				run.Ending = true
				counted[place] = true // for as long as both are counted
				y.Running(place, run)
				y.Leave(id)
				wanted[place], counted[place] = true, counted[id]
				if !counted[id] {
					delete(counted, place)
				}
				delete(wanted, id)
				delete(counted, id)
			},
			"hand over": func(t *rapid.T) {
				place := id.Draw(t, "id") + "/place"
				slots, free := len(y.scheduler.slots), maps.Clone(y.scheduler.slots)
				held := y.scheduler.slots[place]
				to, others := y.HandOver(place, func(c Candidate) bool { return c.Tenant == held.Tenant })
				if len(y.scheduler.slots) != slots {
					t.Fatalf("%d slots are held after a place was handed over, want %d", len(y.scheduler.slots), slots)
				}
				if to != "" && (others || free[to] != nil || y.scheduler.slots[to].Tenant != held.Tenant || y.scheduler.slots[place] != nil) {
					t.Fatalf("the slot of %s was handed over to %s, which has none of it", place, to)
				}
			},
			"vacate": func(t *rapid.T) {
				place := id.Draw(t, "id") + "/place"
				y.Leave(place)
				delete(wanted, place)
				delete(counted, place)
			},
			"": func(t *rapid.T) { checkPromises(t, y, wanted, counted) },
		})
		for id := range wanted {
			y.Leave(id)
		}
		if len(y.scheduler.slots)+len(y.scheduler.waiting)+len(y.scheduler.tenants)+len(y.scheduler.lent) != 0 || y.scheduler.charged != 0 {
			t.Fatalf("left at the end: %d slots, %d waiting, %d tenants, %d bytes", len(y.scheduler.slots), len(y.scheduler.waiting), len(y.scheduler.tenants), y.scheduler.charged)
		}
	})
}

// classLimits are bounds of few classes.
func classLimits(t *rapid.T) (l PerClass) {
	for c := range l {
		l[c] = max(0, rapid.IntRange(-2, 2).Draw(t, Class(c).String()+" at most"))
	}
	return l
}

func checkPromises(t *rapid.T, y *world, wanted, counted map[string]bool) {
	var charged int64
	working, ofClass := map[string]int{}, PerClass{}
	fresh, freshClass := map[string]bool{}, map[Class]bool{} // of which one was admitted
	admitted := 0
	for id, s := range y.scheduler.slots {
		charged += s.Memory
		working[s.tenant.name]++
		ofClass[s.Class]++
		if !counted[id] {
			admitted++
			fresh[s.tenant.name], freshClass[s.Class] = true, true
		}
		if !wanted[id] {
			t.Fatalf("a slot is held for %s, which wants none", id)
		}
	}
	for id, ok := range wanted {
		if ok && y.scheduler.slots[id] == nil && y.scheduler.waiting[id] == nil && y.scheduler.lent[id] == nil {
			t.Fatalf("%s was lost", id)
		}
	}
	l := y.scheduler.limits
	if charged != y.scheduler.charged {
		t.Fatalf("%d bytes are charged, want %d", y.scheduler.charged, charged)
	}
	if admitted > 0 && len(y.scheduler.slots) > l.Runs {
		t.Fatalf("%d runs with %d allowed", len(y.scheduler.slots), l.Runs)
	}
	if l.Memory > 0 && charged > l.Memory && len(y.scheduler.slots) > 1 && admitted > 0 {
		t.Fatalf("%d MiB taken by %d runs with %d allowed", charged>>20, len(y.scheduler.slots), l.Memory>>20)
	}
	for name, n := range working {
		if y.scheduler.tenants[name].running != n {
			t.Fatalf("the tenant %s has %d runs, want %d", name, y.scheduler.tenants[name].running, n)
		}
		if l.PerTenant > 0 && n > l.PerTenant && fresh[name] {
			t.Fatalf("the tenant %s has %d runs with %d allowed", name, n, l.PerTenant)
		}
	}
	if y.scheduler.running != ofClass {
		t.Fatalf("the classes have %v runs, want %v", y.scheduler.running, ofClass)
	}
	for c, n := range ofClass {
		if limit := l.PerClass[c]; limit > 0 && n > limit && freshClass[Class(c)] {
			t.Fatalf("the class %s has %d runs with %d allowed", Class(c), n, limit)
		}
	}
	large := y.scheduler.large != nil && y.scheduler.may(y.scheduler.large.tenant, y.scheduler.large.Class) // room is kept for one
	if large && (y.scheduler.large.passed < maxPassed || y.scheduler.waiting[y.scheduler.large.id] != y.scheduler.large) {
		t.Fatalf("room is kept for %s, which was passed over %d times", y.scheduler.large.id, y.scheduler.large.passed)
	}
	for c, kept := range y.scheduler.kept {
		if kept != nil && (kept.lines[c].Len() == 0 || kept.passed[c] < maxPassed) {
			t.Fatalf("a slot of the class %s is kept for %s", Class(c), kept.name)
		}
	}
	for id, w := range y.scheduler.waiting {
		if len(y.scheduler.slots) < l.Runs && y.scheduler.may(w.tenant, w.Class) && y.scheduler.fits(w.Memory) && !large {
			t.Fatalf("%s waits although there is room", id)
		}
	}
	for c := range classes {
		h := &y.scheduler.rankings[c]
		for i, tenant := range h.tenants {
			if tenant.index[c] != i || tenant.lines[c].Len() == 0 || i > 0 && h.Less(i, (i-1)/2) {
				t.Fatalf("the ranking of class %s is broken at %d", c, i)
			}
		}
	}
}

// Among tenants that all have requests waiting, none is given a slot while it has
// more runs than another.
func TestQueueIsFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		y := newWorld(Limits{Runs: rapid.IntRange(1, 8).Draw(t, "runs")})
		tenants := rapid.IntRange(2, 5).Draw(t, "tenants")
		n := 0
		refill := func(tenant string) { n++; y.want(fmt.Sprint(tenant, "-", n), tenant, Spec, 1) }
		for i := range tenants {
			for range rapid.IntRange(20, 60).Draw(t, "backlog") {
				refill(fmt.Sprint("t", i))
			}
		}
		for range 100 {
			var running []string
			for _, id := range y.started {
				if y.isRunning(id) {
					running = append(running, id)
				}
			}
			ending := rapid.SampledFrom(running).Draw(t, "ending")
			from := y.scheduler.slots[ending].tenant.name
			before := map[string]int{}
			for name, tenant := range y.scheduler.tenants {
				before[name] = tenant.running
			}
			before[from]--
			refill(from)
			y.end(ending)
			given := y.scheduler.slots[y.started[len(y.started)-1]].tenant.name
			for name, working := range before {
				if working < before[given] {
					t.Fatalf("a slot went to %s with %d runs before %s with %d", given, before[given], name, working)
				}
			}
		}
	})
}

// What waits starts in the end, whatever others ask for in the meantime.
func TestQueueStarvesNone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		y := newWorld(Limits{
			Runs: rapid.IntRange(1, 4).Draw(t, "runs"), PerTenant: rapid.IntRange(0, 2).Draw(t, "perTenant"),
			Memory: rapid.SampledFrom([]int64{0, 8, 12}).Draw(t, "memory") << 20, PerClass: classLimits(t),
		})
		n := 0
		// The others ask for what is drawn from few kinds, so that histories in
		// which one kind always comes first are common.
		kinds := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Candidate {
			return Candidate{Tenant: fmt.Sprint("t", rapid.IntRange(0, 2).Draw(t, "tenant")), Class: Class(rapid.IntRange(0, int(classes)-1).Draw(t, "class")), Memory: rapid.Int64Range(1, 10).Draw(t, "mib")}
		}), 1, 4).Draw(t, "kinds")
		more := func() {
			k := kinds[n%len(kinds)]
			n++
			y.want(fmt.Sprint("other-", n), k.Tenant, k.Class, k.Memory)
		}
		for range 12 {
			more()
		}
		y.want("one", fmt.Sprint("t", rapid.IntRange(0, 3).Draw(t, "its tenant")), Class(rapid.IntRange(0, int(classes)-1).Draw(t, "its class")), rapid.Int64Range(1, 20).Draw(t, "its mib"))
		newest := rapid.Bool().Draw(t, "the newest runs end first")
		// A class may wait for maxPassed starts, each of which may wait until it was
		// passed over maxPassed times.
		const bound = 3 * maxPassed * maxPassed
		for i := 0; !slices.Contains(y.started, "one"); i++ {
			if i > bound {
				t.Fatalf("it has not started after %d others ended", i)
			}
			for len(y.scheduler.waiting) < 12 {
				more()
			}
			if last := y.started[len(y.started)-1]; newest && i%8 != 0 && y.isRunning(last) {
				y.end(last)
			} else {
				y.endOldest()
			}
		}
	})
}
