package controller

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// states loads the states of stacks for their runs, and stores what runs made of
// them.
type states struct {
	cache     client.Reader
	dialects  dialect.Registry
	events    Events
	store     States
	inspector *inspector
	auditor   *auditor
	records   *records
	versions  *versions
}

// startState returns the state that a run starts from, after making sure that it
// is the stack's own and what it should be. It is kept as a version first: what
// a run is about to destroy must be found again.
func (sts *states) startState(ctx context.Context, p *pass, kind stack.RunKind, cause stack.Cause) (state []byte, err error) {
	ref := p.note.State
	if ref == nil {
		return nil, sts.unshared(ctx, p, kind)
	}
	defer func() { p.entry.stateOwn = err == nil }()
	state, err = sts.loadState(ctx, p, *ref)
	if err != nil {
		return nil, fault.New(fault.Of(err), fault.Reason(err, string(stack.StateFailed)), fmt.Errorf("loading the state: %w", err))
	}
	if len(state) == 0 {
		return nil, sts.unshared(ctx, p, kind)
	}
	if !destructive(kind, cause) {
		return state, nil
	}
	return state, sts.versions.keepVersion(ctx, p.id, state, stack.StateVersion{By: p.o.Status.Wrote, At: p.o.Now, Before: p.name(kind, cause)}, nil)
}

// destructive reports whether a run may destroy something.
func destructive(kind stack.RunKind, cause stack.Cause) bool {
	switch kind {
	case stack.DestroyRun, stack.BreakGlassRun:
		return true
	case stack.ApplyRun:
		return cause.Destroy || cause.Plan == nil || cause.Plan.Changes.Destroy > 0
	default:
		return false
	}
}

// loadState returns the state of a stack, or says what is wrong with what is
// there. What something else wrote is kept as a version.
func (sts *states) loadState(ctx context.Context, p *pass, ref kube.StateRef) ([]byte, error) {
	s, err := sts.inspector.inspectState(ctx, p, ref)
	if err != nil || len(s.ours) > 0 {
		return s.ours, err
	}
	return s.State, sts.takeState(ctx, p, ref, s)
}

// takeState keeps what was found as a version if something else wrote it, and takes
// it over if it may be, or if a person accepted it.
func (sts *states) takeState(ctx context.Context, p *pass, ref kube.StateRef, s storedState) error {
	if s.facts.Digest != "" && s.facts.Digest == s.known.Digest {
		return nil
	}
	head := &s.facts.Known
	accepted := s.reason != "" && p.accepts(s.Digest)
	if s.reason != "" && !accepted {
		head = nil
	}
	news := s.continued && s.head != s.facts.Known
	if news && s.Person != "" {
		e := audit.Entry{What: audit.StatePushed, Why: "the state says who pushed it, and nothing proves that", Details: map[string]string{"by": s.Person, "state": s.facts.Known.String(), "after": s.known.String()}}
		if err := sts.auditor.record(ctx, p, e, s.facts.Known.Digest); err != nil {
			return err
		}
	}
	if s.facts.Digest != "" {
		v := stack.StateVersion{By: author(s.Stored, s.continued || s.reason != "", p.o.Status.Wrote), At: p.o.Now}
		if err := sts.versions.keepVersion(ctx, p.id, s.State, v, head); err != nil {
			return err
		}
	}
	switch {
	case accepted:
		p.o.Status.Known, p.o.Status.Accepted = s.facts.Known, p.o.Spec.AcceptState
		if s.facts.Digest == "" {
			p.o.Status.State = "" // there is none to go by
			if err := sts.versions.setHead(ctx, p.id, stack.Known{}); err != nil {
				return err
			}
		}
		sts.events.Event(p.obj, warning, "StateAccepted", fmt.Sprintf("The state %s was accepted, although %s was expected", stack.AcceptedState(p.o.Spec.AcceptState), s.known))
		return nil
	case s.reason != "":
		return p.refused(s.reason, ref, s.known, s.facts)
	case news:
		sts.events.Event(p.obj, normal, "StateContinued", fmt.Sprintf("The state was continued by %s: %s, after %s", author(s.Stored, true, ""), s.facts.Known, s.known))
	}
	return nil
}

