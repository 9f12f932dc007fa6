package controller

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/stack"
)

// teller tells people what a pass changed.
type teller struct {
	events  Events
	metrics *metrics
}

// tell makes events of what the pass changed, which also reach those whom alerts
// name, and counts it.
func (tl *teller) tell(_ context.Context, p *pass) error {
	for _, t := range p.transitions() {
		tl.count(p, t)
		tl.tellOf(p, t)
	}
	return nil
}

// count counts what the metrics have of a transition.
func (tl *teller) count(p *pass, t stack.Transition) {
	switch {
	case t.Change == stack.RunEnded:
		tl.metrics.ended(p.obj.GetNamespace(), p.obj.GetName(), p.report, *t.Run, p.dialect.EventReason(*t.Run))
	case t.Change == stack.PlanMade && t.Plan.Drift && !t.Repeated:
		tl.metrics.drifts.Inc()
	case t.Change == stack.PlanReviewed:
		tl.metrics.judged(t.Verdict)
	}
}

// tellOf makes an event of a transition, if people are told of it.
func (tl *teller) tellOf(p *pass, t stack.Transition) {
	switch t.Change {
	case stack.CommandEnded:
		tl.tellCommand(p, *t.Command)
	case stack.PlanStale:
		tl.say(p, normal, "PlanStale", "The plan was not applied: the state changed after it was made", runFacts(*t.Run))
	case stack.AttemptFailed:
		tl.tellFailure(p, t)
	case stack.StackDestroyed:
		tl.tellDestroyed(p, t)
	case stack.ScriptRan:
		said := "The script succeeded" + doneBy(t.Run.Changes)
		if p.o.Status.Unapplied {
			said = "The script succeeded, and nothing changed in the state. No part of the approved plan " + t.Plan.Name + " is known to be applied"
		}
		tl.say(p, normal, p.dialect.EventReason(*t.Run), said, runFacts(*t.Run))
	case stack.PlanApplied:
		tl.say(p, normal, p.dialect.EventReason(*t.Run), "Applied "+t.Plan.Name+": "+t.Plan.Changes.String()+forgottenNote(p, t.Plan.Changes), runFacts(*t.Run))
	case stack.PlanMade:
		tl.tellPlan(p, t)
	case stack.StackRecovered:
		tl.say(p, normal, "Recovered", fmt.Sprintf("The stack works again, after it failed %s", times(t.Failures)), runFacts(*t.Run))
	case stack.StepsEnded:
		if t.Run.Outcome == stack.Succeeded {
			tl.say(p, normal, "StepsSucceeded", "The steps after the apply succeeded", runFacts(*t.Run))
		} else {
			tl.say(p, warning, string(stack.StepsFailed), "The steps after the apply ended "+string(t.Run.Outcome)+": "+t.Run.Message, runFacts(*t.Run))
		}
	case stack.DriftResolved:
		tl.say(p, normal, "DriftResolved", resolutions[t.How], counted(t.Drift.Changes, map[string]string{"run": p.o.Status.LastRun}))
	case stack.ChecksFailed:
		tl.say(p, warning, "ChecksFailed", t.Blocks.String(), checkFacts(t.Run, t.Blocks.Count()))
	case stack.ChecksPassed:
		tl.say(p, normal, "ChecksPassed", "No check block fails any more", checkFacts(t.Run, 0))
	case stack.PlanReviewed:
		tl.tellVerdict(p, *t.Verdict, t.Plan)
	case stack.LockHeld:
		by := ""
		if t.Lock.Who != "" {
			by = " by " + t.Lock.Who
		}
		tl.say(p, warning, "LockHeld", fmt.Sprintf("The lock of the state is held%s since %s: nothing is planned or applied until it is freed", by, t.Lock.Since), map[string]string{"lock": t.Lock.ID})
	case stack.RollbackBegan:
		tl.say(p, warning, string(stack.RolledBack), t.Rollback.String(), rollbackFacts(*t.Rollback))
	case stack.RollbackEnded:
		tl.say(p, normal, "RollbackEnded", "The rollback from "+t.Rollback.From.Revision+" to "+t.Rollback.To.PlanInputs.Revision+" ended: Terrier plans what the object asks for", rollbackFacts(*t.Rollback))
	case stack.BreakGlassStarted:
		tl.events.Event(p.obj, warning, "BreakGlassStarted", "A break-glass session began: Terrier plans and applies nothing until "+t.Session.Until.UTC().Format(time.RFC3339))
	case stack.BreakGlassEnded:
		tl.events.Event(p.obj, normal, "BreakGlassEnded", "The break-glass session was ended: Terrier reconciles the stack again")
	case stack.RunEnded, stack.LockBroken, stack.UntrackedFound: // the condition says it, or the end of the run does
	}
}

