package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/input"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// act carries out the decision of a pass, at most once. What it did or met is
// observed, so that the decision is made again where that says more than the first
// one did.
func (c *Stacks) act(ctx context.Context, p *pass) {
	p.decided = true
	if p.acted {
		return // what follows is carried out by the next pass
	}
	_, publishes := p.decision.Action.(stack.Publish)
	if p.ended != nil && !publishes {
		// Anything else begins once the run is written down and forgotten. Outputs
		// are published at once, so that one write of the status tells of both: a
		// program that ends in between finds the run again, and the outputs written.
		return
	}
	p.acted, p.followed = true, p.ended != nil
	changed, err := c.carryOut(ctx, p)
	switch fault.Of(err) {
	case fault.None:
		p.decided = !changed
	case fault.Conflict:
		p.conflict = err
	default:
		p.o.Obstacle, p.decided = obstacle(err), false
	}
}

// carryOut carries out one action. It reports whether that changed what is
// observed.
func (c *Stacks) carryOut(ctx context.Context, p *pass) (changed bool, err error) {
	if _, asking := p.decision.Action.(stack.Review); !asking {
		c.reviews.Drop(p.id)
	}
	switch a := p.decision.Action.(type) {
	case stack.Wait:
		return false, nil
	case stack.Cancel:
		return false, c.Runner.Cancel(ctx, p.id, a.Run)
	case stack.Start:
		if a.Kind == stack.BreakGlassRun {
			return c.command(ctx, p, a.Why)
		}
		err = c.start(ctx, p, a)
	case stack.Apply:
		err = c.apply(ctx, p, a.Plan)
	case stack.Destroy:
		err = c.destroy(ctx, p, a.Unlock)
	case stack.Publish:
		return true, c.publish(ctx, p)
	case stack.Review:
		return true, c.review(ctx, p, a.Plan)
	case stack.Finish:
		err = c.finish(ctx, p, a.Retained)
		p.released = err == nil
	default:
		err = fmt.Errorf("unknown action %T", a)
	}
	return p.o.Queued != "", err
}

// obstacle is an error that came in the way of an action, in the words of the core.
func obstacle(err error) *stack.Blocked {
	reason := stack.Reason(fault.Reason(err, string(stack.StartFailed)))
	if !known(reason) {
		reason = stack.StartFailed
	}
	return blockedBy(err, reason)
}

// known reports whether an error's reason is one of the core's.
func known(r stack.Reason) bool {
	switch r {
	case stack.EngineMissing, stack.StateFailed, stack.OutputsFailed, stack.LockedByOther, stack.StartFailed,
		stack.StateTampered, stack.StateRegressed, stack.StateShared, stack.StateNotAdopted:
		return true
	default:
		return false
	}
}

// start begins a run that writes nothing.
func (c *Stacks) start(ctx context.Context, p *pass, a stack.Start) error {
	if a.Kind == stack.HealthRun {
		return c.checkup(ctx, p, a.Why)
	}
	if a.Destroy {
		if err := c.recall(ctx, p); err != nil {
			return fault.New(fault.Of(err), string(stack.StartFailed), err)
		}
		p.job.Options.Targets = nil
	}
	cause := stack.Cause{PlanInputs: p.o.PlanInputs, Why: a.Why, Destroy: a.Destroy || a.Kind == stack.PreviewRun || p.st.Configuration.Destroy}
	p.job.Options.Destroy = cause.Destroy
	switch a.Kind {
	case stack.PreviewRun:
		cause.Preview = p.o.Spec.Preview
	default:
		if p.o.Request != p.o.Status.Handled {
			cause.Request = p.o.Request
		}
	}
	var err error
	if cause.Snapshot, err = c.snapshotFor(ctx, p); err != nil {
		return err
	}
	return c.launch(ctx, p, a.Kind, cause, a.Unlock)
}

// snapshotFor is the record of what a run is made from. A deleted stack keeps
// the one of its last apply.
func (c *Stacks) snapshotFor(ctx context.Context, p *pass) (string, error) {
	if p.o.Deleting && p.o.Status.Snapshot != "" {
		return p.o.Status.Snapshot, nil
	}
	key, err := c.snapshot(ctx, p)
	if err != nil {
		return "", fmt.Errorf("recording what the plan is made from: %w", err)
	}
	return key, nil
}

