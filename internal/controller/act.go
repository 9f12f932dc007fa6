package controller

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/controller/aftersteps"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/controller/states"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/review"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// actor carries out decisions.
type actor struct {
	blobs     records.Blobs
	events    Events
	live      client.Client
	runner    runner.Runner
	reviewers review.Reviewers
	wakes     *wakeQueues
	reviews   *review.Pool
	policies  Policies
	auditor   *auditor
	approvals *approvals
	jobs      *jobs
	launcher  *launcher
	loader    *loader
	records   *records.Store
	removals  *removals
	snapshots *snapshots
	states    *states.Keeper
}

// act carries out the decision of a pass, and says what came of it. What it did or
// met is observed.
func (ac *actor) act(ctx context.Context, p *pass) outcome {
	_, publishes := p.decision.Action.(stack.Publish)
	if p.ended != nil && !publishes {
		// Anything else begins once the run is written down and forgotten. Outputs
		// are published at once, so that one write of the status tells of both: a
		// program that ends in between finds the run again, and the outputs written.
		return postponed
	}
	came, err := ac.carryOut(ctx, p)
	switch fault.Of(err) {
	case fault.None:
		return came
	case fault.Conflict:
		return outdated
	default:
		p.o.Obstacle = obstacle(err)
		return news
	}
}

// carryOut carries out one action. Without an error the outcome is done, news or
// released.
func (ac *actor) carryOut(ctx context.Context, p *pass) (outcome, error) {
	if _, asking := p.decision.Action.(stack.Review); !asking {
		ac.reviews.Drop(p.id)
	}
	if same, err := ac.asJudged(ctx, p, p.decision.Action); err != nil {
		return done, err
	} else if !same {
		p.o.Status = stack.Unjudged(p.o.Status)
		return news, nil
	}
	switch a := p.decision.Action.(type) {
	case stack.Wait:
		return done, nil
	case stack.Cancel:
		return ac.cancel(ctx, p, a.Run)
	case stack.Start:
		if a.Kind == stack.BreakGlassRun {
			return ac.command(ctx, p, a.Why)
		}
		return p.started(ac.start(ctx, p, a))
	case stack.Apply:
		return p.started(ac.apply(ctx, p, a.Plan))
	case stack.RunScript:
		return p.started(ac.script(ctx, p, a))
	case stack.Destroy:
		return p.started(ac.destroy(ctx, p, a.Unlock))
	case stack.Publish:
		return news, ac.publish(ctx, p)
	case stack.Renew:
		return news, ac.renew(ctx, p)
	case stack.RollBack:
		// The next pass plans what stands in for what is asked for.
		p.o.Status = stack.BeginRollback(p.o.Status, a.Rollback, p.o.Spec.RollBack)
		p.o.PlanInputs = a.Rollback.Inputs(p.o.PlanInputs.Engine)
		return news, nil
	case stack.Review:
		return news, ac.review(ctx, p, a.Plan)
	case stack.Finish:
		return released, ac.finish(ctx, p, a.Retained)
	default:
		return done, fmt.Errorf("unknown action %T", a)
	}
}

// started is the outcome of an action that starts a run: that the run waits for its
// turn is news.
func (p *pass) started(err error) (outcome, error) {
	if p.o.Queued != "" {
		return news, err
	}
	return done, err
}

// cancel interrupts the engine of a run. When a user asked for that, the status has how
// long the engine may go on.
func (ac *actor) cancel(ctx context.Context, p *pass, run string) (outcome, error) {
	if err := ac.runner.Cancel(ctx, p.id, run); err != nil || run != p.o.Spec.Cancel {
		return done, err
	}
	was := p.o.Status.Cancelled
	var by stack.Author
	if was == nil || was.Run != run {
		by.Name, by.Unknown = ac.approvals.author(ctx, p, kube.ChangedBy)
	}
	p.o.Status.Answers = p.o.Status.Cancelling(*p.o.Run, by, p.o.Now, graceOf(ac.jobs.limits(p.st.Configuration), p.o.Run.Kind))
	if was != nil && was.Run == run {
		return done, nil
	}
	return news, nil
}

// graceOf is how long the engine of a run may go on after it was interrupted.
func graceOf(l runner.Limits, kind stack.RunKind) time.Duration {
	grace := cmp.Or(l.Grace, runner.DefaultGrace)
	if !kind.Writes() {
		return min(grace, runner.ReadGrace)
	}
	return grace
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
		stack.SourceFailed, stack.InputsFailed, stack.StateTampered, stack.StateRegressed, stack.StateMissing, stack.StateShared, stack.StateNotAdopted:
		return true
	default:
		return false
	}
}