// doneBy is what a script did to resources, as the end of a sentence; empty if nothing.
func doneBy(c stack.Changes) string {
	if c.None() {
		return ""
	}
	return ": " + c.String()
}

// forgottenNote says of a run that did c how many resources it forgot, and what lists them.
func forgottenNote(p *pass, c stack.Changes) string {
	if c.Forget == 0 {
		return ""
	}
	return fmt.Sprintf(". Resources that were forgotten and stay where they are: %d. To list them with their IDs: terrier retained show %s -n %s", c.Forget, p.o.Spec.Words.Argument, p.obj.GetNamespace())
}

// tellDestroyed tells that a stack was destroyed. A script that ends well has done so by its
// own account, and may have left resources in the state.
func (tl *teller) tellDestroyed(p *pass, t stack.Transition) {
	kind, said := normal, "Everything in the state was destroyed"+forgottenNote(p, t.Run.Changes)
	if p.o.Spec.Script {
		said = "The destroy script succeeded"
		if left := p.report.Resources; left > 0 {
			kind = warning
			said += fmt.Sprintf(". Resources that it left in the state, which is kept: %d. To continue with them, create a stack of this name with the annotation %s=true", left, dialect.AdoptState)
		}
	}
	tl.say(p, kind, p.dialect.EventReason(*t.Run), said, runFacts(*t.Run))
}

// resolutions say how drift was resolved.
var resolutions = map[stack.Resolution]string{
	stack.WentAway:   "Drift resolved: the resources match the applied plan again",
	stack.Remediated: "Drift resolved by an apply",
	stack.Replaced:   "A new plan with other inputs replaced the plan of the drift",
}

// tellFailure tells of a run that failed. The first of a series is news.
func (tl *teller) tellFailure(p *pass, t stack.Transition) {
	if t.Run == nil {
		return // the condition says what came in its way
	}
	reason, message := p.dialect.EventReason(*t.Run), fmt.Sprintf("%s (attempt %d): %s", t.Run.Outcome, t.Failures, t.Run.Message)
	if t.Repeated {
		tl.sayAgain(p, warning, reason, message)
		return
	}
	tl.say(p, warning, reason, message, runFacts(*t.Run))
}

// tellPlan tells of a plan with changes. One that is applied at once is told of by
// its apply.
func (tl *teller) tellPlan(p *pass, t stack.Transition) {
	reason, facts := p.dialect.EventReason(*t.Run), runFacts(*t.Run)
	applied := false
	switch p.decision.Action.(type) {
	case stack.Apply, stack.RunScript:
		applied = true
	}
	switch {
	case t.Plan.Drift && t.Repeated:
	case t.Plan.Drift:
		tl.say(p, warning, reason, "Drift detected: "+t.Plan.Changes.String(), facts)
	case applied:
	case t.Repeated:
		tl.sayAgain(p, normal, reason, "Planned "+t.Plan.Name+": "+t.Plan.Changes.String())
	case p.o.Spec.AwaitsApproval(p.o.Status):
		tl.say(p, normal, reason, "Plan pending: "+t.Plan.Name+" waits for approval: "+t.Plan.Changes.String(), facts)
	default:
		tl.say(p, normal, reason, "Planned "+t.Plan.Name+": "+t.Plan.Changes.String(), facts)
	}
}

// tellVerdict tells what the reviewers said of a plan.
func (tl *teller) tellVerdict(p *pass, v stack.Verdict, made *stack.Plan) {
	switch {
	case v.Passed && p.inside && len(v.Findings) == 0: // nothing changes for a user
	case v.Passed:
		tl.events.Event(p.obj, normal, "PlanReviewed", fmt.Sprintf("The %s passed %s: %s", stack.ReviewedBy(p.o), made.Name, made.Changes))
	case v.Held:
		tl.say(p, warning, "PlanHeld", made.Name+" needs an approval: "+v.Message, verdictFacts(v, made))
	case v.Refused:
		tl.say(p, warning, "PlanRefused", made.Name+" was refused: "+v.Message, verdictFacts(v, made))
	default:
		tl.events.Event(p.obj, warning, "PostPlanningWebhookFailed", v.Message)
	}
}

