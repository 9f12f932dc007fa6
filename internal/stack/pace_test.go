package stack

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/terrier-iac/terrier/internal/policy"
)

func pacedBy(shortest, longest time.Duration) Observation {
	return calmly(Spec{Mode: Auto, CheckDrift: true, Interval: time.Hour, Drift: policy.Drift{Pace: policy.Pace{Policy: "ClusterPolicy/p", Min: shortest, Max: longest}}}, Status{})
}

// A pause is short right after something happened and grows with the time since, between its
// bounds. Without a policy it is the interval, whatever happened.
func TestPause(t *testing.T) {
	day := 24 * time.Hour
	for name, tt := range map[string]struct {
		shortest, longest time.Duration
		since             time.Duration // something happened; negative if nothing is known
		want              time.Duration
	}{
		"no policy":                  {0, 0, time.Minute, time.Hour},
		"right after":                {5 * time.Minute, day, time.Minute, 5 * time.Minute},
		"a day later":                {5 * time.Minute, day, day, 3 * time.Hour},
		"a month later":              {5 * time.Minute, day, 30 * day, day},
		"nothing is known":           {5 * time.Minute, day, -1, time.Hour},
		"only the shortest, early":   {5 * time.Minute, 0, time.Minute, 5 * time.Minute},
		"only the shortest, late":    {5 * time.Minute, 0, 30 * day, time.Hour},
		"only the longest, early":    {0, day, time.Minute, time.Hour},
		"only the longest, late":     {0, day, 30 * day, day},
		"a longest below the object": {0, 10 * time.Minute, 30 * day, 10 * time.Minute},
		"a shortest above it":        {2 * time.Hour, 0, time.Minute, time.Hour},
		"both above it":              {2 * time.Hour, day, time.Minute, 2 * time.Hour},
		"bounds of two policies":     {2 * time.Hour, 90 * time.Minute, 30 * day, 90 * time.Minute},
	} {
		o := pacedBy(tt.shortest, tt.longest)
		o.Status.PlannedAt, o.Status.AppliedAt, o.DriftedAt = time.Time{}, time.Time{}, time.Time{}
		if tt.since >= 0 {
			o.DriftedAt = o.Now.Add(-tt.since)
		}
		if got := Pause(o, o.Now); got != tt.want {
			t.Errorf("%s: Pause() = %s, want %s", name, got, tt.want)
		}
	}
}

// Whatever is known and whatever the clock does, a stack is checked again within its longest
// pause, and never before three quarters of its shortest.
func TestPausesHaveBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := func(label string) time.Time {
			return calm.Add(time.Duration(rapid.Int64Range(-1e7, 1e5).Draw(t, label)) * time.Second)
		}
		o := pacedBy(time.Duration(rapid.IntRange(0, 100).Draw(t, "min"))*time.Minute, time.Duration(rapid.IntRange(100, 10000).Draw(t, "max"))*time.Minute)
		o.Spec.Spread, o.Status.PlannedAt, o.Status.AppliedAt, o.DriftedAt = rapid.Uint64().Draw(t, "spread"), at("planned"), at("applied"), at("drifted")
		o.CheckedAt = o.Now
		shortest, longest := paceBounds(o.Spec)
		if got := o.untilCheck(); got < shortest*3/4-time.Second || got > 2*longest {
			t.Fatalf("the next check is in %s, want between %s and %s", got, shortest, longest)
		}
		if at, why := NextCheck(o); at.Sub(o.Now) != o.untilCheck() || why == "" {
			t.Fatalf("the next check is said to be in %s (%q), and is in %s", at.Sub(o.Now), why, o.untilCheck())
		}
	})
}

// A policy without a longest pause makes no check rarer than the interval of the object, whatever
// happened: what a manifest says keeps its meaning.
func TestNoCheckIsRarerThanTheIntervalUnasked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := pacedBy(time.Duration(rapid.IntRange(0, 600).Draw(t, "min"))*time.Minute, 0)
		o.Spec.Spread, o.CheckedAt = rapid.Uint64().Draw(t, "spread"), o.Now
		o.DriftedAt = o.Now.Add(-time.Duration(rapid.Int64Range(0, 1e7).Draw(t, "drifted")) * time.Second)
		if got := o.untilCheck(); got > o.Spec.Interval {
			t.Fatalf("the next check is in %s, and the interval is %s", got, o.Spec.Interval)
		}
	})
}