// start begins a run that writes nothing.
func (ac *actor) start(ctx context.Context, p *pass, a stack.Start) error {
	if a.Kind == stack.HealthRun {
		return ac.checkup(ctx, p, a.Why)
	}
	if a.Kind == stack.StepsRun {
		return ac.stepsRun(ctx, p, a.Why)
	}
	if a.Destroy {
		if err := ac.snapshots.recall(ctx, p); err != nil {
			return fault.New(fault.Of(err), string(stack.StartFailed), err)
		}
		p.job.Options.Targets = nil
	}
	cause := stack.Cause{PlanInputs: p.o.PlanInputs, Why: a.Why, Destroy: a.Destroy || a.Kind == stack.PreviewRun || p.st.Configuration.Destroy}
	p.job.Options.Destroy = cause.Destroy
	if a.Kind == stack.PreviewRun {
		cause.Preview = p.o.Spec.Preview
	}
	if err := ac.snapshots.keepFor(ctx, p, &cause); err != nil {
		return err
	}
	return ac.launcher.launch(ctx, p, a.Kind, cause, a.Unlock)
}

// apply begins the apply of exactly one saved plan.
func (ac *actor) apply(ctx context.Context, p *pass, plan stack.Plan) error {
	if p.o.Deleting {
		if err := ac.snapshots.recall(ctx, p); err != nil {
			return fault.New(fault.Of(err), string(stack.StartFailed), err)
		}
	}
	if plan.Destroy {
		if err := ac.unwatch(ctx, p); err != nil {
			return err
		}
	}
	cause := stack.Cause{PlanInputs: p.o.PlanInputs, Plan: &plan, Destroy: plan.Destroy, Why: "plan " + plan.Name}
	if err := ac.snapshots.keepFor(ctx, p, &cause); err != nil {
		return err
	}
	if err := ac.take(ctx, p, plan); err != nil {
		return err
	}
	if plan.Destroy { // not kept with what a later destroy is made from
		p.note.Hosts = aftersteps.Removals(p.st.Configuration.AfterApply, stepsTree(p))
	}
	return ac.launcher.launch(ctx, p, stack.ApplyRun, cause, "")
}

// unwatch removes the targets of a monitoring before their hosts are destroyed, so that their
// end raises no alarm. A namespace that is deleted takes them with it.
func (ac *actor) unwatch(ctx context.Context, p *pass) error {
	if p.o.Status.AfterApply == nil && !aftersteps.HasTargets(p.st.Configuration.AfterApply) {
		return nil
	}
	err := aftersteps.RemoveTargets(ctx, ac.live, p.obj, p.st.Configuration.AfterApply)
	if apierrors.IsForbidden(err) {
		ac.events.Event(p.obj, warning, "TargetsNotRemoved", err.Error())
		return nil
	}
	return err
}

