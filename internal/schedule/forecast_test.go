package schedule

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
	y := newWorld(Limits{Runs: 2, PerTenant: 9})
	start := time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
	now := start
	y.now = func() time.Time { now = now.Add(time.Second); return now }
	y.Found("found", Candidate{Key: nn("z", "found"), Tenant: "z", Kind: stack.ApplyRun, Memory: 1 << 20, Began: start.Add(-time.Hour)})
	y.want("0", "a", Spec, 100) // asks at 2s, starts at 3s
	y.want("1", "a", Drift, 100)
	y.want("2", "b", Person, 100)
	why := "Waiting for its turn: 2 runs may run at once"
	want := Line{
		Running: []Turn{
			{UID: "found", StackKind: "stack", Namespace: "z", Name: "found", Kind: stack.ApplyRun, Tenant: "z", Memory: 1 << 20, Asked: start.Add(time.Second), Started: start.Add(-time.Hour)},
			{UID: "0", StackKind: "stack", Namespace: "a", Name: "0", Class: "spec", Tenant: "a", Memory: 100 << 20, Asked: start.Add(2 * time.Second), Started: start.Add(3 * time.Second)},
		},
		Waiting: []Turn{
			{UID: "2", StackKind: "stack", Namespace: "b", Name: "2", Class: "person", Tenant: "b", Memory: 100 << 20, Asked: start.Add(5 * time.Second), Position: 1, Why: why},
			{UID: "1", StackKind: "stack", Namespace: "a", Name: "1", Class: "drift", Tenant: "a", Memory: 100 << 20, Asked: start.Add(4 * time.Second), Position: 2, Why: why},
		},
	}
	if diff := cmp.Diff(want, y.Line()); diff != "" {
		t.Errorf("Line() (-want +got):\n%s", diff)
	}
	y.lazy = true
	y.Leave("0")
	line := y.Line()
	if len(line.Running) != 1 || len(line.Waiting) != 2 || !line.Waiting[0].Called || line.Waiting[0].UID != "2" {
		t.Errorf("Line() = %+v, want the object for which a slot is reserved first in the line", line)
	}
}

// The order that is shown is the order in which objects really start, if runs
// end from the oldest on and no other object comes. Showing it disturbs nothing.
func TestLineIsTheOrderOfStarting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		y := newWorld(Limits{
			Runs: rapid.IntRange(1, 4).Draw(t, "runs"), PerTenant: rapid.IntRange(0, 2).Draw(t, "perTenant"),
			Memory: rapid.SampledFrom([]int64{0, 8, 12}).Draw(t, "memory") << 20, PerClass: classLimits(t),
		})
		var now time.Time
		y.now = func() time.Time { now = now.Add(time.Second); return now }
		for i := range rapid.IntRange(1, 60).Draw(t, "asks") {
			y.want(fmt.Sprint(i), fmt.Sprint("t", rapid.IntRange(0, 3).Draw(t, "tenant")),
				Class(rapid.IntRange(0, int(classes)-1).Draw(t, "class")), rapid.Int64Range(1, 15).Draw(t, "mib"))
		}
		for range rapid.IntRange(0, 20).Draw(t, "ended before") {
			y.endOldest()
		}
		line := y.Queue.line()
		if diff := cmp.Diff(line, y.Queue.line()); diff != "" {
			t.Fatalf("reading the line changes it (-first +second):\n%s", diff)
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

// Many readers share one line, and none gets one that is old.
func TestLineIsSharedForAMoment(t *testing.T) {
	y := newWorld(Limits{Runs: 1})
	now := time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
	y.now = func() time.Time { return now }
	y.want("0", "a", Spec, 1)
	y.want("1", "a", Spec, 1)
	waiting := func() int { return len(y.Line().Waiting) }
	first := waiting()
	y.want("2", "a", Spec, 1)
	soon := waiting()
	now = now.Add(lineShownFor)
	if later := waiting(); first != 1 || soon != 1 || later != 2 {
		t.Errorf("%d, %d and %d wait; want what was shown a moment ago, and then the new line", first, soon, later)
	}
}

// What is shown costs little enough to be shown whenever something changes.
func BenchmarkLine(b *testing.B) {
	for _, memory := range []int64{0, 64 << 30} {
		b.Run(fmt.Sprint("memory-", memory>>30), func(b *testing.B) {
			y := newWorld(Limits{Runs: 64, Memory: memory})
			for i := range 10_000 {
				y.want(fmt.Sprint(i), fmt.Sprint("t", i%500), Class(i%int(classes)), int64(200+i%3000))
			}
			for b.Loop() {
				if got := len(y.Queue.line().Waiting); got < 9_000 {
					b.Fatalf("%d wait", got)
				}
			}
		})
	}
}
