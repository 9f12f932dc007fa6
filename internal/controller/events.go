package controller

import (
	"context"
	"fmt"

	"github.com/terrier-iac/terrier/internal/stack"
)

// tell makes events of what happened, once. A plan that is applied at once is
// told of by its apply.
func (c *Stacks) tell(_ context.Context, p *pass) error {
	defer c.tellChanges(p)
	r := p.ended
	if r == nil || r.ID == p.st.Status.LastRun {
		return nil
	}
	m := p.o.Status
	_, goesOn := p.decision.Action.(stack.Apply)
	reason := c.Dialect.EventReason(*r)
	c.metrics.ended(p.obj.GetNamespace(), p.obj.GetName(), p.report, *r, reason)
	facts := runFacts(*r)
	switch {
	case r.Kind == stack.GlassRun:
		c.tellByHand(p, *m.ByHand)
	case r.Kind == stack.PreviewRun, r.Outcome == stack.Interrupted && !r.Kind.Writes():
	case r.Outcome == stack.Stale:
		c.say(p, normal, "PlanStale", "The plan was not applied: the state changed after it was made", facts)
	case r.Outcome != stack.Succeeded:
		message := fmt.Sprintf("%s (attempt %d): %s", r.Outcome, m.Failures, r.Message)
		if failsAnew(p.st.Status, m) {
			c.say(p, warning, reason, message, facts)
		} else {
			c.sayAgain(p, warning, reason, message)
		}
	case r.Kind == stack.DestroyRun:
		c.say(p, normal, reason, "Everything in the state was destroyed", facts)
	case r.Kind == stack.ApplyRun:
		c.say(p, normal, reason, "Applied "+r.Cause.Plan.Name+": "+r.Cause.Plan.Changes.String(), facts)
	case r.Plan != nil && r.Plan.Drift:
		if old := p.st.Status.Pending; old == nil || old.Digest != r.Plan.Digest {
			c.metrics.drifts.Inc()
			c.say(p, warning, reason, "Drift detected: "+r.Plan.Changes.String(), facts)
		}
	case r.Plan != nil && goesOn:
	case r.Plan != nil && !news(p.st.Status.Pending, r.Plan):
		c.sayAgain(p, normal, reason, "Planned "+r.Plan.Name+": "+r.Plan.Changes.String())
	case r.Plan != nil && awaits(p):
		c.say(p, normal, reason, "Plan pending: "+r.Plan.Name+" waits for approval: "+r.Plan.Changes.String(), facts)
	case r.Plan != nil:
		c.say(p, normal, reason, "Planned "+r.Plan.Name+": "+r.Plan.Changes.String(), facts)
	}
	return nil
}
