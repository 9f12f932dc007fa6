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
	if l.Lingering == nil {
		return
	}
	run.Ending, run.Began = true, now
	left := l.Remains(id)
	for _, r := range left {
		q.Running(slotOf(r), run)
	}
	// One may have been vacated before it was counted.
	still := l.Remains(id)
	for _, r := range left {
		if !slices.ContainsFunc(still, func(s runner.Remain) bool { return slotOf(s) == slotOf(r) }) {
			q.Leave(slotOf(r))
		}
	}
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
