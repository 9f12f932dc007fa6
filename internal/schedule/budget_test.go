package schedule

import (
	"container/heap"
	"fmt"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var begin = time.Unix(1e9, 0)

func drawing(checks int, cpu time.Duration) []Draw {
	return []Draw{{Of: "b", Checks: checks, CPU: cpu}}
}

// begins has a stack ask that asks at a time, and begins its check then.
func begins(t *testing.T, b *Budgets, id string, w Wish, at time.Time) {
	t.Helper()
	if turn := b.Ask(id, w, at); turn != (Delay{}) {
		t.Fatalf("%s waits until %s for %q, want that it begins", id, turn.Expected.Sub(begin), turn.Of)
	}
}

// waits has a stack ask whose check is expected to begin after a while.
func waits(t *testing.T, b *Budgets, id string, w Wish, at time.Time, want time.Duration) {
	t.Helper()
	turn := b.Ask(id, w, at)
	if turn.Expected.Sub(at) != want || turn.Of != "b" {
		t.Errorf("%s waits %s for %q, want %s for b", id, turn.Expected.Sub(at), turn.Of, want)
	}
	if turn.Ask.After(turn.Expected) || !turn.Ask.After(at) {
		t.Errorf("%s asks again after %s, want between now and its turn in %s", id, turn.Ask.Sub(at), want)
	}
}

// A budget of 60 checks an hour has one check a minute; without a budget no check waits.
func TestChecksOfABudgetAreSpread(t *testing.T) {
	var b Budgets
	w := Wish{Due: begin, Pause: time.Hour, Share: 1, Draws: drawing(60, 0)}
	begins(t, &b, "one", w, begin)
	begins(t, &b, "one", w, begin) // the same check, which was charged for
	waits(t, &b, "two", w, begin, time.Minute)
	begins(t, &b, "three", Wish{Due: begin, Pause: time.Hour, Share: 1}, begin)
	waits(t, &b, "two", w, begin.Add(time.Second), 59*time.Second)
	begins(t, &b, "two", w, begin.Add(time.Minute))
	if got := b.Waiting(); got != 0 {
		t.Errorf("%d stacks wait, want none", got)
	}
}

// Of several controllers each has the part of a budget that it has of the stacks.
func TestSharesOfABudget(t *testing.T) {
	var b Budgets
	w := Wish{Due: begin, Pause: time.Hour, Share: 0.25, Draws: drawing(60, 0)}
	begins(t, &b, "one", w, begin)
	waits(t, &b, "two", w, begin, 4*time.Minute)
}

// What a check really took counts, and not what it was expected to take.
func TestCPUOfABudgetIsWhatChecksTook(t *testing.T) {
	var b Budgets
	w := Wish{Due: begin, Pause: time.Hour, Takes: time.Second, Share: 1, Draws: drawing(0, time.Minute)}
	begins(t, &b, "one", w, begin)
	waits(t, &b, "two", w, begin, time.Minute)
	b.Ended("one", 3*time.Second)
	b.Ended("one", 3*time.Second) // is counted once
	waits(t, &b, "two", w, begin, 3*time.Minute)
}

// The stack that would first be late by its own pauses goes first, in whatever order they ask.
func TestUrgentChecksGoFirst(t *testing.T) {
	var b Budgets
	of := func(pause time.Duration) Wish { return Wish{Due: begin, Pause: pause, Share: 1, Draws: drawing(60, 0)} }
	begins(t, &b, "first", of(time.Hour), begin)
	waits(t, &b, "daily", of(24*time.Hour), begin, time.Minute)
	waits(t, &b, "often", of(10*time.Minute), begin, time.Minute)
	at := begin.Add(time.Minute)
	waits(t, &b, "daily", of(24*time.Hour), at, time.Minute)
	begins(t, &b, "often", of(10*time.Minute), at)
}

// A stack that asks no more lets no other stack wait.
func TestStacksThatLeaveABudgetLetNoStackWait(t *testing.T) {
	var b Budgets
	w := Wish{Due: begin, Pause: time.Hour, Share: 1, Draws: drawing(60, 0)}
	begins(t, &b, "first", w, begin)
	waits(t, &b, "a", w, begin, time.Minute)
	waits(t, &b, "b", w, begin, 2*time.Minute)
	waits(t, &b, "c", w, begin, 3*time.Minute)
	b.Leave("a")
	waits(t, &b, "c", w, begin, 2*time.Minute)
	waits(t, &b, "c", w, begin.Add(2*time.Minute), time.Minute) // b is before it
	begins(t, &b, "c", w, begin.Add(4*time.Minute))             // b did not ask when its time had come
}

// A check that is counted in two budgets waits for the one that lets it go last, and does not
// hold the other one up.
func TestACheckWaitsInOneLine(t *testing.T) {
	var b Budgets
	tenant, provider := Draw{Of: "tenant", Checks: 60}, Draw{Of: "provider", Checks: 1}
	wish := func(d ...Draw) Wish { return Wish{Due: begin, Pause: time.Hour, Share: 1, Draws: d} }
	begins(t, &b, "one", wish(tenant, provider), begin)
	if turn := b.Ask("two", wish(tenant, provider), begin); turn.Expected.Sub(begin) != time.Hour || turn.Of != "provider" {
		t.Errorf("two waits %s for %q, want an hour for the provider", turn.Expected.Sub(begin), turn.Of)
	}
	begins(t, &b, "three", wish(tenant), begin.Add(time.Minute))
}

// A stack that has waited for its turn in one line keeps it while it waits in the next one.
func TestATurnIsKept(t *testing.T) {
	var b Budgets
	one, other := Draw{Of: "one", Checks: 60}, Draw{Of: "other", Checks: 60}
	wish := func(d ...Draw) Wish { return Wish{Due: begin, Pause: time.Hour, Share: 1, Draws: d} }
	at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
	begins(t, &b, "a", wish(other), at(0))
	begins(t, &b, "b", wish(one), at(30))
	if turn := b.Ask("s", wish(one, other), at(40)); turn.Of != "one" || !turn.Ask.Equal(at(90)) {
		t.Fatalf("s waits until %s for %q, want 90 seconds for one", turn.Ask.Sub(begin), turn.Of)
	}
	begins(t, &b, "c", wish(other), at(80))
	if turn := b.Ask("s", wish(one, other), at(90)); turn.Of != "other" || !turn.Ask.Equal(at(140)) {
		t.Fatalf("s waits until %s for %q, want 140 seconds for other", turn.Ask.Sub(begin), turn.Of)
	}
	if turn := b.Ask("d", wish(one), at(100)); !turn.Ask.Equal(at(150)) {
		t.Errorf("d waits until %s, want 150 seconds: the turn before it is that of s", turn.Ask.Sub(begin))
	}
	begins(t, &b, "s", wish(one, other), at(140))
}

// A budget that is too small for its stacks counts as one that checks each of them once in the
// longest delay, and says so.
func TestABudgetThatIsTooSmall(t *testing.T) {
	var b Budgets
	w := Wish{Due: begin, Pause: time.Hour, Share: 1, Draws: []Draw{{Of: "b", Checks: 1, MaxDelay: time.Hour}}}
	begins(t, &b, "a", w, begin)
	if got := b.Raised(); got != 0 {
		t.Errorf("%d budgets are too small for one stack, want none", got)
	}
	waits(t, &b, "b", w, begin, 30*time.Minute)
	waits(t, &b, "c", w, begin, 40*time.Minute)
	turn := b.Ask("b", w, begin)
	if !turn.Raised || turn.Stacks != 3 || !turn.Latest.Equal(begin.Add(2*time.Hour)) || b.Raised() != 1 {
		t.Errorf("the turn is %+v, and %d budgets are too small, want one for three stacks, within two hours", turn, b.Raised())
	}
	b.Drop("a")
	b.Drop("c")
	if turn := b.Ask("b", w, begin); turn.Stacks != 1 || turn.Raised || !turn.Expected.Equal(begin.Add(time.Hour)) {
		t.Errorf("the turn of the stack that is left is %+v, want an hour", turn)
	}
	b.Drop("b")
	if n := len(b.named) + len(b.sharing) + len(b.waitsIn) + len(b.granted); n != 0 {
		t.Errorf("%d things are kept of stacks that are gone, want none", n)
	}
}

// A budget that its policy changes counts at once, also for what was charged before.
func TestABudgetThatChanges(t *testing.T) {
	var b Budgets
	w := Wish{Due: begin, Pause: time.Hour, Share: 1, Draws: drawing(1, 0)}
	begins(t, &b, "one", w, begin)
	waits(t, &b, "two", w, begin, time.Hour)
	w.Draws = drawing(60, 0)
	waits(t, &b, "two", w, begin, time.Minute)
}

// Checks of which nothing is known yet do not all begin at once.
func TestFirstChecksOfABudgetOfCPU(t *testing.T) {
	var b Budgets
	w := Wish{Due: begin, Pause: time.Hour, Share: 1, Draws: drawing(0, time.Minute)}
	begins(t, &b, "one", w, begin)
	waits(t, &b, "two", w, begin, time.Minute)
}

// A clock that was set back by much blocks no check.
func TestAClockThatWasAhead(t *testing.T) {
	var b Budgets
	w := Wish{Due: begin, Pause: time.Hour, Share: 1, Draws: drawing(1, 0)}
	begins(t, &b, "one", w, begin.Add(1000*24*time.Hour))
	begins(t, &b, "two", w, begin)
}

// line is the stacks that ask later, the next one first.
type line []asking

type asking struct {
	at  time.Time
	id  int
	due time.Time
	nth int // of the times that the stack was to ask
}

func (l line) Len() int           { return len(l) }
func (l line) Less(i, j int) bool { return l[i].at.Before(l[j].at) }
func (l line) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }
func (l *line) Push(x any)        { *l = append(*l, x.(asking)) }
func (l *line) Pop() any {
	old := *l
	x := old[len(old)-1]
	*l = old[:len(old)-1]
	return x
}

