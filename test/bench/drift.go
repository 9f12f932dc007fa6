package main

import (
	"container/heap"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/stack"
)

// onDrift plays a month of 10,000 stacks whose pauses between drift checks follow from what
// happened, beside the same stacks at a fixed interval, with and without a budget. It is a
// simulation with the functions that decide: no engine runs, and the figures are the same each
// time.
func onDrift(_ context.Context, out io.Writer) error {
	if _, err := fmt.Fprintln(out, "| 10,000 stacks, 30 days | checks a day | runs of 1 s at once | drift is found after: p50 | p95 | max |\n| --- | --- | --- | --- | --- | --- |"); err != nil {
		return err
	}
	paced := policy.Pace{Min: 10 * time.Minute, Max: 24 * time.Hour}
	for _, one := range []struct {
		name   string
		pace   policy.Pace
		budget int // drift checks an hour of all stacks together; 0 if unlimited
	}{
		{"each every hour", policy.Pace{}, 0},
		{"from 10 minutes to 1 hour", policy.Pace{Min: 10 * time.Minute}, 0},
		{"from 10 minutes to 6 hours", policy.Pace{Min: 10 * time.Minute, Max: 6 * time.Hour}, 0},
		{"from 10 minutes to 24 hours", paced, 0},
		{"each every hour, and 500 an hour", policy.Pace{}, 500},
		{"from 10 minutes to 24 hours, and 500 an hour", paced, 500},
	} {
		checks, late := month(one.pace, one.budget)
		slices.Sort(late)
		at := func(share float64) time.Duration {
			return late[min(len(late)-1, int(share*float64(len(late))))].Round(time.Minute)
		}
		day := checks / 30
		if _, err := fmt.Fprintf(out, "| %s | %d | %.2f | %s | %s | %s |\n", one.name, day, float64(day)/86400, at(0.5), at(0.95), at(1)); err != nil {
			return err
		}
	}
	return nil
}

// played is a stack of the simulation.
type played struct {
	id     string
	o      stack.Observation
	every  time.Duration // between two drifts, on average; 0 if it never drifts
	drifts time.Time     // the next time
	due    time.Time     // when it is checked next
	pause  time.Duration // before that
	asks   time.Time     // when it asks for that check
}

// byTime are the stacks, the one that asks next first.
type byTime []*played

func (b byTime) Len() int           { return len(b) }
func (b byTime) Less(i, j int) bool { return b[i].asks.Before(b[j].asks) }
func (b byTime) Swap(i, j int)      { b[i], b[j] = b[j], b[i] }

// Push and Pop are those of heap.Interface. No stack comes or goes.
func (b *byTime) Push(x any) { *b = append(*b, x.(*played)) }

func (b *byTime) Pop() any {
	last := (*b)[len(*b)-1]
	*b = (*b)[:len(*b)-1]
	return last
}

// month returns how many checks 10,000 stacks have in 30 days, and how late each drift is found.
// One in a hundred drifts twice a day on average, one in twenty every ten days, and the others
// never. All were applied at some time of the month before, and are checked first at some time of
// the first hour.
func month(pace policy.Pace, budget int) (checks int, late []time.Duration) {
	const stacks, length = 10_000, 30 * 24 * time.Hour
	random := rand.New(rand.NewPCG(1, 1))
	begin := time.Unix(1e9, 0)
	end := begin.Add(length)
	next := func(p *played, after time.Time) time.Time {
		if p.every == 0 {
			return end
		}
		return after.Add(time.Duration(random.ExpFloat64() * float64(p.every)))
	}
	all := make(byTime, stacks)
	for i := range all {
		p := &played{id: strconv.Itoa(i), pause: time.Hour}
		switch {
		case i%100 == 0:
			p.every = 12 * time.Hour
		case i%20 == 0:
			p.every = 10 * 24 * time.Hour
		}
		p.o.Spec = stack.Spec{CheckDrift: true, Interval: time.Hour, Spread: random.Uint64(), Drift: policy.Drift{Pace: pace}}
		p.o.Status.AppliedAt = begin.Add(-time.Duration(random.Int64N(int64(length))))
		p.due = begin.Add(time.Duration(random.Int64N(int64(time.Hour))))
		p.asks, p.drifts = p.due, next(p, begin)
		all[i] = p
	}
	heap.Init(&all)
	var draws []schedule.Draw
	if budget > 0 {
		draws = []schedule.Draw{{Of: "all", Checks: budget, MaxDelay: policy.MaxDelay}}
	}
	var budgets schedule.Budgets
	for all[0].asks.Before(end) {
		p := all[0]
		at := p.asks
		if turn := budgets.Ask(p.id, schedule.Wish{Due: p.due, Pause: p.pause, Takes: time.Second, Share: 1, Draws: draws}, at); !turn.Ask.IsZero() {
			p.asks = turn.Ask
			heap.Fix(&all, 0)
			continue
		}
		budgets.Ended(p.id, time.Second)
		checks++
		if !p.drifts.After(at) {
			late = append(late, at.Sub(p.drifts))
			p.o.DriftedAt, p.drifts = at, next(p, at)
		}
		p.pause = stack.Pause(p.o, at)
		p.due = at.Add(p.pause)
		p.asks = p.due
		heap.Fix(&all, 0)
	}
	return checks, late
}
