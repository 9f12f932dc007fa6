package controller

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/stack"
)

// decisionsKept is how much of what was decided about a stack stays readable.
const decisionsKept = 50

// timeline is what was decided about one stack and is not in the records yet.
type timeline struct {
	phase, rule string // of the last one, written or not
	loaded      bool
	fresh       []stack.Decided // newest last
}

// writeTimeline notes what was decided, if it is another decision than before, and
// writes down what is new once the stack is settled or a run of it has ended. A
// drift check that finds nothing decides nothing. The timeline is for people to
// read: what cannot be written is tried again the next time.
func (cm *committer) writeTimeline(ctx context.Context, p *pass) error {
	if p.checkingDrift() || p.o.Asking && p.inside {
		return nil // policies answer soon
	}
	if err := cm.noteDecision(ctx, &p.entry.timeline, p, p.decision); err != nil {
		cm.log.Warn("decisions not kept", "stack", client.ObjectKeyFromObject(p.obj).String(), "err", err)
	}
	return nil
}

// checkingDrift reports whether a pass belongs to a drift check.
func (p *pass) checkingDrift() bool {
	if a, ok := p.decision.Action.(stack.Start); ok && a.Kind == stack.CheckRun {
		return true
	}
	return p.o.Run != nil && p.o.Run.Kind == stack.CheckRun || p.ended != nil && p.ended.Kind == stack.CheckRun && p.ended.Outcome == stack.Succeeded && p.ended.Plan == nil
}

func (cm *committer) noteDecision(ctx context.Context, t *timeline, p *pass, d stack.Decision) error {
	var kept []stack.Decided
	if !t.loaded {
		var err error
		if kept, _, err = cm.keptDecisions(ctx, p.id); err != nil {
			return err
		}
		if n := len(kept); n > 0 {
			t.phase, t.rule = kept[n-1].Phase, kept[n-1].Rule
		}
		t.loaded = true
	}
	now := stack.Decided{At: p.o.Now.UTC(), Phase: string(d.Reason), Rule: d.Rule, Message: d.Message, WaitingFor: waitingFor(p, d)}
	if now.Phase != t.phase || now.Rule != t.rule {
		t.phase, t.rule = now.Phase, now.Rule
		t.fresh = append(t.fresh, now)
		t.fresh = t.fresh[max(0, len(t.fresh)-decisionsKept):]
	}
	_, rests := d.Action.(stack.Wait)
	if len(t.fresh) == 0 || p.ended == nil && (p.o.Run != nil || !rests) {
		return nil
	}
	if kept == nil {
		var sealed bool
		var err error
		if kept, sealed, err = cm.keptDecisions(ctx, p.id); err != nil || sealed {
			return err // what is sealed stays, and what is new waits for its key
		}
	}
	kept = append(kept, t.fresh...)
	if err := record.Decisions(p.id).Write(ctx, cm.blobs, kept[max(0, len(kept)-decisionsKept):]); err != nil {
		return err
	}
	t.fresh = nil
	return nil
}

// keptDecisions are those that were written down, the newest last. A list that
// is damaged is started again: nothing depends on it. A list that is sealed with an
// unknown key has no decisions until the key is back.
func (cm *committer) keptDecisions(ctx context.Context, id string) (kept []stack.Decided, sealed bool, err error) {
	b, err := cm.records.Get(ctx, record.Decisions(id).Key)
	switch {
	case fault.Of(err) == fault.Missing || fault.Reason(err, "") == blob.Damaged:
		return nil, false, nil
	case fault.Reason(err, "") == blob.KeyUnknown:
		return nil, true, nil
	case err != nil:
		return nil, false, fmt.Errorf("reading the decisions: %w", err)
	}
	if kept, err = record.Decisions(id).Decode(b); err != nil {
		return nil, false, nil
	}
	return kept, false, nil
}

// waitingFor names what has to come about before the stack goes on, empty if it
// waits for nothing but time.
func waitingFor(p *pass, d stack.Decision) string {
	m := p.o.Status
	switch d.Reason {
	case stack.Queued:
		return "its turn"
	case stack.AwaitingApproval:
		if m.Pending != nil {
			return "an approval of " + m.Pending.Name
		}
		return "an approval"
	case stack.RunCancelled:
		return "a request, or a change of the stack"
	case stack.PlanRejected:
		return "a change of the stack, or an approval"
	case stack.LockedByOther:
		if m.Lock != nil && m.Lock.Who != "" {
			return "the state lock of " + m.Lock.Who
		}
		return "the state lock"
	case stack.DependencyNotReady:
		return "a dependency"
	case stack.RolledBack:
		return "a change of the source, the inputs or the spec, or the end of the rollback"
	case stack.StepsFailed, stack.StepsHeld:
		return "a request for its steps, or a change of them"
	case stack.PrerequisiteMissing:
		return "its prerequisites"
	case stack.DeletionBlocked:
		return "the stacks that depend on it"
	case stack.SourceNotReady:
		return "its source"
	case stack.InputsFailed:
		return "its inputs"
	case stack.Reviewing:
		return "the answer of its policies or webhooks"
	case stack.ApplyWithheld:
		return "a time that policies allow"
	case stack.Suspended:
		return "a user to resume it"
	case stack.BreakGlassSession:
		return "the end of the break-glass session"
	case stack.RetryLater, stack.DestroyFailed:
		return "the next attempt"
	case stack.NoDestroyScript, stack.SpecInvalid, stack.ModuleInvalid, stack.SourceDenied, stack.RetryLimitReached, stack.StateIncomplete, stack.StateMissing, stack.NotConverging, stack.ReviewRefused:
		return "a change of the stack"
	default:
		return ""
	}
}
