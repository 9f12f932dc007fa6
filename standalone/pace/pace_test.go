package pace

import "testing"

const mib = 1 << 20

func TestTheCollectorSavesMemoryWhenIdleAndTimeUnderLoad(t *testing.T) {
	p := pacer{room: 2048 * mib, set: still, seen: 100 * mib}
	allocated := int64(100)
	at := func(what string, more, live int64, want int) {
		t.Helper()
		allocated += more
		if got := p.look(sample{allocated: allocated * mib, live: live * mib}); got != want {
			t.Errorf("%s: %d percent, want %d", what, got, want)
		}
	}
	at("before the first collection nothing is known", 50, 0, still)
	at("a third of a collection is nothing", 33, 200, still)
	at("half of one in a second is work", 50, 200, swift)
	at("it goes on with none", 0, 200, swift)
	at("a heap that grew leaves less room", 100, 1200, 70)
	at("and hardly any", 100, 2400, still+1)
	for p.looks < window-1 {
		at("work", 100, 200, swift)
	}
	at("a window with enough of it", 100, 200, swift)
	for p.looks < window-1 {
		at("work that needs no collection at this pace", 16, 200, swift)
	}
	at("a window with enough of that", 16, 200, swift)
	for p.looks < window-1 {
		at("nobody knows yet whether it goes on", 0, 200, swift)
	}
	at("a window with none", 0, 200, still)
	at("and it stays at rest", 33, 200, still)
}