// apply begins the apply of exactly one saved plan.
func (c *Stacks) apply(ctx context.Context, p *pass, plan stack.Plan) error {
	if p.o.Deleting {
		if err := c.recall(ctx, p); err != nil {
			return fault.New(fault.Of(err), string(stack.StartFailed), err)
		}
	}
	cause := stack.Cause{PlanInputs: p.o.PlanInputs, Plan: &plan, Destroy: plan.Destroy, Why: "plan " + plan.Name}
	var err error
	if cause.Snapshot, err = c.snapshotFor(ctx, p); err != nil {
		return err
	}
	saved, err := c.get(ctx, record.Plan(p.id, plan.Digest, "plan.bin"))
	var lockFile []byte
	if err == nil {
		// A module without providers has no lock file.
		lockFile, err = c.get(ctx, record.Plan(p.id, plan.Digest, "lock.hcl"))
		if fault.Of(err) == fault.Missing {
			err = nil
		}
	}
	switch {
	case fault.Of(err) == fault.Missing:
		return p.lost(plan, err)
	case err != nil:
		return fmt.Errorf("reading plan %s: %w", plan.Name, err)
	}
	p.job.Plan, p.job.LockFile = runner.ContentOf(saved), runner.ContentOf(lockFile)
	p.job.Lineage, p.job.Serial = plan.Lineage, plan.Serial
	return c.launch(ctx, p, stack.ApplyRun, cause, "")
}

// destroy begins to take down what was built, from the record of it.
func (c *Stacks) destroy(ctx context.Context, p *pass, unlock string) error {
	if err := c.recall(ctx, p); err != nil {
		return fault.New(fault.Of(err), string(stack.StartFailed), err)
	}
	p.job.Options.Destroy, p.job.Options.Targets = true, nil
	return c.launch(ctx, p, stack.DestroyRun, stack.Cause{PlanInputs: p.o.PlanInputs, Destroy: true, Snapshot: p.o.Status.Snapshot, Why: "the object was deleted"}, unlock)
}

// launch starts a run: admission, lock, state, supervisor.
func (c *Stacks) launch(ctx context.Context, p *pass, kind stack.RunKind, cause stack.Cause, unlock string) error {
	cause.Unlock = unlock
	if p.o.Queued = c.Queue.Admit(p.id, c.request(ctx, p, kind, cause)); p.o.Queued != "" {
		return nil
	}
	p.note.Waited = c.Queue.Waited(p.id)
	if kind.Writes() || unlock != "" {
		if err := c.current(ctx, p); err != nil {
			return err
		}
	}
	job, err := c.ready(ctx, p, kind, cause, unlock)
	if err == nil {
		err = c.auditStart(ctx, p, kind, cause)
	}
	if err == nil {
		err = c.Runner.Start(ctx, *job)
	}
	if err != nil {
		return c.locked(p, kind, cause, errors.Join(err, c.notStarted(ctx, p, kind, cause)))
	}
	p.o.Run = &stack.Run{ID: job.ID, Kind: kind, Cause: cause, Since: p.o.Now}
	return nil
}

// notStarted frees the lock that was taken for a run which then could not be
// started. Nobody else would: the next run may have another name, and a deleted
// stack none at all.
func (c *Stacks) notStarted(ctx context.Context, p *pass, kind stack.RunKind, cause stack.Cause) error {
	if p.note.State == nil || !kind.Writes() {
		return nil
	}
	report, err := c.Runner.Current(p.id)
	id := p.name(kind, cause)
	if err != nil || report != nil && report.ID == id {
		return err
	}
	h, err := c.States.Holder(ctx, *p.note.State)
	if err != nil || h == nil || c.foreign(p, h.Holder) {
		return err
	}
	return c.States.Unlock(ctx, *p.note.State, id)
}

