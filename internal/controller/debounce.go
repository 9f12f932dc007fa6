package controller

import (
	"reflect"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/stack"
)

// Patience is how long a run that no person asked for may go on, or wait for its
// turn, before the status says so. A short run is over by then, and its outcome is
// written in any case: each of a thousand new small stacks would be written three
// times more.
const Patience = 2 * time.Second

// policiesPatience is the same while policies are asked about a pending plan: a change of one
// has all pending plans judged again, and most answers repeat the last one.
const policiesPatience = 10 * time.Second

// debounce returns how much longer the status may say less than is known, zero if
// it is to say all now.
func (e *entry) debounce(now time.Time, patience time.Duration) time.Duration {
	if e.debouncedAt.IsZero() {
		e.debouncedAt = now
	}
	// A clock that was set back must not delay a status.
	return min(max(0, e.debouncedAt.Add(patience).Sub(now)), patience)
}

// untilJudged is how much longer the status may go without that policies are asked about the
// pending plan, if a pass found nothing else. They answer soon. A change of one has all pending
// plans judged again, and each status would be written twice.
func (cm *committer) untilJudged(p *pass) time.Duration {
	if !p.o.Asking || !p.inside || cm.config.Patience <= 0 || p.ended != nil || !reflect.DeepEqual(p.st.Status, p.o.Status) {
		return 0
	}
	return p.entry.debounce(p.o.Now, max(cm.config.Patience, policiesPatience))
}

// statusDebounce is how much longer the status may go without what a pass found:
// it is progress and nothing else, and no person waits for it.
func (cm *committer) statusDebounce(p *pass, before client.Object) time.Duration {
	run := p.o.Run
	switch {
	case cm.config.Patience <= 0, p.ended != nil, run == nil && p.o.Queued == "":
		return 0
	case p.o.Spec.AwaitsApproval(p.o.Status), p.o.Spec.Repair != nil, p.o.Deleting, p.o.Replan != p.o.Status.HandledReplan:
		return 0 // a person has just asked for something, and watches what becomes of it
	case run != nil && run.Kind != stack.PlanRun && run.Kind != stack.ApplyRun && run.Kind != stack.ScriptRun:
		return 0
	case !p.dialect.OnlyProgress(before, p.obj):
		return 0
	}
	return p.entry.debounce(p.o.Now, cm.config.Patience)
}
