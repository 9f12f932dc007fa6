package controller

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/stack"
)

// lingering are the places in which something may still run although the run has ended.
// Each takes a slot of its own, so that there are never more pods than slots. Nil is of a
// runner that leaves none.
type lingering struct{ runner.Lingering }

// slotOf is how the queue knows the slot of a place.
func slotOf(r runner.Remain) string { return r.Stack + "/" + r.Place }

// keep has the queue count the places that the runs of a stack left, as the run that has
// ended just now.
func (l lingering) keep(q Queue, id string, run schedule.Candidate, now time.Time) {
	l.count(q, id, func(places []string) {
		for _, place := range places {
			q.Running(place, run.Ended(now))
		}
	})
}

// ended frees the slot of a run whose stack was not reconciled here, and has the queue count
// the places that the run left.
func (l lingering) ended(q Queue, id string) {
	l.count(q, id, func(places []string) { q.Ended(id, places...) })
}

// count has the places that the runs of a stack left counted, and frees the slot of each that
// was vacated before it was counted.
func (l lingering) count(q Queue, id string, count func(places []string)) {
	left := l.slotsOf(id)
	count(left)
	still := l.slotsOf(id)
	for _, place := range left {
		if !slices.Contains(still, place) {
			q.Leave(place)
		}
	}
}

// slotsOf are the slots of the places that the runs of a stack left.
func (l lingering) slotsOf(id string) (slots []string) {
	if l.Lingering == nil {
		return nil
	}
	for _, r := range l.Remains(id) {
		slots = append(slots, slotOf(r))
	}
	return slots
}

// found are the places that runs of stacks left before this controller began, or before
// it got these stacks, as the queue counts them.
func (l lingering) found(in func(stack string) bool, now func() time.Time) map[string]schedule.Candidate {
	all := map[string]schedule.Candidate{}
	if l.Lingering == nil {
		return all
	}
	for _, r := range l.Remains("") {
		if in(r.Stack) {
			all[slotOf(r)] = schedule.Candidate{
				Key: schedule.Key{Namespace: r.Namespace}, Tenant: cmp.Or(r.Tenant, r.Namespace), Class: note{}.class(""), Ending: true, Began: now(),
			}
		}
	}
	return all
}

// listen frees the slots of places in which nothing runs any more, and has the queue hand
// over those of places that may have another run, until ctx ends.
func (l lingering) listen(ctx context.Context, q Queue) {
	if l.Lingering == nil {
		return
	}
	sharing, _ := l.Lingering.(runner.Sharing)
	var offered <-chan runner.Remain
	if sharing != nil {
		offered = sharing.Offered()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-l.Vacated():
			q.Leave(slotOf(r))
		case r := <-offered:
			to, others := q.HandOver(slotOf(r), func(next schedule.Candidate) bool {
				return next.Kind == stack.CheckRun && next.Key.Namespace == r.Namespace
			})
			sharing.Answer(r, to, others)
		}
	}
}