// play has stacks ask until a time, and returns when checks began, and the latest that one began
// after it was due, by stack. Asks is how often a stack asked.
func play(pauses []time.Duration, draws func(id int) []Draw, end time.Time) (began []time.Time, late []time.Duration, asks int) {
	var b Budgets
	var l line
	late = make([]time.Duration, len(pauses))
	newest := make([]asking, len(pauses)) // what is older is void
	later := func(at time.Time, id int, due time.Time) {
		newest[id] = asking{at, id, due, newest[id].nth + 1}
		heap.Push(&l, newest[id])
	}
	for id := range pauses {
		later(begin, id, begin)
	}
	now := begin
	b.Wake = func(name string) {
		id, err := strconv.Atoi(name)
		if err != nil {
			panic(err)
		}
		later(now, id, newest[id].due)
	}
	for l.Len() > 0 && l[0].at.Before(end) {
		a := heap.Pop(&l).(asking)
		if a != newest[a.id] {
			continue
		}
		now = a.at
		asks++
		turn := b.Ask(fmt.Sprint(a.id), Wish{Due: a.due, Pause: pauses[a.id], Takes: time.Second, Share: 1, Draws: draws(a.id)}, a.at)
		if !turn.Ask.IsZero() {
			later(turn.Ask, a.id, a.due)
			continue
		}
		b.Ended(fmt.Sprint(a.id), time.Second)
		began, late[a.id] = append(began, a.at), max(late[a.id], a.at.Sub(a.due))
		due := a.at.Add(pauses[a.id])
		later(due, a.id, due)
	}
	for _, a := range newest { // those that wait still
		late[a.id] = max(late[a.id], end.Sub(a.due))
	}
	return began, late, asks
}

