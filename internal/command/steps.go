package command

import (
	"context"
	"fmt"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Reasons of requests for steps that are refused.
const (
	ReasonNoSteps    = "NoSteps"      // the stack has none, or was not applied
	ReasonOtherSteps = "StepsChanged" // they are others than the user saw
)

// RerunSteps has the steps after an apply run again, all of them, and returns the request. Seen
// is the digest of the steps that the user saw; those of now if empty. Steps that are held for an
// approval get that of this user, and run once no other is needed. A stack without steps, or without an
// apply, is Missing them; other steps than the user saw are a Conflict.
func (s *Stacks) RerunSteps(ctx context.Context, key query.Key, seen string) (request string, err error) {
	_, err = s.edit(ctx, key, func(o *query.Object) error {
		known, digest := stack.KnownSteps(o.Status), ""
		if known != nil {
			digest = known.Approvable()
		}
		switch {
		case o.View.Suspended:
			return fault.New(fault.Invalid, "Suspended", fmt.Errorf("the stack %s is suspended", key))
		case len(o.Configuration.AfterApply) == 0:
			return fault.New(fault.Missing, ReasonNoSteps, fmt.Errorf("the stack %s has no steps after its applies: the annotation terrier.dev/after-apply names them", key))
		case known == nil || !stack.HasStepsToFollow(o.Status):
			return fault.New(fault.Missing, ReasonNoSteps, fmt.Errorf("the stack %s was not applied yet: its steps run after the apply by themselves", key))
		case o.Spec.Mode == stack.PlanOnly || o.Spec.Mode == stack.DriftOnly:
			return fault.New(fault.Invalid, ReasonNoSteps, fmt.Errorf("the stack %s applies nothing, so that no steps run: change planOnly or approvePlan", key))
		case seen != "" && seen != digest && seen != stack.ShortSteps(digest):
			return fault.New(fault.Conflict, ReasonOtherSteps, fmt.Errorf("the steps of the stack %s, or files that they can use, changed since: review them again with terrier steps %s", key, key.Argument()))
		}
		word := stack.ShortSteps(digest)
		if o.View.Phase == string(stack.StepsHeld) { // they are due, and lack approvals, which the API server stamps
			request = word + " " + s.request()
			o.View.Confirm = request
			return nil
		}
		request = word + "@" + s.request()
		o.View.Rerun = request
		return nil
	})
	return request, err
}