// lostSecrets tells that Terrier no longer knows which values a stack was given from
// Secrets.
func (tl *teller) lostSecrets(p *pass, damage error) {
	tl.say(p, warning, "SecretRecordDamaged", fmt.Sprintf("Terrier lacks hashes by which it recognises values from Secrets: %v. "+
		"Until an apply of the whole stack succeeds, or a plan or drift check of the whole stack finds no changes, Terrier masks every value of the stack. "+
		"With spec.targets no run is of the whole stack. "+
		"After that Terrier recognises only values that runs were given since. Rotate former secret values that the state may still hold, and ask for a plan with terrier replan", damage), nil)
}

// tellCommand tells of a command of a break-glass session.
func (tl *teller) tellCommand(p *pass, h stack.CommandResult) {
	kind, text := normal, fmt.Sprintf("%s ran %q: %s", cmp.Or(h.By, "a user"), h.Command.String(), h.Outcome)
	if h.Outcome != stack.Succeeded {
		kind, text = warning, text+": "+h.Message
	}
	if h.Moved {
		text += "; the state changed"
	}
	tl.events.Event(p.obj, kind, "BreakGlassCommand", text)
}

// FactualEvents are Events that also reach people and programs elsewhere.
type FactualEvents interface {
	Events
	// EventWith is Event, with facts for programs: short names and values, none
	// of them secret.
	EventWith(obj client.Object, kind, reason, message string, facts map[string]string)
	// Record writes an event that is not sent elsewhere.
	Record(obj client.Object, kind, reason, message string)
}

// say tells what happened, with what is known about it.
func (tl *teller) say(p *pass, kind, reason, message string, facts map[string]string) {
	if e, ok := tl.events.(FactualEvents); ok {
		e.EventWith(p.obj, kind, reason, message, facts)
		return
	}
	tl.events.Event(p.obj, kind, reason, message)
}

// sayAgain reports the next failure of a series, whose first failure had an event.
func (tl *teller) sayAgain(p *pass, kind, reason, message string) {
	if e, ok := tl.events.(FactualEvents); ok {
		e.Record(p.obj, kind, reason, message)
		return
	}
	tl.events.Event(p.obj, kind, reason, message)
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return strconv.Itoa(n) + " times"
}

// runFacts are the facts of a run: what it was of, and what it would change.
// The commit is what Git providers hang a status on.
func runFacts(r stack.Run) map[string]string {
	facts := map[string]string{"run": r.ID, "kind": string(r.Kind), "outcome": string(r.Outcome)}
	inputs, plan := r.Cause.PlanInputs, r.Plan
	if plan == nil {
		plan = r.Cause.Plan
	}
	if revision := inputs.Revision; revision != "" {
		facts["revision"] = revision
		if _, commit, ok := strings.Cut(revision, "@sha1:"); ok {
			facts[commitFact] = "sha1:" + commit
		}
	}
	if plan == nil {
		return facts
	}
	facts["plan"] = plan.Name
	return counted(plan.Changes, facts)
}

// checkFacts are the facts of a run that evaluated check blocks, and how many fail.
// They have no commit: a check block says nothing about it.
func checkFacts(r *stack.Run, failing int) map[string]string {
	facts := map[string]string{"failingChecks": strconv.Itoa(failing)}
	if r != nil {
		facts["run"], facts["kind"] = r.ID, string(r.Kind)
	}
	return facts
}

// rollbackFacts are the facts of a rollback. The commit is the bad one, on which Git providers
// hang the status.
func rollbackFacts(b stack.Rollback) map[string]string {
	facts := map[string]string{"revision": b.From.Revision, "rolledBackTo": b.To.PlanInputs.Revision, "plan": b.To.Plan}
	if _, commit, ok := strings.Cut(b.From.Revision, "@sha1:"); ok {
		facts[commitFact] = "sha1:" + commit
	}
	return facts
}

// commitFact is the commit in the contract of Flux's events.
const commitFact = "event.toolkit.fluxcd.io/commit"

// counted adds counts.
func counted(c stack.Changes, facts map[string]string) map[string]string {
	facts["add"], facts["change"], facts["destroy"] = strconv.Itoa(c.Add), strconv.Itoa(c.Change), strconv.Itoa(c.Destroy)
	return facts
}
