package command

import (
	"context"
	"fmt"
	"strings"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

// UnexpectedState returns the stack whose state a user may accept, although Terrier expected
// another one. It is a Conflict if there is nothing to accept: no run found an unexpected
// state, and the stored one is the last known one.
func UnexpectedState(ctx context.Context, s StackAPI, key query.Key) (query.Stack, error) {
	st, err := s.Get(ctx, key)
	if err != nil || unexpected(st.Phase) {
		return st, err
	}
	infos, err := s.StateInfos(ctx, key.Filter())
	if err != nil {
		return st, err
	}
	for _, i := range infos {
		if i.Digest != i.Known.Digest || i.Problem != "" {
			return st, nil // no run has found it yet
		}
	}
	return st, nothingToAccept(st)
}

// unexpected reports whether a phase says that a run found an unexpected state.
func unexpected(phase string) bool {
	switch stack.Reason(phase) {
	case stack.StateMissing, stack.StateTampered, stack.StateRegressed:
		return true
	default:
		return false
	}
}

func nothingToAccept(st query.Stack) error {
	return fault.New(fault.Conflict, query.ReasonAsExpected, fmt.Errorf("there is nothing to accept: Terrier found no unexpected state of the stack %s, whose status is %s",
		st.Key(), st.Phase))
}

// AcceptState accepts the stored state of a stack, although another one was
// expected. It returns the state that was accepted. In place of a last known state that is
// missing, resources may be created a second time, so it needs a reason. It is a Conflict if
// there is nothing to accept.
func (s *States) AcceptState(ctx context.Context, key query.Key, reason string) (stack.StateID, error) {
	o, err := s.Read(ctx, key)
	if err != nil {
		return stack.StateID{}, err
	}
	st := query.View(o)
	missing := stack.Reason(st.Phase) == stack.StateMissing || o.Status.Missing != nil
	if missing && strings.TrimSpace(reason) == "" {
		return stack.StateID{}, NeedsReason(st, o.Spec.Words.Argument)
	}
	if m := o.Status.Missing; m != nil && (o.Configuration.Backend.Kind != stack.Managed || o.Deleting()) {
		return stack.StateID{Lineage: m.Found.Lineage, Serial: m.Found.Serial}, s.accept(ctx, key, m.Token(), reason)
	}
	if o.Configuration.Backend.Kind != stack.Managed {
		return stack.StateID{}, nothingToAccept(st)
	}
	h, err := s.StoredState(ctx, key)
	if err != nil {
		return stack.StateID{}, err
	}
	found, err := h.States.Load(ctx, h.Ref)
	if err != nil {
		return stack.StateID{}, err
	}
	said, facts := stack.NoState, stack.StateFacts{}
	if found.Digest != "" {
		if facts, err = stack.ReadState(found.State); err != nil {
			return stack.StateID{}, fault.New(fault.Invalid, query.ReasonNoState, fmt.Errorf("the stored state of %s cannot be read: %w", key, err))
		}
		said = facts.Digest
	}
	if !unexpected(st.Phase) && facts.Digest == o.Status.KnownState.Digest {
		return stack.StateID{}, nothingToAccept(st)
	}
	return facts.StateID, s.accept(ctx, key, said, reason)
}

// NeedsReason says that a user who accepts that the last known state is missing has to give
// a reason. The argument names the stack in a command.
func NeedsReason(st query.Stack, argument string) error {
	return fault.New(fault.Invalid, query.ReasonNoReason, fmt.Errorf("--reason: the last known state of the stack %s is missing, and its resources may be created a second time: give the reason, which the audit log keeps: terrier state accept %s --reason TEXT", st.Key(), argument))
}

// accept writes what a user accepts into the object, with the time and the reason, and
// requests a plan.
func (s *States) accept(ctx context.Context, key query.Key, said, reason string) error {
	request := s.request()
	_, err := s.edit(ctx, key, func(o *query.Object) error {
		o.View.AcceptState = said + "@" + request
		if reason = strings.TrimSpace(reason); reason != "" {
			o.View.AcceptState += " " + fault.Shorten(reason, mostReason)
		}
		o.View.Replan = request
		return nil
	})
	return err
}

// mostReason bounds the reason that a user gives, in bytes.
const mostReason = 500
