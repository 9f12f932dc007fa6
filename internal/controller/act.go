package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/controller/aftersteps"
	"github.com/terrier-iac/terrier/internal/controller/approvals"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/controller/states"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/plan"
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
	approvals *approvals.Verifier
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
		by.Name, by.Unknown = ac.approvals.Author(ctx, p.approvers(), kube.ChangedBy)
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
	}
	cause := stack.Cause{PlanInputs: p.o.PlanInputs, Why: a.Why, Destroy: a.Destroy || a.Kind == stack.PreviewRun || p.st.Configuration.Destroy}
	if a.Kind == stack.PreviewRun {
		cause.Preview = p.o.Spec.Preview
	}
	if err := ac.snapshots.keepFor(ctx, p, &cause); err != nil { // of the job as the object asks for it
		return err
	}
	if a.Destroy || a.Kind == stack.PreviewRun {
		p.job.Options.Targets = nil // the deletion of a stack destroys everything, and a preview shows that
	}
	p.job.Options.Destroy = cause.Destroy
	return ac.launcher.launch(ctx, p, a.Kind, cause, a.Unlock)
}

// apply begins the apply of exactly one saved plan.
func (ac *actor) apply(ctx context.Context, p *pass, plan stack.Plan) error {
	if p.o.Deleting {
		if err := ac.snapshots.recall(ctx, p); err != nil {
			return fault.New(fault.Of(err), string(stack.StartFailed), err)
		}
		if plan.Whole {
			p.job.Options.Targets = nil // the plan was made without them
		}
	}
	ends := plan.Destroy && len(p.job.Options.Targets) == 0 // what is not targeted stays, and so do its hosts
	if ends {
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
	if ends { // not kept with what a later destroy is made from
		p.note.Hosts = aftersteps.Removals(p.st.Configuration.AfterApply, stepsTree(p))
	}
	return ac.launcher.launch(ctx, p, stack.ApplyRun, cause, "")
}

// stepsRun begins to carry out the steps after an apply. The run has the tree of the stack,
// its environment and its identity, and neither the state nor its lock.
func (ac *actor) stepsRun(ctx context.Context, p *pass, why string) error {
	outputs, err := outputsIfAny(ctx, ac, p)
	if err != nil {
		return fault.New(fault.Of(err), string(stack.StateFailed), fmt.Errorf("reading the outputs for the steps after the apply: %w", err))
	}
	cause := stack.Cause{PlanInputs: p.o.PlanInputs, Why: why, Steps: &stack.StepsCause{
		Digest: p.o.Steps.Approvable(), Key: stack.StepsKey(*p.o.Steps, p.o.Status), Rerun: p.o.Spec.Rerun,
	}}
	job, wanted, tree := p.job, p.st.Configuration.AfterApply, stepsTree(p)
	p.job = &runner.Job{
		Stack: job.Stack, Name: job.Name, Created: job.Created, Engine: job.Engine, Tree: job.Tree, Env: job.Env, Home: job.Home,
		After: aftersteps.Job(wanted, outputs, stack.Resumes(p.o.Status, cause.Steps.Key), tree),
		Mask:  append(slices.Clone(job.Mask), sensitive(outputs)...),
		Pod:   job.Pod, Limits: job.Limits, Sandbox: job.Sandbox, Words: job.Words,
	}
	p.note = note{Hosts: aftersteps.Orders(wanted, p.job.After, tree)}
	return ac.launcher.launch(ctx, p, stack.StepsRun, cause, "")
}

// stepsTree is where the files are that the steps of a stack name.
func stepsTree(p *pass) aftersteps.Tree {
	return aftersteps.Tree{Archive: p.in.archive, Module: p.st.Configuration.Path, Source: p.st.Configuration.Source, Namespace: p.obj.GetNamespace(), By: managedBy(p)}
}

// managedBy is the name under which the hosts of a stack are in a hosts.yml.
func managedBy(p *pass) string {
	return aftersteps.ManagedBy(dialect.KindOf(p.dialect), p.obj.GetNamespace(), p.obj.GetName())
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

// outputs returns the outputs of the newest state; Missing if they are not
// known, as those of a state that we do not keep before a run reads them.
func (ac *actor) outputs(ctx context.Context, p *pass) (map[string]kube.Output, error) {
	b, err := ac.records.Get(ctx, record.Outputs(p.id))
	switch {
	case unopened(err) && p.note.State != nil:
		b, err = ac.states.Inspector.Outputs(ctx, *p.note.State)
	case unopened(err): // a run that reads them writes the record again, and must not wait for what needs them
		err = fault.New(fault.Missing, fault.Reason(err, ""), err)
	}
	if err != nil {
		return nil, err
	}
	outputs := map[string]kube.Output{}
	if err := json.Unmarshal(b, &outputs); err != nil {
		return nil, err
	}
	hidden, err := p.secretPrints(ctx, ac.records)
	if err != nil {
		return nil, err
	}
	kube.MarkSecret(outputs, hidden)
	return outputs, nil
}

// outputsIfAny returns the outputs of the newest state for what can do without: none if they are
// not known. Those whose key is not known exist, and what went without them would fail for good.
func outputsIfAny(ctx context.Context, ac *actor, p *pass) (map[string]kube.Output, error) {
	outputs, err := ac.outputs(ctx, p)
	switch {
	case fault.Of(err) == fault.Missing && fault.Reason(err, "") == blob.KeyUnknown:
		return nil, fault.New(fault.Later, blob.KeyUnknown, fmt.Errorf("%w, or ask for a plan, which reads them again: terrier replan %s", err, p.o.Spec.Words.Argument))
	case fault.Of(err) == fault.Missing:
		return nil, nil
	default:
		return outputs, err
	}
}

// sensitive are the texts in outputs that must not be shown.
func sensitive(outputs map[string]kube.Output) []string {
	var found []string
	for _, o := range outputs {
		if !o.Sensitive {
			continue
		}
		found = append(found, plan.Texts(o.Value)...)
	}
	return found
}

// finish cleans up and releases a deleted object. Which resources it retains is
// written down first; the finalizer is last.
func (ac *actor) finish(ctx context.Context, p *pass, retained bool) error {
	if err := ac.loader.confirm(ctx, p); err != nil {
		return err
	}
	origin, err := ac.removals.origin(ctx, p.entry, time.Time{}, true)
	if err != nil {
		return err
	}
	forgotten, err := ac.removals.retain(ctx, p, origin, retained)
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
	if err := ac.removals.keepLastRun(ctx, p.entry, origin); err != nil {
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
