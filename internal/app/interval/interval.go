// Package interval repeats what a process does at intervals. It catches up on nothing: an interval
// that is over while the last turn goes on is skipped. Start at Turns.
package interval

import (
	"context"
	"iter"
	"time"
)

// Turns yields at the end of each interval, until ctx ends.
func Turns(ctx context.Context, pause time.Duration) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case at := <-tick.C:
				if ctx.Err() != nil || !yield(at) {
					return
				}
			}
		}
	}
}
