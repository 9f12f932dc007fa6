package agent

import (
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The controller takes a file or a report only in its turn. Turns grow whatever becomes of the
// clock of the node, and after a restart they go on from the time.
func TestTurnsGrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clock := time.Unix(1_900_000_000, 0)
		c := &client{now: func() time.Time { return clock }}
		last := int64(0)
		for _, step := range rapid.SliceOf(rapid.Int64Range(-int64(48*time.Hour), int64(48*time.Hour))).Draw(t, "steps of the clock") {
			clock = clock.Add(time.Duration(step))
			turn, err := strconv.ParseInt(c.turn(), 10, 64)
			if err != nil || turn <= last || turn < clock.UnixNano() {
				t.Fatalf("turn() = %d, %v, after %d at %d", turn, err, last, clock.UnixNano())
			}
			last = turn
		}
	})
}
