package controller

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/controller/approvals"
	"github.com/terrier-iac/terrier/internal/controller/policies"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/controller/states"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/stack"
)

// AuditLog is the audit log. Record returns once an entry is there for good; it
// writes no ID a second time.
//
// An entry is recorded before its cause counts as known: a request of a person
// before the record of audited requests has it, the outcome of a run before the
// status has it, and a run that writes before it starts. A controller that is
// killed in between records the entry again, under the same ID.
type AuditLog interface {
	Record(context.Context, audit.Entry) error
}

// auditor writes the audit log.
type auditor struct {
	auditLog AuditLog
	destroys policies.Ledger
	blobs    records.Blobs
	dialects dialect.Registry
	live     client.Client
	log      *slog.Logger
	stamps   approvals.Stamps // nil believes all
}

// record writes one entry about the stack of a pass.
func (au *auditor) record(ctx context.Context, p *pass, e audit.Entry, once string) error {
	return au.recordState(ctx, p.subject(), e, once)
}

// recordState writes one entry about a stack. Its ID is what happened, and to which
// of the things that happen more than once.
func (au *auditor) recordState(ctx context.Context, of states.Subject, e audit.Entry, once string) error {
	if au.auditLog == nil {
		return nil
	}
	return au.auditLog.Record(ctx, au.whole(of, e, once))
}

// whole is an entry with the stack that it is about.
func (au *auditor) whole(of states.Subject, e audit.Entry, once string) audit.Entry {
	e.ID = of.ID + "/" + string(e.What) + "/" + once
	e.Object = au.audited(of.Object)
	e.Object.UID = of.ID
	if e.Via == "" {
		e.Via = audit.ViaController
	}
	return e
}

// recordStart records that a run begins. One that destroys resources by a plan begins only if that
// is within the limits of the hour, which are checked in the same step.
func (au *auditor) recordStart(ctx context.Context, p *pass, kind stack.RunKind, cause stack.Cause, e audit.Entry) error {
	if kind.Writes() && cause.Plan != nil && cause.Plan.Changes.Destroy > 0 {
		e.Details[policies.TenantDetail] = p.policies.Tenant
		if au.destroys != nil && len(p.policies.PerHour) > 0 {
			return au.destroys.Begin(ctx, policies.Beginning{Entry: au.whole(p.subject(), e, e.Run), Limits: p.policies.PerHour})
		}
	}
	return au.record(ctx, p, e, e.Run)
}

func (au *auditor) audited(obj client.Object) audit.Object {
	o := audit.Object{Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: string(obj.GetUID())}
	if au.live != nil { // else there is no scheme
		if gvk, err := apiutil.GVKForObject(obj, au.live.Scheme()); err == nil {
			o.Kind = gvk.Kind
			if d := au.dialects.For(obj); au.dialects.Word(d) != "" {
				o.Group = gvk.Group
			}
		}
	}
	return o
}

// auditStart records that a run starts that may change resources. A run that
// cannot be recorded does not start.
func (au *auditor) auditStart(ctx context.Context, p *pass, kind stack.RunKind, cause stack.Cause) error {
	if au.auditLog == nil || !kind.Writes() && kind != stack.StepsRun {
		return nil
	}
	believed, err := au.believes(ctx, p)
	stamped := func(annotation string) string {
		if !believed {
			return "" // a user may have written it
		}
		return p.obj.GetAnnotations()[annotation]
	}
	if err == nil {
		err = p.unaudited
	}
	if err == nil {
		e := audit.Entry{What: audit.ApplyStarted, Run: p.name(kind, cause), Why: cause.Why, Details: inputsOf(cause.PlanInputs)}
		switch kind {
		case stack.DestroyRun:
			e.What = audit.DestroyStarted
		case stack.StepsRun:
			e.What, e.Details["steps"] = audit.StepsStarted, cause.Steps.Digest
			if cause.Steps.Rerun != "" {
				e.Details["request"] = cause.Steps.Rerun
			}
		case stack.BreakGlassRun:
			// Who says to be its author is a word in the object; the stamp is not.
			e.What, e.Who, e.Why = audit.BreakGlassCommand, stamped(kube.ChangedBy), ""
			e.Details["command"], e.Details["by"] = commandWords(cause.Command), cause.Command.By
		default:
			planIn(&e, cause.Plan)
			if p.o.Spec.Approves(cause.Plan) {
				e.Who = stamped(kube.DecidedBy)
			}
			judgedIn(&e, p, cause.Plan)
			if by := approvals.Users(stack.Given(p.o)); len(by) > 0 {
				e.Details["approved-by"] = strings.Join(by, ", ")
			}
			if by := stack.Overrode(p.o); len(by) > 0 {
				e.Details["window-overridden-by"] = strings.Join(by, ", ")
			}
			if cause.DestroysAll() {
				e.What = audit.DestroyStarted
			}
		}
		err = au.recordStart(ctx, p, kind, cause, e)
	}
	if fault.Reason(err, "") == policies.Changed {
		return err // the destroys of another run leave too little, and the next pass waits
	}
	if err != nil {
		return fault.New(fault.Later, string(stack.StartFailed), fmt.Errorf("no run that changes resources starts while the audit log cannot record its author: %w", err))
	}
	return nil
}