// ready completes the job of a pass and takes the lock of a managed state.
func (c *Stacks) ready(ctx context.Context, p *pass, kind stack.RunKind, cause stack.Cause, unlock string) (*runner.Job, error) {
	job := p.job
	job.ID, job.Kind = p.name(kind, cause), kind
	p.note.Cause = cause
	var state []byte
	var err error
	// A state that is another stack's, or not what it should be, is found out
	// before its lock is taken, for which others may wait. One that was sound at the
	// last look, which for an apply was that of its plan, is read once: under the
	// lock.
	if !kind.Writes() || p.note.State == nil || !p.entry.stateOwn {
		if state, err = c.startState(ctx, p, kind, cause); err != nil {
			return nil, err
		}
	}
	if ref := p.note.State; ref != nil {
		err := c.takeLock(ctx, p, *ref, kind, unlock)
		if p.o.Deleting && fault.Of(err) == fault.Denied {
			err = nil // no lease can be made in a namespace that goes away, by nobody
		}
		if err != nil {
			return nil, err
		}
		if kind.Writes() { // nobody else writes from here on
			if state, err = c.startState(ctx, p, kind, cause); err != nil {
				return nil, err
			}
		}
	} else {
		job.Options.ForceUnlock = unlock
	}
	job.State = runner.ContentOf(state)
	job.Note, err = json.Marshal(p.note)
	return job, err
}

// takeLock holds the state for a run that writes, and looks whether somebody
// else holds it for one that reads.
func (c *Stacks) takeLock(ctx context.Context, p *pass, ref kube.StateRef, kind stack.RunKind, unlock string) error {
	job := p.job
	if unlock != "" {
		if err := c.States.Unlock(ctx, ref, unlock); err != nil {
			return fmt.Errorf("breaking the lock %s: %w", unlock, err)
		}
	}
	if !kind.Writes() && job.Options.NoLock {
		return nil
	}
	err := c.claim(ctx, p, ref, kind)
	held, ok := errors.AsType[*kube.LockedError](err)
	if !ok {
		return err
	}
	if dead, why := c.dead(ctx, p, held.Holder); why != nil || !dead {
		return errors.Join(why, err)
	}
	if err := c.States.Unlock(ctx, ref, held.Holder.ID); err != nil {
		return fmt.Errorf("freeing the lock of a run that is gone: %w", err)
	}
	c.Events.Event(p.obj, normal, "LockFreed", "The state lock of run "+held.Holder.ID+" of this stack was freed: that run is gone, and so is its supervisor")
	if !kind.Writes() {
		return nil
	}
	return c.claim(ctx, p, ref, kind)
}

// claim takes the lock of a state for a run that writes. For one that reads it
// only looks at it. Either says who else holds it.
func (c *Stacks) claim(ctx context.Context, p *pass, ref kube.StateRef, kind stack.RunKind) error {
	job := p.job
	if kind.Writes() {
		return c.States.Lock(ctx, ref, kube.LockInfo{
			ID: job.ID, Operation: string(kind), Info: "run " + job.ID, Who: "terrier " + job.Name, Version: job.Engine.Version, Holder: c.holder(p.id, job.ID),
		})
	}
	h, err := c.States.Holder(ctx, ref)
	if err != nil || h == nil || h.Holder.ID == job.ID && !c.foreign(p, h.Holder) {
		return err
	}
	return fault.New(fault.Later, string(stack.LockedByOther), h)
}

// holder names a run in a lock, so that a lock that was left behind can be told
// from one of another installation, whose runs we cannot see.
func (c *Stacks) holder(id, run string) string {
	return strings.Join([]string{c.keyed("installation")[len(input.DigestPrefix):][:16], id, run}, "/")
}

// foreign reports whether a lock is known to be held by another installation. Its
// runs may bear the names that ours do, since a name follows from the cause.
func (c *Stacks) foreign(p *pass, l kube.LockInfo) bool {
	return l.Holder != "" && l.Holder != c.holder(p.id, l.ID)
}