// Whatever stacks there are, no hour has more checks than the budget and one, and while stacks
// wait the budget is used.
func TestBudgetsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		checks := rapid.IntRange(1, 50).Draw(t, "checks")
		pauses := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.IntRange(1, 600).Draw(t, "minutes")) * time.Minute
		}), 1, 60).Draw(t, "pauses")
		began, _, _ := play(pauses, func(int) []Draw { return drawing(checks, 0) }, begin.Add(24*time.Hour))
		from := 0
		for i, at := range began {
			for at.Sub(began[from]) >= time.Hour {
				from++
			}
			if n := i - from + 1; n > checks+1 {
				t.Fatalf("%d checks began in the hour before %s, want %d", n, at.Sub(begin), checks+1)
			}
		}
		var wanted float64
		for _, p := range pauses {
			wanted += float64(24*time.Hour) / float64(p)
		}
		if most := float64(checks * 24); wanted > 2*most && float64(len(began)) < most*0.9-1 {
			t.Fatalf("%d checks began in a day, and the budget is %v", len(began), most)
		}
	})
}

// Whatever budgets there are and however small they are, no check is later than four of its own
// pauses, or the longest delay if that is shorter, and the longest delay for each of its budgets.
func TestNoStackStarves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		minutes := func(least, most int, label string) time.Duration {
			return time.Duration(rapid.IntRange(least, most).Draw(t, label)) * time.Minute
		}
		checks, most := rapid.IntRange(1, 20).Draw(t, "checks"), minutes(30, 24*60, "longest delay")
		pauses := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) time.Duration { return minutes(1, 600, "pause") }), 1, 40).Draw(t, "pauses")
		cpu := rapid.Bool().Draw(t, "cpu")
		draws := func(id int) []Draw {
			out := []Draw{{Of: "tenant", Checks: checks, MaxDelay: most}}
			if id%3 == 0 {
				out = append(out, Draw{Of: "provider", Checks: 1, MaxDelay: most})
			}
			if cpu && id%2 == 0 {
				out = append(out, Draw{Of: "processor", CPU: time.Second, MaxDelay: most})
			}
			return out
		}
		_, late, _ := play(pauses, draws, begin.Add(5*24*time.Hour))
		for id, by := range late {
			if bound := min(4*pauses[id], most) + time.Duration(len(draws(id)))*most; by > bound {
				t.Fatalf("a check with a pause of %s and %d budgets was %s late, want %s at most", pauses[id], len(draws(id)), by, bound)
			}
		}
	})
}

