package controller

import (
	"context"
	"fmt"
	"maps"
	"strconv"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Journal is where it is written down who did what. Record returns once it is
// there for good; what bears an ID that it has seen is not written again.
//
// Everything is recorded before what would make it old news: what somebody asked
// for before it is noted as told (told.go), what a run did before it is in the
// memory, a run that changes the world before it begins. Whoever is killed in
// between records it again, under the same ID.
type Journal interface {
	Record(context.Context, audit.Entry) error
}

// record writes one entry about the stack of a pass. Its ID is what happened, and
// to which of the things that happen more than once.
func (c *Stacks) record(ctx context.Context, p *pass, e audit.Entry, once string) error {
	if c.Audit == nil {
		return nil
	}
	e.ID = p.id + "/" + string(e.What) + "/" + once
	e.Object = c.audited(p.obj)
	e.Object.UID = p.id
	if e.Via == "" {
		e.Via = audit.ViaController
	}
	return c.Audit.Record(ctx, e)
}

func (c *Stacks) audited(obj client.Object) audit.Object {
	o := audit.Object{Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: string(obj.GetUID())}
	if c.Live != nil { // else nobody has a scheme
		if gvk, err := apiutil.GVKForObject(obj, c.Live.Scheme()); err == nil {
			o.Kind = gvk.Kind
		}
	}
	return o
}

// auditStart records that a run starts that may change resources. A run that
// cannot be recorded does not start.
func (c *Stacks) auditStart(ctx context.Context, p *pass, kind stack.RunKind, cause stack.Cause) error {
	if c.Audit == nil || !kind.Writes() {
		return nil
	}
	err := p.unaudited
	if err == nil {
		e := audit.Entry{What: audit.ApplyStarted, Run: p.name(kind, cause), Why: cause.Why, Details: basisOf(cause.PlanInputs)}
		switch kind {
		case stack.DestroyRun:
			e.What = audit.DestroyStarted
		case stack.GlassRun:
			// Who says to be its author is a word in the object; the stamp is not.
			e.What, e.Who, e.Why = audit.GlassCommand, p.obj.GetAnnotations()[kube.ChangedBy], ""
			e.Details["command"], e.Details["by"] = commandWords(cause.Command), cause.Command.By
		default:
			planIn(&e, cause.Plan)
			if p.approved(cause.Plan) {
				e.Who = p.obj.GetAnnotations()[kube.DecidedBy]
			}
			if cause.Destroy {
				e.What = audit.DestroyStarted
			}
		}
		err = c.record(ctx, p, e, e.Run)
	}
	if err != nil {
		return fault.New(fault.Later, string(stack.StartFailed), fmt.Errorf("nothing that changes the world is begun while it cannot be recorded who let it: %w", err))
	}
	return nil
}

// approved reports whether a person let exactly this plan through.
func (p *pass) approved(plan *stack.Plan) bool {
	a := p.o.Spec.Approved
	return plan != nil && a != "" && (a == plan.Name || a == plan.Digest)
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

// basisOf names what a run was made from.
func basisOf(b stack.PlanInputs) map[string]string {
	return map[string]string{"revision": b.Revision, "source": b.Source, "engine": b.Engine}
}

// deed is an entry, and what tells it from others of its sort.
type deed struct {
	audit.Entry
	once string
}

// audit records what people asked for, and what the pass has brought about so far:
// both before the status is written, after which it would be no news.
func (c *Stacks) audit(ctx context.Context, p *pass) {
	if c.Audit == nil || p.unreadable != nil {
		return
	}
	if !p.acted {
		c.auditRequests(ctx, p)
	}
	if err := c.auditChanges(ctx, p); err != nil {
		p.unrecorded(err)
	}
}

// auditChanges records what is different since the pass began.
func (c *Stacks) auditChanges(ctx context.Context, p *pass) error {
	deeds := changes(p.st.Status, p.o.Status)
	if p.ended != nil && p.ended.ID != p.st.Status.LastRun {
		deeds = append(deeds, outcome(*p.ended, p.st.Status, p.o.Status)...)
	} else if was, is := p.st.Status, p.o.Status; is.Failures > was.Failures && failsAnew(was, is) {
		// Something came in the way of a run before it began.
		e := audit.Entry{What: audit.PlanFailed, Run: is.LastRun, Outcome: string(stack.Failed), Details: map[string]string{"kind": string(is.FailedKind), "step": is.FailedStep}}
		if is.Lock != nil {
			e.Outcome, e.Details["lock"] = string(stack.Locked), is.Lock.ID
		}
		deeds = append(deeds, deed{e, is.LastRun})
	}
	for _, d := range deeds {
		if err := c.record(ctx, p, d.Entry, d.once); err != nil {
			return err
		}
	}
	return nil
}

// unrecorded undoes what a pass would have written down that the audit log does not
// hold. A run that ended stays where it is, and is taken over by a later pass.
func (p *pass) unrecorded(err error) {
	p.o.Status, p.ended = p.st.Status, nil
	p.o.Obstacle = &stack.Blocked{
		Kind: fault.Later, Reason: stack.StartFailed,
		Message: "What happened is not taken over while it cannot be recorded: " + err.Error(),
	}
}

// outcome says what a run that ended has done.
func outcome(r stack.Run, was, is stack.Status) []deed {
	e := audit.Entry{Run: r.ID, Outcome: string(r.Outcome), Details: basisOf(r.Cause.PlanInputs)}
	e.Details["step"], e.Details["why"] = "", r.Why
	if r.Outcome != stack.Succeeded {
		e.Details["step"] = r.Step
	}
	var out []deed
	add := func(what audit.What) {
		e := e
		e.What, e.Details = what, maps.Clone(e.Details)
		out = append(out, deed{e, r.ID})
	}
	destroys := r.Kind == stack.DestroyRun || r.Cause.Destroy
	switch {
	case r.Kind == stack.GlassRun && r.Cause.Command != nil:
		e.Details["by"], e.Details["command"] = r.Cause.Command.By, commandWords(r.Cause.Command)
		e.Details["moved"] = strconv.FormatBool(r.Moved)
		add(audit.GlassCommandEnded)
	case r.Kind == stack.PreviewRun:
	case r.Kind.Writes():
		planIn(&e, r.Cause.Plan)
		add(ended(r.Outcome == stack.Succeeded, destroys))
	case r.Outcome == stack.Interrupted: // nothing happened, nothing failed
	case r.Outcome != stack.Succeeded:
		if failsAnew(was, is) {
			add(audit.PlanFailed)
		}
	case r.Plan != nil && news(was.Pending, r.Plan):
		planIn(&e, r.Plan)
		if r.Plan.Drift {
			add(audit.DriftFound)
		} else {
			add(audit.Planned)
		}
	}
	if was.Failures > 0 && is.Failures == 0 && r.Outcome == stack.Succeeded && !r.Kind.Writes() {
		e.Details["failures"] = strconv.Itoa(was.Failures)
		add(audit.Recovered)
	}
	if r.Broke != "" {
		e.Details["lock"] = r.Broke
		add(audit.LockBroken)
	}
	return out
}

func ended(well, destroys bool) audit.What {
	switch {
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

// failsAnew reports whether a failure is the first of its sort, and not the next
// of a series.
func failsAnew(was, is stack.Status) bool {
	return was.Failures == 0 || is.Failures == 1 || was.FailedKind != is.FailedKind || was.FailedStep != is.FailedStep || was.FailedWhy != is.FailedWhy
}

func news(pending, made *stack.Plan) bool {
	return pending == nil || pending.Digest != made.Digest
}

// changes says what is different in the memory, of what is no run's outcome.
func changes(was, is stack.Status) []deed {
	var out []deed
	add := func(e audit.Entry, once string) { out = append(out, deed{e, once}) }
	if was.Drift != nil && is.Drift == nil {
		e := audit.Entry{What: audit.DriftResolved, Changes: was.Drift.Changes, Run: is.LastRun}
		if is.Wrote != was.Wrote {
			e.Why = "what was applied took the place of it"
		}
		add(e, strconv.FormatInt(was.Drift.At.UnixNano(), 36))
	}
	if is.Untracked != nil && (was.Untracked == nil || was.Untracked.Run != is.Untracked.Run) {
		e := audit.Entry{What: audit.GapFound, Run: is.Untracked.Run, Details: map[string]string{"objects": strconv.Itoa(len(is.Untracked.Objects)), "first": is.Untracked.Objects[0].Address}}
		add(e, is.Untracked.Run)
	}
	if v := is.Review; v != nil && v.Refused && (was.Review == nil || was.Review.Plan != v.Plan || !was.Review.Refused) {
		add(audit.Entry{What: audit.PlanRefused, Digest: v.Plan, Details: map[string]string{"webhooks": v.By}}, v.Plan+v.By)
	}
	switch g := is.Glass; {
	case g != nil && (was.Glass == nil || was.Glass.Session != g.Session):
		add(audit.Entry{What: audit.GlassBegun, Details: map[string]string{"session": g.Session, "until": g.Until.UTC().Format("2006-01-02T15:04:05Z")}}, g.Session)
	case g == nil && was.Glass != nil:
		add(audit.Entry{What: audit.GlassEnded, Details: map[string]string{"session": was.Glass.Session}}, was.Glass.Session)
	}
	return out
}
