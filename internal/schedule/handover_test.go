package schedule

import (
	"testing"
	"testing/synctest"
	"time"
)

// The slot of a place is handed over to the run whose turn it would be without the place,
// and to no other one.
func TestHandOver(t *testing.T) {
	sameTenant := func(c Candidate) bool { return c.Tenant == "a" && c.Class == Drift }
	for name, tt := range map[string]struct {
		limits  Limits
		waiting [][2]string // tenant and class, in the order in which they ask
		to      string      // whose turn it is; empty for none
		others  bool
	}{
		"no run waits":                               {Limits{Runs: 1}, nil, "", false},
		"a check of the tenant waits":                {Limits{Runs: 1}, [][2]string{{"a", "drift"}, {"a", "drift"}}, "0", false},
		"an urgent run of the tenant waits":          {Limits{Runs: 1}, [][2]string{{"a", "drift"}, {"a", "spec"}}, "", true},
		"another tenant waits, which has had no run": {Limits{Runs: 1}, [][2]string{{"a", "drift"}, {"b", "drift"}}, "", true},
		"the tenant is at its limit":                 {Limits{Runs: 3, PerTenant: 1}, [][2]string{{"a", "drift"}}, "0", false},
		"the class is at its limit":                  {Limits{Runs: 3, PerClass: PerClass{Drift: 1}}, [][2]string{{"a", "drift"}}, "0", false},
	} {
		t.Run(name, func(t *testing.T) {
			y := newWorld(tt.limits)
			y.lazy = true
			y.Running("place", Candidate{Key: nn("a", "place"), Tenant: "a", Class: Drift, Ending: true})
			for i, w := range tt.waiting {
				c, _ := ClassNamed(w[1])
				y.want(string(rune('0'+i)), w[0], c, 0)
			}
			before := y.scheduler.tenant("a").moved
			to, others := y.HandOver("place", sameTenant)
			if to != tt.to || others != tt.others {
				t.Fatalf("HandOver() = %q, %v; want %q, %v", to, others, tt.to, tt.others)
			}
			if moved := y.scheduler.tenant("a").moved; tt.to == "" && moved != before {
				t.Errorf("the tenant moved from %d to %d in its rank although it keeps the slot", before, moved)
			}
			if place := y.scheduler.slots["place"]; (place == nil) != (tt.to != "") {
				t.Errorf("the place has the slot %v", place)
			}
		})
	}
}

// A slot that was handed over and is not used is the place's again until that has ended.
func TestSlotOfAPlaceIsGivenBack(t *testing.T) {
	for name, give := range map[string]func(y *world){
		"its object leaves":                     func(y *world) { y.Leave("s") },
		"its object withdraws":                  func(y *world) { y.Withdraw("s") },
		"its object does not come":              func(*world) { <-time.After(2 * slotReservation) },
		"its object asks for a more urgent run": func(y *world) { y.want("s", "a", Spec, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				y := newWorld(Limits{Runs: 1})
				y.lazy = true
				y.Running("place", Candidate{Key: nn("a", "place"), Tenant: "a", Class: Drift, Ending: true})
				y.want("s", "a", Drift, 0)
				if to, _ := y.HandOver("place", func(Candidate) bool { return true }); to != "s" {
					t.Fatalf("HandOver() = %q, want s", to)
				}
				give(y)
				synctest.Wait()
				if len(y.scheduler.slots) != 1 || y.scheduler.slots["place"] == nil {
					t.Errorf("the slots are %v, want the place's", y.scheduler.slots)
				}
				y.want("s", "a", Drift, 0)
				y.Leave("place")
				if len(y.scheduler.slots) != 1 || y.scheduler.slots["s"] == nil {
					t.Errorf("the slots are %v once the place has ended, want that of the stack", y.scheduler.slots)
				}
				y.Leave("s")
				if len(y.scheduler.slots)+len(y.scheduler.lent) != 0 {
					t.Errorf("slots are left: %v", y.scheduler.slots)
				}
			})
		})
	}
}
