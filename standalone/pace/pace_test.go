package pace

import "testing"

const mib = 1 << 20

func TestTheCollectorSavesMemoryAtRestAndTimeUnderLoad(t *testing.T) {
	p := pacer{room: 1024 * mib, set: still, seen: 100}
	cycles := int64(100)
	at := func(what string, collected, live int64, want int) {
		t.Helper()
		cycles += collected
		if got := p.look(sample{cycles: cycles, live: live * mib}); got != want {
			t.Errorf("%s: %d percent, want %d", what, got, want)
		}
	}
	at("one collection is nothing", 1, 200, still)
	at("two in a second are work", 2, 200, swift)
	at("it goes on with none", 0, 200, swift)
	at("a heap that grew leaves less room", 1, 600, 70)
	at("and hardly any", 1, 1200, still+1)
	for p.looks < window-1 {
		at("work", 1, 200, swift)
	}
	at("a window with enough of them", 1, 200, swift)
	for p.looks < window-1 {
		at("nobody knows yet whether it goes on", 0, 200, swift)
	}
	at("a window with none", 0, 200, still)
	at("and it stays at rest", 1, 200, still)
}