// commandWords are the first words of a command: the rest may hold values.
func commandWords(c *stack.Command) string {
	out := ""
	for i, word := range c.Args {
		if i == 2 || len(word) > 0 && word[0] == '-' {
			break
		}
		if i > 0 {
			out += " "
		}
		out += word
	}
	return out
}

func planIn(e *audit.Entry, p *stack.Plan) {
	if p != nil {
		e.Plan, e.Digest, e.Changes = p.Name, p.Digest, p.Changes
	}
}

// inputsOf names the inputs of a run.
func inputsOf(b stack.PlanInputs) map[string]string {
	return map[string]string{"revision": b.Revision, "source": b.Source, "inputs": b.Inputs, "engine": b.Engine}
}

// audit records what people asked for, and what the pass has brought about so far:
// both before the status is written, after which it would be no news.
func (au *auditor) audit(ctx context.Context, p *pass) {
	if au.auditLog == nil || p.unreadable != nil {
		return
	}
	if p.outcome == undecided {
		au.auditRequests(ctx, p)
	}
	if err := au.auditChanges(ctx, p); err != nil {
		p.unrecorded(err)
	}
}

// auditChanges records what is different since the pass began.
func (au *auditor) auditChanges(ctx context.Context, p *pass) error {
	if au.auditLog == nil {
		return nil
	}
	for _, t := range p.transitions() {
		e, once := auditEntry(t, p.o.Status)
		if e.What == "" {
			continue // the audit log has none of it
		}
		if err := au.record(ctx, p, e, once); err != nil {
			return err
		}
	}
	return nil
}

// transitions are what is different since the pass began.
func (p *pass) transitions() []stack.Transition {
	return stack.Transitions(p.st.Status, p.o.Status, p.ended)
}

// unrecorded undoes what a pass would have written down that the audit log does not
// hold. A run that ended stays where it is, and is taken over by a later pass.
func (p *pass) unrecorded(err error) {
	p.o.Status, p.ended = p.st.Status, nil
	p.o.Obstacle = &stack.Blocked{
		Kind: fault.Later, Reason: stack.StartFailed,
		Message: "The result of the pass is not saved, because the audit log cannot record it: " + err.Error(),
	}
}

// auditEntry is a transition as the audit log has it, and what tells it from others
// of its sort. It has no name if the audit log has nothing of it.
func auditEntry(t stack.Transition, is stack.Status) (e audit.Entry, once string) {
	switch t.Change {
	case stack.RunEnded, stack.LockHeld, stack.ChecksFailed, stack.ChecksPassed:
		return e, ""
	case stack.DriftResolved:
		e = audit.Entry{What: audit.DriftResolved, Changes: t.Drift.Changes, Run: is.LastRun}
		if t.How == stack.Remediated {
			e.Why = "what was applied took the place of it"
		}
		return e, strconv.FormatInt(t.Drift.At.UnixNano(), 36)
	case stack.UntrackedFound:
		u := t.Untracked
		return audit.Entry{What: audit.UntrackedFound, Run: u.Run, Details: map[string]string{"objects": strconv.Itoa(len(u.Objects)), "first": u.Objects[0].Address}}, u.Run
	case stack.PlanReviewed:
		v := t.Verdict
		if v.Digest != "" && !t.Repeated {
			return verdictEntry(v, is.Pending), v.Plan + v.Digest + strconv.FormatInt(v.At.UnixNano(), 36)
		}
		if !v.Refused || t.Repeated {
			return e, ""
		}
		return audit.Entry{What: audit.PlanRefused, Digest: v.Plan, Details: map[string]string{"webhooks": v.By}}, v.Plan + v.By
	case stack.RollbackBegan:
		// It begins again if the status cannot be written, and is then the same.
		return rollbackEntry(t), t.Rollback.To.Run + "/" + cmp.Or(t.Rollback.Request, is.LastWrite)
	case stack.RollbackEnded:
		return rollbackEntry(t), t.Rollback.To.Run + "/" + strconv.FormatInt(t.Rollback.At.UnixNano(), 36)
	case stack.BreakGlassStarted:
		return audit.Entry{What: audit.BreakGlassBegun, Details: map[string]string{"session": t.Session.Session, "until": t.Session.Until.UTC().Format("2006-01-02T15:04:05Z")}}, t.Session.Session
	case stack.BreakGlassEnded:
		return audit.Entry{What: audit.BreakGlassEnded, Details: map[string]string{"session": t.Session.Session}}, t.Session.Session
	case stack.AttemptFailed:
		if t.Run == nil {
			return notBegun(t, is)
		}
	}
	if t.Run == nil { // a command that could not be run
		return e, ""
	}
	return outcomeEntry(t), t.Run.ID
}

