package controller

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/terrier-iac/terrier/internal/stack"
)

// tell makes events of what the pass changed, which also reach those whom alerts
// name, and counts it.
func (c *Stacks) tell(_ context.Context, p *pass) error {
	for _, t := range p.transitions() {
		c.count(p, t)
		c.tellOf(p, t)
	}
	return nil
}

// count counts what the metrics have of a transition.
func (c *Stacks) count(p *pass, t stack.Transition) {
	switch {
	case t.Change == stack.RunEnded:
		c.metrics.ended(p.obj.GetNamespace(), p.obj.GetName(), p.report, *t.Run, c.Dialect.EventReason(*t.Run))
	case t.Change == stack.PlanMade && t.Plan.Drift && !t.Repeated:
		c.metrics.drifts.Inc()
	}
}

// tellOf makes an event of a transition, if people are told of it.
func (c *Stacks) tellOf(p *pass, t stack.Transition) {
	switch t.Change {
	case stack.CommandEnded:
		c.tellCommand(p, *t.Command)
	case stack.PlanStale:
		c.say(p, normal, "PlanStale", "The plan was not applied: the state changed after it was made", runFacts(*t.Run))
	case stack.AttemptFailed:
		c.tellFailure(p, t)
	case stack.StackDestroyed:
		c.say(p, normal, c.Dialect.EventReason(*t.Run), "Everything in the state was destroyed", runFacts(*t.Run))
	case stack.PlanApplied:
		c.say(p, normal, c.Dialect.EventReason(*t.Run), "Applied "+t.Plan.Name+": "+t.Plan.Changes.String(), runFacts(*t.Run))
	case stack.PlanMade:
		c.tellPlan(p, t)
	case stack.StackRecovered:
		c.say(p, normal, "Recovered", fmt.Sprintf("The stack works again, after it failed %s", times(t.Failures)), runFacts(*t.Run))
	case stack.DriftResolved:
		c.say(p, normal, "DriftResolved", resolutions[t.How], counted(t.Drift.Changes, map[string]string{"run": p.o.Status.LastRun}))
	case stack.PlanReviewed:
		c.tellVerdict(p, *t.Verdict, t.Plan)
	case stack.LockHeld:
		by := ""
		if t.Lock.Who != "" {
			by = " by " + t.Lock.Who
		}
		c.say(p, warning, "LockHeld", fmt.Sprintf("The lock of the state is held%s since %s: nothing is planned or applied until it is freed", by, t.Lock.Since), map[string]string{"lock": t.Lock.ID})
	case stack.BreakGlassStarted:
		c.Events.Event(p.obj, warning, "BreakGlassStarted", "A break-glass session began: Terrier plans and applies nothing until "+t.Session.Until.UTC().Format(time.RFC3339))
	case stack.BreakGlassEnded:
		c.Events.Event(p.obj, normal, "BreakGlassEnded", "The break-glass session was ended: Terrier reconciles the stack again")
	case stack.RunEnded, stack.LockBroken, stack.UntrackedFound: // the condition says it, or the end of the run does
	}
}

// resolutions say how drift was resolved.
var resolutions = map[stack.Resolution]string{
	stack.WentAway:   "Drift resolved: what was applied is there again",
	stack.Remediated: "Drift resolved by what was applied",
	stack.Replaced:   "Drift is no longer told apart: there is a plan of something new",
}

// tellFailure tells of a run that failed. The first of a series is news.
func (c *Stacks) tellFailure(p *pass, t stack.Transition) {
	if t.Run == nil {
		return // the condition says what came in its way
	}
	reason, message := c.Dialect.EventReason(*t.Run), fmt.Sprintf("%s (attempt %d): %s", t.Run.Outcome, t.Failures, t.Run.Message)
	if t.Repeated {
		c.sayAgain(p, warning, reason, message)
		return
	}
	c.say(p, warning, reason, message, runFacts(*t.Run))
}

// tellPlan tells of a plan with changes. One that is applied at once is told of by
// its apply.
func (c *Stacks) tellPlan(p *pass, t stack.Transition) {
	reason, facts := c.Dialect.EventReason(*t.Run), runFacts(*t.Run)
	_, applied := p.decision.Action.(stack.Apply)
	switch {
	case t.Plan.Drift && t.Repeated:
	case t.Plan.Drift:
		c.say(p, warning, reason, "Drift detected: "+t.Plan.Changes.String(), facts)
	case applied:
	case t.Repeated:
		c.sayAgain(p, normal, reason, "Planned "+t.Plan.Name+": "+t.Plan.Changes.String())
	case p.o.Spec.Mode == stack.Manual:
		c.say(p, normal, reason, "Plan pending: "+t.Plan.Name+" waits for approval: "+t.Plan.Changes.String(), facts)
	default:
		c.say(p, normal, reason, "Planned "+t.Plan.Name+": "+t.Plan.Changes.String(), facts)
	}
}

// tellVerdict tells what the webhooks said of a plan.
func (c *Stacks) tellVerdict(p *pass, v stack.Verdict, made *stack.Plan) {
	switch {
	case v.Passed:
		c.Events.Event(p.obj, normal, "PlanReviewed", fmt.Sprintf("The webhooks let %s pass: %s", made.Name, made.Changes))
	case v.Held:
		c.Events.Event(p.obj, warning, "PlanHeld", made.Name+" needs an approval: "+v.Message)
	case v.Refused:
		c.Events.Event(p.obj, warning, "PlanRefused", made.Name+" was refused: "+v.Message)
	default:
		c.Events.Event(p.obj, warning, "PostPlanningWebhookFailed", v.Message)
	}
}

// tellCommand tells of a command of a break-glass session.
func (c *Stacks) tellCommand(p *pass, h stack.CommandResult) {
	kind, text := normal, fmt.Sprintf("%s ran %q: %s", cmp.Or(h.By, "a user"), h.Command.String(), h.Outcome)
	if h.Outcome != stack.Succeeded {
		kind, text = warning, text+": "+h.Message
	}
	if h.Moved {
		text += "; the state changed"
	}
	c.Events.Event(p.obj, kind, "RunByHand", text)
}
