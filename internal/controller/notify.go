package controller

import (
	"fmt"
	"strconv"
	"strings"
	"time"

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

// lockLong is how long somebody else may hold the lock of a state before it is
// told: a run of theirs may take its time.
const lockLong = 10 * time.Minute

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

// tellChanges makes events of what is different in the memory and is no run's
// outcome: each is told in the pass that brought it about, and in no other.
func (c *Stacks) tellChanges(p *pass) {
	was, is := p.st.Status, p.o.Status
	if was.Drift != nil && is.Drift == nil {
		message := "Drift resolved: what was applied is there again"
		if is.Wrote != was.Wrote {
			message = "Drift resolved by what was applied"
		} else if is.Pending != nil {
			message = "Drift is no longer told apart: there is a plan of something new"
		}
		c.say(p, normal, "DriftResolved", message, counted(was.Drift.Changes, map[string]string{"run": is.LastRun}))
	}
	if r := p.ended; r != nil && r.Outcome == stack.Succeeded && was.Failures > 0 && is.Failures == 0 {
		c.say(p, normal, "Recovered", fmt.Sprintf("It works again, after it failed %s", times(was.Failures)), runFacts(*r))
	}
	if l := is.Lock; l != nil && heldLong(l) && !(was.Lock != nil && was.Lock.ID == l.ID && heldLong(was.Lock)) {
		who := ""
		if l.Who != "" {
			who = " by " + l.Who
		}
		c.say(p, warning, "LockHeld", fmt.Sprintf("The lock of the state is held%s since %s: nothing is planned or applied until it is freed", who, l.Since), map[string]string{"lock": l.ID})
	}
}

// heldLong reports whether a lock was held for long when it was met. One whose
// holder did not write down since when is taken for an old one.
func heldLong(l *stack.Lock) bool {
	since := strings.TrimSuffix(l.Since, " UTC")
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999 -0700", "2006-01-02 15:04:05.999999999"} {
		if at, err := time.Parse(layout, since); err == nil {
			return l.Seen.Sub(at) >= lockLong
		}
	}
	return true
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

// awaits reports whether a plan is one that a person has to let pass.
func awaits(p *pass) bool { return p.o.Spec.Mode == stack.Manual }