// tenThousand plays a month of 10,000 stacks of which a few drift often and most never, and
// returns how many checks there were, and how late drift was found on average.
func tenThousand(seed uint64, interval time.Duration, pace policy.Pace) (checks int, late time.Duration) {
	const stacks, month = 10_000, 30 * 24 * time.Hour
	random := rand.New(rand.NewPCG(seed, 1))
	begin := time.Unix(1e9, 0)
	var found int
	var delays time.Duration
	for i := range stacks {
		every := time.Duration(math.MaxInt64) // between two drifts, on average
		switch {
		case i%100 == 0:
			every = 12 * time.Hour
		case i%20 == 0:
			every = 10 * 24 * time.Hour
		}
		next := func(after time.Time) time.Time {
			if every == math.MaxInt64 {
				return after.Add(10 * month)
			}
			return after.Add(time.Duration(random.ExpFloat64() * float64(every)))
		}
		o := Observation{Spec: Spec{CheckDrift: true, Interval: interval, Spread: random.Uint64(), Drift: policy.Drift{Pace: pace}}}
		o.Status.AppliedAt = begin.Add(-time.Duration(random.Int64N(int64(month))))
		drifts := next(begin)
		for at := begin; at.Before(begin.Add(month)); at = at.Add(Pause(o, at)) {
			checks++
			if drifts.After(at) {
				continue
			}
			found++
			delays += at.Sub(drifts)
			o.DriftedAt, drifts = at, next(at)
		}
	}
	return checks, delays / time.Duration(found)
}

// 10,000 stacks take a fraction of the checks that an interval of an hour takes. A fixed interval that
// takes as few finds drift much later.
func TestTenThousandStacks(t *testing.T) {
	hourly, hourlyLate := tenThousand(1, time.Hour, policy.Pace{})
	paced, pacedLate := tenThousand(1, time.Hour, policy.Pace{Min: 10 * time.Minute, Max: 24 * time.Hour})
	every := time.Duration(float64(time.Hour) * float64(hourly) / float64(paced)).Round(time.Minute)
	same, sameLate := tenThousand(1, every, policy.Pace{})
	for what, one := range map[string]struct {
		checks int
		late   time.Duration
	}{"every hour": {hourly, hourlyLate}, "paced": {paced, pacedLate}, "every " + every.String(): {same, sameLate}} {
		t.Logf("%s: %d checks, drift is found after %s", what, one.checks, one.late.Round(time.Minute))
	}
	if paced*5 > hourly {
		t.Errorf("there are %d checks with pauses that follow from risk and %d without, want a fifth at most", paced, hourly)
	}
	if paced > same*11/10 || pacedLate*2 > sameLate {
		t.Errorf("with %d checks drift is found after %s, and with %d at a fixed interval after %s: want half of that at most", paced, pacedLate, same, sameLate)
	}
}

// A check that the interval asks for waits for its budget, as long as that says. One that a user
// requests, one after a state was written by something else, and a plan at the interval ask none.
func TestABudgetDelaysOnlyWhatTheIntervalAsksFor(t *testing.T) {
	planned := Run{ID: "plan-1", Kind: PlanRun, Done: true, Outcome: Succeeded, State: "s1", Exists: true, At: calm, Cause: Cause{PlanInputs: calmBasis}}
	o := calmly(Spec{Mode: Auto, CheckDrift: true}, Status{}.Record(planned))
	o.Now, o.CheckedAt = o.Now.Add(10*time.Hour), o.Now
	if at, pause, ok := DueCheck(o); !ok || !at.Equal(o.CheckedAt.Add(time.Hour)) || pause != time.Hour {
		t.Fatalf("DueCheck() = %v, %s, %t, want %v, 1h, true", at, pause, ok, o.CheckedAt.Add(time.Hour))
	}
	if a, ok := Decide(o).Action.(Start); !ok || a.Kind != CheckRun {
		t.Fatalf("without a budget the stack does %#v", Decide(o).Action)
	}
	o.BudgetUntil = o.Now.Add(5 * time.Minute)
	if a, ok := Decide(o).Action.(Wait); !ok || a.For != 5*time.Minute {
		t.Errorf("with a budget the stack does %#v, want that it waits 5m", Decide(o).Action)
	}
	for name, change := range map[string]func(*Observation){
		"a request":           func(o *Observation) { o.Replan = "now" },
		"a check not due":     func(o *Observation) { o.CheckedAt = o.Now },
		"a plan, not a check": func(o *Observation) { o.Spec.CheckDrift = false },
		"a script that runs":  func(o *Observation) { o.Spec.Script = true },
		"a state to look into": func(o *Observation) {
			o.Status.KnownState.Unstored, o.Status.AppliedAt, o.CheckedAt = true, o.Status.PlannedAt, time.Time{}
		},
	} {
		other := o
		change(&other)
		if _, _, ok := DueCheck(other); ok {
			t.Errorf("%s asks for a budget", name)
		}
	}
	o.Replan = "now"
	if a, ok := Decide(o).Action.(Start); !ok {
		t.Errorf("a stack whose user requests a run does %#v, want that it starts one", a)
	}
}
