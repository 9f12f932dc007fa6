package command

import (
	"context"
	"fmt"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

// Cancel cancels the run of a stack, which must be the one that the user saw. The
// controller interrupts its engine, once: to cancel it again changes nothing. It
// returns the stack, which says how long the engine may take to end if it was
// interrupted already.
func (s *Stacks) Cancel(ctx context.Context, key query.Key, run string) (query.Stack, error) {
	o, err := s.edit(ctx, key, func(o *query.Object) error {
		switch now := query.View(o).Run; {
		case now == nil:
			return NoRun(key)
		case now.ID != run:
			return fault.New(fault.Conflict, query.ReasonRunChanged, fmt.Errorf("the run %s of the stack %s has ended: %s is running", run, key, now.ID))
		}
		o.View.Cancel = run
		return nil
	})
	if err != nil {
		return query.Stack{}, err
	}
	return query.View(o), nil
}

// NoRun says that a stack has no run to cancel.
func NoRun(key query.Key) error {
	return fault.New(fault.Conflict, query.ReasonNoRun, fmt.Errorf("the stack %s has no run that could be cancelled", key))
}
