package controller

import (
	"strconv"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/stack"
)

// FactualEvents are Events that also reach people and programs elsewhere.
type FactualEvents interface {
	Events
	// EventWith is Event, with facts for programs: short names and values, none
	// of them secret.
	EventWith(obj client.Object, kind, reason, message string, facts map[string]string)
	// Record writes an event that is no news to anybody elsewhere.
	Record(obj client.Object, kind, reason, message string)
}

// say tells what happened, with what is known about it.
func (c *Stacks) say(p *pass, kind, reason, message string, facts map[string]string) {
	if e, ok := c.Events.(FactualEvents); ok {
		e.EventWith(p.obj, kind, reason, message, facts)
		return
	}
	c.Events.Event(p.obj, kind, reason, message)
}

// sayAgain tells of the next failure of a series, of which everybody knows.
func (c *Stacks) sayAgain(p *pass, kind, reason, message string) {
	if e, ok := c.Events.(FactualEvents); ok {
		e.Record(p.obj, kind, reason, message)
		return
	}
	c.Events.Event(p.obj, kind, reason, message)
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
	basis, plan := r.Cause.PlanInputs, r.Plan
	if plan == nil {
		plan = r.Cause.Plan
	}
	if revision := basis.Revision; revision != "" {
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

// commitFact is the commit in the contract of Flux's events.
const commitFact = "event.toolkit.fluxcd.io/commit"

// counted adds counts.
func counted(c stack.Changes, facts map[string]string) map[string]string {
	facts["add"], facts["change"], facts["destroy"] = strconv.Itoa(c.Add), strconv.Itoa(c.Change), strconv.Itoa(c.Destroy)
	return facts
}
