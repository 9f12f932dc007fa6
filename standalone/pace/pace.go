// Package pace has the garbage collector of the control plane save memory while
// little happens and CPU while much does: a third of what an API server takes
// under load is spent on allocating and collecting. It knows nothing of what
// the process does. Start reading at Keep.
package pace

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	still = 50  // percent: saves a sixth of the memory, and costs nothing while idle
	swift = 200 // percent: a quarter of the collections

	// Collections are counted as if the process were idle. One takes a tenth of a
	// second and more of a core, even with little work.
	every  = time.Second
	rush   = 0.5 // in a second are work
	window = 10  // seconds, after which it is seen whether it goes on
	calm   = 1.5 // in a window are the least that are work

	share = 12 // of the memory of the machine: beyond this part of it, memory goes first
)

// Keep sets the pace of the collector until ctx ends. GOGC overrides it. A start
// is work.
func Keep(ctx context.Context, machine int64) {
	if os.Getenv("GOGC") != "" {
		return
	}
	p := pacer{room: machine / share, set: swift}
	debug.SetGCPercent(p.set)
	go func() {
		p.look(read()) // only what comes from here on counts
		for tick := time.NewTicker(every); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
			}
			before := p.set
			if now := p.look(read()); now != before {
				debug.SetGCPercent(now)
				if now == still {
					debug.FreeOSMemory()
				}
			}
		}
	}()
}

// sample is what the collector says of itself.
type sample struct {
	allocated int64 // bytes since the start
	live      int64 // bytes that the last collection left
}

func read() sample {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	return sample{allocated: int64(s[0].Value.Uint64()), live: int64(s[1].Value.Uint64())}
}

// pacer decides by its observations. It counts the collections that an idle process
// would have: the real ones depend on its decisions.
type pacer struct {
	room   int64 // bytes that the heap may grow to for speed
	set    int
	seen   int64   // bytes allocated
	looks  int     // in this window
	cycles float64 // in this window
}

// look returns the percentage that is right from now on.
func (p *pacer) look(s sample) int {
	allocated := s.allocated - p.seen
	p.seen = s.allocated
	if s.live <= 0 {
		return p.set
	}
	cycles := float64(allocated) / (float64(s.live) * still / 100)
	p.looks, p.cycles = p.looks+1, p.cycles+cycles
	busy := cycles >= rush || p.set > still
	if p.looks == window {
		busy = busy && p.cycles >= calm
		p.looks, p.cycles = 0, 0
	}
	p.set = still
	if busy {
		p.set = int(min(max((p.room-s.live)*100/s.live, still+1), swift))
	}
	return p.set
}