// rollbackEntry is the beginning or the end of a rollback.
func rollbackEntry(t stack.Transition) audit.Entry {
	b := t.Rollback
	e := audit.Entry{What: audit.RolledBack, Plan: b.To.Plan, Why: b.Why, Details: inputsOf(b.To.PlanInputs)}
	if t.Change == stack.RollbackEnded {
		e.What, e.Why = audit.RollbackEnded, ""
	}
	e.Details["from"], e.Details["from-source"], e.Details["from-inputs"] = b.From.Revision, b.From.Source, b.From.Inputs
	if b.Request != "" {
		e.Details["request"] = b.Request
	}
	return e
}

// notBegun is the entry of a run that something came in the way of.
func notBegun(t stack.Transition, is stack.Status) (e audit.Entry, once string) {
	if t.Repeated {
		return e, ""
	}
	e = audit.Entry{What: audit.PlanFailed, Run: is.LastRun, Outcome: string(stack.Failed), Details: map[string]string{"kind": string(is.FailedKind), "step": is.FailedStep}}
	if t.Lock != nil {
		e.Outcome, e.Details["lock"] = string(stack.Locked), t.Lock.ID
	}
	return e, is.LastRun
}

// outcomeEntry is the entry of what a run did.
func outcomeEntry(t stack.Transition) audit.Entry {
	r := t.Run
	e := audit.Entry{Run: r.ID, Outcome: string(r.Outcome), Details: inputsOf(r.Cause.PlanInputs)}
	e.Details["step"], e.Details["why"] = "", r.Why
	if r.Outcome != stack.Succeeded {
		e.Details["step"] = r.Step
	}
	switch t.Change {
	case stack.CommandEnded:
		if c := r.Cause.Command; c != nil {
			e.What = audit.BreakGlassCommandEnded
			e.Details["by"], e.Details["command"], e.Details["moved"] = c.By, commandWords(c), strconv.FormatBool(r.Moved)
		}
	case stack.PlanApplied, stack.ScriptRan, stack.StackDestroyed, stack.PlanStale:
		planIn(&e, r.Cause.Plan)
		if r.Kind == stack.DestroyRun || r.Kind == stack.ScriptRun {
			e.Changes = r.Changes
		}
		e.What = writeEnded(r)
	case stack.AttemptFailed:
		switch {
		case r.Kind.Writes():
			planIn(&e, r.Cause.Plan)
			e.What = writeEnded(r)
		case !t.Repeated:
			e.What = audit.PlanFailed
		}
	case stack.PlanMade:
		switch {
		case t.Repeated:
		case t.Plan.Drift:
			planIn(&e, t.Plan)
			e.What = audit.DriftFound
		default:
			planIn(&e, t.Plan)
			e.What = audit.Planned
		}
	case stack.StackRecovered:
		if !r.Kind.Writes() { // an apply says as much
			e.What, e.Details["failures"] = audit.Recovered, strconv.Itoa(t.Failures)
		}
	case stack.StepsEnded:
		e.What = audit.StepsEnded
	case stack.LockBroken:
		e.What, e.Details["lock"] = audit.LockBroken, r.Broke
	}
	return e
}

// writeEnded names the end of a run that writes. A plan of a destroy that has targets is applied
// as any other: its changes are in the entry, and other resources stay.
func writeEnded(r *stack.Run) audit.What {
	destroys := r.Kind == stack.DestroyRun || r.Cause.DestroysAll()
	switch well := r.Outcome == stack.Succeeded; {
	case well && destroys:
		return audit.Destroyed
	case well:
		return audit.Applied
	case destroys:
		return audit.DestroyFailed
	default:
		return audit.ApplyFailed
	}
}