// dead reports whether a lock is held by a run of this stack and installation
// that does not exist any more. A run has a supervisor for as long as it has a
// record, and its record goes only after its lock was freed; so this is one
// whose start was cut short. Any other lock is somebody else's.
func (c *Stacks) dead(ctx context.Context, p *pass, l kube.LockInfo) (bool, error) {
	if l.Holder == "" || l.Holder != c.holder(p.id, l.ID) {
		return false, nil
	}
	report, err := c.Runner.Current(p.id)
	return err == nil && (report == nil || report.ID != l.ID), err
}

// locked records a state lock that somebody else holds, as a run that met it
// would have.
func (c *Stacks) locked(p *pass, kind stack.RunKind, cause stack.Cause, err error) error {
	held, ok := errors.AsType[*kube.LockedError](err)
	if !ok {
		return err
	}
	h := held.Holder
	p.fold(stack.Run{
		ID: p.name(kind, cause) + "-locked", Kind: kind, Cause: cause, Done: true, Outcome: stack.Locked, Step: "init", Message: held.Error(),
		Lock: &stack.Lock{ID: h.ID, Who: h.Who, Since: h.Created.UTC().Format("2006-01-02T15:04:05Z"), Seen: p.o.Now}, At: p.o.Now,
	})
	return err
}

// publish writes the outputs of the newest state where they are wanted.
func (c *Stacks) publish(ctx context.Context, p *pass) error {
	if err := c.current(ctx, p); err != nil {
		return err // a Secret that is wanted no more would stay for ever
	}
	outputs, err := c.outputs(ctx, p)
	var data kube.Published
	if err == nil {
		data, err = kube.EncodeOutputs(outputs, p.st.Configuration.Outputs.Select)
	}
	var done kube.Writing
	if err == nil {
		done, err = kube.WriteOutputs(ctx, c.Live, p.obj, *p.st.Configuration.Outputs, data, p.o.Status.Published == "")
	}
	if err != nil {
		return fault.New(fault.Of(err), string(stack.OutputsFailed), err)
	}
	p.o.Status.Published = stack.Publication(p.st.Spec.Outputs, p.o.Status.State)
	p.o.Unwritten = false
	p.entry.outputs = publishedOutputs{p.st.Configuration.Outputs.Secret, done.Version}
	if done.Changed {
		c.Events.Event(p.obj, normal, "TerraformOutputsWritten", fmt.Sprintf("Outputs written to Secret %s: %d", p.st.Configuration.Outputs.Secret, data.Count()))
	}
	return nil
}

// finish cleans up and lets a deleted object go. What it built and leaves is
// written down first; the finalizer is last.
func (c *Stacks) finish(ctx context.Context, p *pass, retained bool) error {
	if err := c.current(ctx, p); err != nil {
		return err
	}
	if retained {
		if err := c.retain(ctx, p); err != nil {
			return fmt.Errorf("writing down what is kept: %w", err)
		}
	}
	if err := kube.RemoveReadablePlans(ctx, c.Live, p.obj, workspaceOf(p.st.Configuration)); err != nil {
		return err
	}
	if err := c.relieve(ctx, p); err != nil {
		return err
	}
	if err := c.resolver(p).Release(ctx); err != nil {
		return fmt.Errorf("giving credentials back: %w", err)
	}
	if err := c.Runner.Remove(p.id); err != nil {
		return err
	}
	if err := c.dropRecords(ctx, p.id); err != nil {
		return err
	}
	gone := audit.Entry{What: audit.Deleted}
	if retained {
		gone = audit.Entry{What: audit.Retained, Why: "what it built stays where it is"}
	}
	if err := c.record(ctx, p, gone, ""); err != nil {
		return err
	}
	before := p.obj.DeepCopyObject().(client.Object)
	controllerutil.RemoveFinalizer(p.obj, c.Dialect.Finalizer())
	for _, f := range before.GetFinalizers() {
		// Upstream puts one on a dependency for each dependant; by now none is left.
		if strings.HasPrefix(f, c.Dialect.DependencyFinalizer()) {
			controllerutil.RemoveFinalizer(p.obj, f)
		}
	}
	p.entry.doubt() // a copy in the cache must not bring it back
	err := c.Live.Patch(ctx, p.obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(kube.FieldManager))
	return client.IgnoreNotFound(err)
}
