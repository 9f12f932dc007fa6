package command

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

// HandOrder asks for one command of the engine behind broken glass. Whoever asks
// chooses its ID: to send an order twice is to give it once.
type HandOrder struct {
	ID      string   `json:"id"`
	Session string   `json:"session,omitempty"` // the one that was seen; whichever is open if it is empty
	Args    []string `json:"args"`
}

var orderID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:+-]{0,63}$`)

// check refuses what could never be run.
func (order HandOrder) check() error {
	if !orderID.MatchString(order.ID) {
		return fault.New(fault.Invalid, "OrderInvalid", fmt.Errorf("%.80q cannot be the id of a command: letters, digits and ._:+- can, 64 of them", order.ID))
	}
	_, err := engine.ParseBreakGlass(order.Args)
	return err
}

// OrderByHand has one command run for a stack whose glass is broken, and does
// not wait for it: it shows up among the runs, and in Stack.ByHand once it has
// ended. While another one is on its way it is a Conflict, so that none is lost.
func (s *Sessions) OrderByHand(ctx context.Context, key query.Key, order HandOrder) (stack.Command, error) {
	if err := order.check(); err != nil {
		return stack.Command{}, err
	}
	c := stack.Command{ID: order.ID, By: s.whoami(ctx), Args: order.Args}
	_, err := s.edit(ctx, key, func(o *v1alpha2.Terraform) error {
		asked := query.Decode(o)
		before := asked.Spec.Command
		if h := asked.Status.LastCommand; h != nil && h.ID == c.ID {
			before = &h.Command
		}
		if before != nil && before.ID == c.ID {
			if !slices.Equal(before.Args, c.Args) {
				return fault.New(fault.Conflict, ReasonHandBusy, fmt.Errorf("the id %s is that of another command: %s", c.ID, before))
			}
			c = *before
			return nil
		}
		if !s.open(o) || order.Session != "" && order.Session != asked.Spec.BreakGlass {
			return fault.New(fault.Conflict, ReasonGlassWhole, fmt.Errorf("the glass of %s is not broken, or was broken anew since", key))
		}
		if query.Underway(asked.Spec, asked.Status) {
			return fault.New(fault.Conflict, ReasonHandBusy, fmt.Errorf("another command is on its way for %s: %s", key, before))
		}
		c.Session = asked.Spec.BreakGlass
		text, err := json.Marshal(c)
		if err != nil {
			return err
		}
		annotate(o, infra.BreakGlassCommand, string(text))
		return nil
	})
	return c, err
}
