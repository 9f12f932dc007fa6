package command

import (
	"context"
	"fmt"
	"strings"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

// ReasonNoRollback is of an order to roll a stack back that cannot be, or to end a rollback where
// there is none.
const ReasonNoRollback = "NoRollback"

// ReasonOtherRollback is of an order to leave something else than what the stack asks for now.
const ReasonOtherRollback = "OtherRollback"

// RollBack has what the last good apply of a stack was made from planned and applied in place of
// what the object asks for, until something else is asked for; or ends that. The object names
// what is left, so that the order does not count for a later commit. It is a Conflict if there is
// nothing to return to, if it asks for something else than what the user saw, or if there is no
// rollback to end.
func (s *Stacks) RollBack(ctx context.Context, key query.Key, order StackRollback) (RollbackTo, error) {
	why := fault.Shorten(strings.Join(strings.Fields(order.Reason), " "), mostReason)
	var out RollbackTo
	_, err := s.edit(ctx, key, func(o *query.Object) error {
		m := o.Status
		if order.End {
			if m.Rollback == nil {
				return fault.New(fault.Conflict, ReasonNoRollback, fmt.Errorf("the stack %s is not rolled back", key))
			}
			out = RollbackTo{From: m.Rollback.To.PlanInputs.Revision, To: m.Rollback.From.Revision, Plan: m.Rollback.To.Plan}
			o.View.RollBack = stack.RollbackRequest(stack.EndRollback, s.Now(), why)
			return nil
		}
		b, never := query.RollbackOf(o)
		if b == nil {
			return fault.New(fault.Conflict, ReasonNoRollback, fmt.Errorf("the stack %s cannot be rolled back: %s", key, never))
		}
		if order.Leaves != "" && order.Leaves != b.Leaves {
			return fault.New(fault.Conflict, ReasonOtherRollback, fmt.Errorf("the stack %s asks for something else by now: %s. See what it asks for, and try again", key, b.From))
		}
		out = RollbackTo{From: b.From, To: b.To, Plan: b.Plan}
		o.View.RollBack = stack.RollbackRequest(b.Leaves, s.Now(), why)
		return nil
	})
	return out, err
}