// 10,000 stacks of which one in a hundred is checked every 10 minutes and the others once a day
// want some 1,017 checks an hour. With 900 the urgent ones wait little, all others get their turn,
// and no stack asks much oftener than it is checked.
func TestTenThousandStacksShareABudget(t *testing.T) {
	pauses := make([]time.Duration, 10_000)
	for i := range pauses {
		if pauses[i] = 24 * time.Hour; i%100 == 0 {
			pauses[i] = 10 * time.Minute
		}
	}
	end := begin.Add(4 * 24 * time.Hour)
	began, late, asks := play(pauses, func(int) []Draw { return drawing(900, 0) }, end)
	var urgent, others time.Duration
	for id, by := range late {
		if pauses[id] < time.Hour {
			urgent = max(urgent, by)
		} else {
			others = max(others, by)
		}
	}
	t.Logf("%d checks in four days, %d asked for; urgent ones wait %s at most, others %s", len(began), asks, urgent, others)
	if n := len(began); n > 900*96+1 || n < 900*96*9/10 {
		t.Errorf("%d checks began, want %d", n, 900*96)
	}
	if urgent > 30*time.Minute || others > 48*time.Hour {
		t.Errorf("urgent checks waited %s, and others %s", urgent, others)
	}
	if asks > 20*len(began) {
		t.Errorf("stacks asked %d times for %d checks", asks, len(began))
	}
}