// take puts a saved plan into the job.
func (ac *actor) take(ctx context.Context, p *pass, plan stack.Plan) error {
	saved, err := ac.records.Get(ctx, record.Plan(p.id, plan.Digest, "plan.bin"))
	var lockFile []byte
	if err == nil {
		// A module without providers has no lock file.
		lockFile, err = ac.records.Get(ctx, record.Plan(p.id, plan.Digest, "lock.hcl"))
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
	return nil
}

// script begins a run of the script, which applies the stack. In one that a plan lets run,
// terraform and tofu change what the plan says, and nothing else. The plan does not cover the
// other programs of the script: they do what their credentials allow.
func (ac *actor) script(ctx context.Context, p *pass, a stack.RunScript) error {
	cause := stack.Cause{PlanInputs: p.o.PlanInputs, Plan: a.Plan, Why: a.Why}
	if err := ac.snapshots.keepFor(ctx, p, &cause); err != nil {
		return err
	}
	if a.Plan != nil {
		if err := ac.take(ctx, p, *a.Plan); err != nil {
			return err
		}
	}
	return ac.launcher.launch(ctx, p, stack.ScriptRun, cause, a.Unlock)
}

// renew keeps a record for a destroy that has the destroy script of now.
func (ac *actor) renew(ctx context.Context, p *pass) error {
	var cause stack.Cause
	if err := ac.snapshots.keepFor(ctx, p, &cause); err != nil {
		return err
	}
	p.o.Status = stack.Renewed(p.o.Status, p.o.PlanInputs, cause.Snapshot, cause.DestroyScript)
	p.o.OtherDestroy = false
	return nil
}

// destroy begins the destroy of the resources, from the record of the last apply.
func (ac *actor) destroy(ctx context.Context, p *pass, unlock string) error {
	if err := ac.snapshots.recall(ctx, p); err != nil {
		return fault.New(fault.Of(err), string(stack.StartFailed), err)
	}
	if err := ac.unwatch(ctx, p); err != nil {
		return err
	}
	p.job.Options.Destroy, p.job.Options.Targets = true, nil
	p.note.Hosts = aftersteps.Removals(p.st.Configuration.AfterApply, stepsTree(p))
	why := "the object was deleted"
	if p.o.Corrected {
		why += "; its source, inputs or spec were changed after that"
	}
	return ac.launcher.launch(ctx, p, stack.DestroyRun, stack.Cause{PlanInputs: p.o.PlanInputs, Destroy: true, Snapshot: p.o.Status.Snapshot, Why: why}, unlock)
}

// publish writes the outputs of the newest state where they are wanted.
func (ac *actor) publish(ctx context.Context, p *pass) error {
	if err := ac.loader.confirm(ctx, p); err != nil {
		return err // a Secret that is wanted no more would stay for ever
	}
	outputs, err := ac.outputs(ctx, p)
	var data kube.Published
	if err == nil {
		data, err = kube.EncodeOutputs(outputs, p.st.Configuration.Outputs.Select)
	}
	var done kube.Writing
	if err == nil {
		done, err = kube.WriteOutputs(ctx, ac.live, p.obj, *p.st.Configuration.Outputs, data, p.o.Status.Published == "")
	}
	if err != nil {
		return fault.New(fault.Of(err), string(stack.OutputsFailed), err)
	}
	p.o.Status.Published = stack.Publication(p.st.Spec.Outputs, p.o.Status.State)
	if p.masked {
		p.o.Status.Published = stack.PublishedMasked(p.o.Status.Published)
	}
	p.o.Unwritten = false
	p.entry.outputs = publishedOutputs{p.st.Configuration.Outputs.Secret, done.Version}
	if done.Changed {
		ac.events.Event(p.obj, normal, "TerraformOutputsWritten", fmt.Sprintf("Outputs written to Secret %s: %d", p.st.Configuration.Outputs.Secret, data.Count()))
	}
	return nil
}

// finish cleans up and releases a deleted object. Which resources it retains is
// written down first; the finalizer is last.
func (ac *actor) finish(ctx context.Context, p *pass, retained bool) error {
	if err := ac.loader.confirm(ctx, p); err != nil {
		return err
	}
	forgotten, err := ac.removals.retain(ctx, p, retained)
	if err != nil {
		return fmt.Errorf("recording the retained resources: %w", err)
	}
	if err := kube.RemoveReadablePlans(ctx, ac.live, p.obj, states.Workspace(p.st.Configuration)); err != nil {
		return err
	}
	if err := ac.removals.relieve(ctx, p); err != nil {
		return err
	}
	if err := ac.removals.release(ctx, p.id); err != nil {
		return fmt.Errorf("giving credentials back: %w", err)
	}
	if err := ac.runner.Remove(p.id); err != nil {
		return err
	}
	if err := ac.removals.keepLastRun(ctx, p.id, p.dialect, client.ObjectKeyFromObject(p.obj)); err != nil {
		return err
	}
	if err := ac.records.Drop(ctx, p.id); err != nil {
		return err
	}
	gone := audit.Entry{What: audit.Deleted}
	if retained {
		gone = audit.Entry{What: audit.Retained, Why: "what it built stays where it is"}
	} else if forgotten > 0 {
		gone = audit.Entry{What: audit.Retained, Why: "its runs forgot resources and did not destroy them"}
	}
	if forgotten > 0 {
		gone.Details = map[string]string{"forgotten": strconv.Itoa(forgotten)}
	}
	if err := ac.auditor.record(ctx, p, gone, ""); err != nil {
		return err
	}
	before := p.obj.DeepCopyObject().(client.Object)
	controllerutil.RemoveFinalizer(p.obj, p.dialect.Finalizer())
	for _, f := range before.GetFinalizers() {
		// Upstream puts one on a dependency for each dependant; by now none is left.
		if strings.HasPrefix(f, p.dialect.DependencyFinalizer()) {
			controllerutil.RemoveFinalizer(p.obj, f)
		}
	}
	p.entry.doubt() // a copy in the cache must not bring it back
	err = ac.live.Patch(ctx, p.obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(kube.FieldManager))
	return client.IgnoreNotFound(err)
}
