package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/terrier-iac/terrier/internal/stack"
)

func TestLine(t *testing.T) {
	y := newYard(limits{runs: 2, perTenant: 9})
	start := time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
	now := start
	y.now = func() time.Time { now = now.Add(time.Second); return now }
	y.counted("found", ask{key: nn("z", "found"), tenant: "z", kind: stack.ApplyRun, memory: 1 << 20, began: start.Add(-time.Hour)})
	y.want("0", "a", changed, 100) // asks at 2s, starts at 3s
	y.want("1", "a", idle, 100)
	y.want("2", "b", asked, 100)
	c := &Stacks{queue: y.queue}
	why := "Waiting for its turn: 2 runs may be at work at once"
	want := stack.Line{
		AtWork: []stack.Turn{
			{UID: "found", Namespace: "z", Name: "found", Kind: stack.ApplyRun, Tenant: "z", Memory: 1 << 20, Asked: start.Add(time.Second), Started: start.Add(-time.Hour)},
			{UID: "0", Namespace: "a", Name: "0", Class: "spec", Tenant: "a", Memory: 100 << 20, Asked: start.Add(2 * time.Second), Started: start.Add(3 * time.Second)},
		},
		Waiting: []stack.Turn{
			{UID: "2", Namespace: "b", Name: "2", Class: "person", Tenant: "b", Memory: 100 << 20, Asked: start.Add(5 * time.Second), Position: 1, Why: why},
			{UID: "1", Namespace: "a", Name: "1", Class: "drift", Tenant: "a", Memory: 100 << 20, Asked: start.Add(4 * time.Second), Position: 2, Why: why},
		},
	}
	if diff := cmp.Diff(want, c.Line()); diff != "" {
		t.Errorf("Line() (-want +got):\n%s", diff)
	}
	y.lazy = true
	y.leave("0")
	line := c.Line()
	if len(line.AtWork) != 1 || len(line.Waiting) != 2 || !line.Waiting[0].Called || line.Waiting[0].UID != "2" {
		t.Errorf("Line() = %+v, want the stack that was called first in the line", line)
	}
}

// The order that is shown is the order in which stacks really start, if runs
// end from the oldest on and nobody else comes. Showing it disturbs nothing.
func TestLineIsTheOrderOfStarting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		y := newYard(limits{
			runs: rapid.IntRange(1, 4).Draw(t, "runs"), perTenant: rapid.IntRange(0, 2).Draw(t, "perTenant"),
			memory: rapid.SampledFrom([]int64{0, 8, 12}).Draw(t, "memory") << 20,
		})
		var now time.Time
		y.now = func() time.Time { now = now.Add(time.Second); return now }
		for i := range rapid.IntRange(1, 60).Draw(t, "asks") {
			y.want(fmt.Sprint(i), fmt.Sprint("t", rapid.IntRange(0, 3).Draw(t, "tenant")),
				class(rapid.IntRange(0, int(classes)-1).Draw(t, "class")), rapid.Int64Range(1, 15).Draw(t, "mib"))
		}
		for range rapid.IntRange(0, 20).Draw(t, "ended before") {
			y.endOldest()
		}
		line := y.line()
		if diff := cmp.Diff(line, y.line()); diff != "" {
			t.Fatalf("the line changes by being looked at (-first +second):\n%s", diff)
		}
		var shown []string
		for _, turn := range line.Waiting {
			shown = append(shown, turn.UID)
		}
		before := len(y.started)
		started := slices.Clone(y.drain()[before:])
		if got, want := strings.Join(shown, " "), strings.Join(started, " "); got != want {
			t.Fatalf("the line is %s, and they start as %s", got, want)
		}
	})
}

// Many who look at once make one line, and nobody sees one that is old.
func TestLineIsSharedForAMoment(t *testing.T) {
	y := newYard(limits{runs: 1})
	now := time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
	y.now = func() time.Time { return now }
	c := &Stacks{queue: y.queue}
	y.want("0", "a", changed, 1)
	y.want("1", "a", changed, 1)
	waiting := func() int { return len(c.Line().Waiting) }
	first := waiting()
	y.want("2", "a", changed, 1)
	soon := waiting()
	now = now.Add(shownFor)
	if later := waiting(); first != 1 || soon != 1 || later != 2 {
		t.Errorf("%d, %d and %d wait; want what was shown a moment ago, and then the new line", first, soon, later)
	}
}

// What is shown costs little enough to be shown whenever something changes.
func BenchmarkLine(b *testing.B) {
	for _, memory := range []int64{0, 64 << 30} {
		b.Run(fmt.Sprint("memory-", memory>>30), func(b *testing.B) {
			y := newYard(limits{runs: 64, memory: memory})
			for i := range 10_000 {
				y.want(fmt.Sprint(i), fmt.Sprint("t", i%500), class(i%int(classes)), int64(200+i%3000))
			}
			for b.Loop() {
				if got := len(y.line().Waiting); got < 9_000 {
					b.Fatalf("%d wait", got)
				}
			}
		})
	}
}