// settleState stores what a run that ended made of the state, and says what is
// known of it from now on.
func (sts *states) settleState(ctx context.Context, p *pass, r *runner.Report, n note, run *stack.Run) error {
	if n.State != nil && r.State.Serial > 0 {
		run.Known = stack.Known{Lineage: r.State.Lineage, Serial: r.State.Serial, Digest: r.State.Digest}
	}
	if !r.Kind.Writes() {
		return nil
	}
	err := sts.flush(ctx, p, r, n)
	unstored := fault.Reason(err, "") == kube.StateConflict
	if err != nil && !unstored {
		return fmt.Errorf("storing the state after %s: %w", r.ID, err)
	}
	if n.State != nil {
		state, err := sts.records.left(p.id, r.ID, runner.FileState)
		if err == nil && len(state) > 0 {
			run.Known, err = sts.keepRun(ctx, p, r.ID, state, unstored)
		}
		if err != nil {
			return fmt.Errorf("keeping the state after %s: %w", r.ID, err)
		}
	}
	if unstored {
		sts.events.Event(p.obj, warning, "StateNotStored", fmt.Sprintf("Another client wrote the state during the run %s; the state of the run is kept as the version %d: %v", r.ID, run.Known.Serial, err))
	}
	return sts.rescue(ctx, p, r, n, run)
}

// keepRun keeps the state of a run as the version that is expected from now on.
func (sts *states) keepRun(ctx context.Context, p *pass, id string, state []byte, unstored bool) (stack.Known, error) {
	facts, err := stack.ReadState(state)
	if err != nil {
		return stack.Known{}, err
	}
	facts.Unstored = unstored
	v := stack.StateVersion{By: id, At: p.o.Now}
	if unstored {
		v.Before = id // it stays until a person dealt with it
	}
	return facts.Known, sts.versions.keepVersion(ctx, p.id, state, v, &facts.Known)
}

// newest is the last state that was stored of a stack whose state we keep.
func (sts *states) newest(ctx context.Context, p *pass, r *runner.Report, n note) ([]byte, error) {
	if n.State == nil {
		return sts.records.left(p.id, r.ID, runner.FileState)
	}
	return sts.inspector.newestKept(ctx, p.id)
}

// flush stores the newest state that the supervisor acknowledged.
func (sts *states) flush(ctx context.Context, p *pass, r *runner.Report, n note) error {
	if n.State == nil {
		return nil
	}
	state, err := sts.records.left(p.id, r.ID, runner.FileState)
	if err != nil || len(state) == 0 {
		return err
	}
	// A copy of our own: a namespace that is deleted takes the Secret with it
	// before the stack is destroyed.
	if err := sts.records.put(ctx, record.State(p.id), state); err != nil {
		return err
	}
	err = sts.store.Save(ctx, *n.State, kube.Owner{Name: p.obj.GetName(), UID: p.id}, state)
	if p.o.Deleting && fault.Of(err) == fault.Denied {
		return nil // nothing can be made in a namespace that goes away
	}
	return err
}

// rescue takes over a state that could not be stored during the run, if it
// follows the one that is, and keeps it otherwise.
func (sts *states) rescue(ctx context.Context, p *pass, r *runner.Report, n note, run *stack.Run) error {
	if n.State != nil {
		state, err := sts.records.left(p.id, r.ID, runner.FileRescue)
		if err != nil || state == nil {
			return err
		}
		if _, err := stack.ReadState(state); err != nil {
			// The engine could not write it out, on a disk without room: what it
			// created and no state tracks is found in its events.
			sts.events.Event(p.obj, warning, "StateNotRescued", fmt.Sprintf("The newest state could not be stored during %s, and the file that the engine left of it is no state (%d bytes): %v", r.ID, len(state), err))
			return sts.records.put(ctx, record.Rescued(p.id, r.ID), state)
		}
		if sts.store.Save(ctx, *n.State, kube.Owner{Name: p.obj.GetName(), UID: p.id}, state) == nil {
			sts.events.Event(p.obj, warning, "StateRescued", "The newest state could not be stored during the run, and was stored after it")
			if run.Known, err = sts.keepRun(ctx, p, r.ID, state, false); err != nil {
				return err
			}
			return sts.records.put(ctx, record.State(p.id), state)
		}
	}
	kept, err := sts.records.keep(ctx, p.id, r.ID, runner.FileRescue, record.Rescued(p.id, r.ID))
	if kept && err == nil {
		sts.events.Event(p.obj, warning, "StateRescued", "The backend refused the newest state, which is kept. To write it to a file: terrier state pull --rescued "+r.ID)
	}
	return err
}
