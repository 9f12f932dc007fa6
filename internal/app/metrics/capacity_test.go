package metrics

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/query"
)

// A thousand stacks that take 90 seconds every half hour need 50 runs at once. The
// operator reads it once, and again only after it was over.
func TestTooFewSlotsAreLogged(t *testing.T) {
	stacks := make([]query.Checked, 1000)
	for i := range stacks {
		stacks[i] = query.Checked{Every: 30 * time.Minute, Took: 90 * time.Second}
	}
	slots := 10
	var said bytes.Buffer
	c := capacityLog{capacity: func() (query.CapacityInfo, error) { return query.Capacity(stacks, query.Slots{Runs: slots}), nil }, log: slog.New(slog.NewTextHandler(&said, nil))}
	for _, step := range []struct{ slots, lines int }{{10, 1}, {10, 1}, {60, 1}, {10, 2}} {
		slots = step.slots
		c.compare()
		if got := strings.Count(said.String(), "\n"); got != step.lines {
			t.Errorf("with %d slots there are %d lines, want %d:\n%s", step.slots, got, step.lines, said.String())
		}
	}
	for _, want := range []string{"1000 stacks", "need 50.0 runs at once", "--max-runs is 10", "Set --max-runs to 63"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("the log says %s, want %q in it", said.String(), want)
		}
	}
}
