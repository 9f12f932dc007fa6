package command

import (
	"context"
	"fmt"
	"regexp"
	"slices"

	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

// CommandOrder requests one command of the engine in a session. The caller chooses
// its ID: an order that is sent twice is carried out once.
type CommandOrder struct {
	ID      string   `json:"id"`
	Session string   `json:"session,omitempty"` // the session that the user saw; the open one if empty
	Args    []string `json:"args"`
}

var orderID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:+-]{0,63}$`)

// check refuses an order that could never be carried out.
func (order CommandOrder) check() error {
	if !orderID.MatchString(order.ID) {
		return fault.New(fault.Invalid, "OrderInvalid", fmt.Errorf("%.80q is not the id of a command: it has up to 64 letters, digits and ._:+-", order.ID))
	}
	_, err := engine.ParseBreakGlass(order.Args)
	return err
}

// OrderCommand requests one command in a session, and does not wait for it: the
// command is among the runs, and in Stack.LastCommand once it has ended. While
// another command is pending it is a Conflict, so that no command is lost.
func (s *Sessions) OrderCommand(ctx context.Context, key query.Key, order CommandOrder) (stack.Command, error) {
	if err := order.check(); err != nil {
		return stack.Command{}, err
	}
	c := stack.Command{ID: order.ID, By: s.whoami(ctx), Args: order.Args}
	_, err := s.edit(ctx, key, func(o *query.Object) error {
		before := o.Spec.Command
		if h := o.Status.LastCommand; h != nil && h.ID == c.ID {
			before = &h.Command
		}
		if before != nil && before.ID == c.ID {
			if !slices.Equal(before.Args, c.Args) {
				return fault.New(fault.Conflict, ReasonCommandBusy, fmt.Errorf("the id %s belongs to another command: %s", c.ID, before))
			}
			c = *before
			return nil
		}
		if !s.open(o) || order.Session != "" && order.Session != o.Spec.BreakGlass {
			return fault.New(fault.Conflict, ReasonNoSession, fmt.Errorf("the stack %s has no break-glass session, or a newer one", key))
		}
		if query.Underway(o.Spec, o.Status) {
			return fault.New(fault.Conflict, ReasonCommandBusy, fmt.Errorf("another command is pending for %s: %s", key, before))
		}
		c.Session = o.Spec.BreakGlass
		o.View.Command = &c
		return nil
	})
	return c, err
}
