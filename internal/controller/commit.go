package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/controller/aftersteps"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/controller/states"
	"github.com/terrier-iac/terrier/internal/controller/vaults"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// runInterval is how often a pass stores the state of a run that goes on. The end of
// the run wakes the stack.
const runInterval = 20 * time.Second

// again is a pass at once.
var again = ctrl.Result{RequeueAfter: time.Nanosecond}

// committer writes down and tells what passes found and did.
type committer struct {
	blobs     records.Blobs
	config    Config
	live      client.Client
	log       *slog.Logger
	queue     Queue
	runner    runner.Runner
	index     *index
	loader    *loader
	records   *records.Store
	snapshots *snapshots
	states    *states.Keeper
	teller    *teller
	turns     *turns
	formers   *formerSources
	vaults    *vaults.Vaults
	logins    *vaults.Vaults
}

// commit writes down and tells what the pass found and did. It is the only writer
// of the status, and writes nothing when there is nothing new.
func (cm *committer) commit(ctx context.Context, p *pass) (ctrl.Result, error) {
	if p.outcome == released {
		cm.queue.Leave(p.id)
		cm.log.Info("stack released", "stack", client.ObjectKeyFromObject(p.obj).String())
		return ctrl.Result{}, nil
	}
	for _, step := range cm.commitment(p) {
		if err := step(ctx, p); apierrors.IsConflict(err) {
			return cm.loader.requeue(p.entry), nil // another write came first; the run is not forgotten yet
		} else if err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
	}
	if p.outcome == postponed {
		return again, nil
	}
	return cm.next(p), nil
}

// commitment are the steps of a commit, in their order. Each can be repeated.
// A program that ends before the status is written finds the run, and begins again. One
// that ends after that loses events, metrics and notifications of the run; the audit log
// has it either way.
func (cm *committer) commitment(p *pass) []func(context.Context, *pass) error {
	if p.unreadable != nil {
		return []func(context.Context, *pass) error{cm.turns.leaveQueue, cm.writeStatus}
	}
	if p.unread { // everything else follows from the run
		return []func(context.Context, *pass) error{cm.turns.leaveQueue, cm.writeStatus, cm.teller.tell, cm.writeTimeline, cm.tendVault}
	}
	return []func(context.Context, *pass) error{
		cm.turns.leaveQueue,
		cm.snapshots.rewrite, // before the status, which names the record
		cm.writeTargets,      // before the status, by which a later pass does not try again
		cm.writeStatus,       // what must survive the status is in the records before it
		cm.teller.tell,       // events, notifications and metrics, of what the status has now
		cm.writeTimeline,
		cm.writeLabels,
		cm.turns.checks.writeNextCheck,
		cm.formers.drop,
		cm.tendVault,
		cm.forgetRun, // last: whatever comes before finds the run again
	}
}

// tendVault renews what the run of the stack has of a Vault, and ends it after the run.
func (cm *committer) tendVault(ctx context.Context, p *pass) error {
	running := p.unread || p.o.Run != nil && !p.o.Run.Done
	p.recheckIn(cm.vaults.Tend(ctx, p.id, running, &p.entry.vault))
	p.recheckIn(cm.logins.Tend(ctx, p.id, running, &p.entry.login))
	return nil
}

// leaveQueue gives up the place of a stack that neither runs nor waits to.
func (tn *turns) leaveQueue(_ context.Context, p *pass) error {
	switch {
	case p.unreadable != nil, p.unread:
		tn.withdraw(p) // it may run
	case p.o.Queued == "" && p.o.Run == nil:
		if p.left != nil {
			tn.lingering.keep(tn.queue, p.id, *p.left, p.o.Now)
		}
		tn.queue.Leave(p.id)
	}
	if !p.confirming {
		p.entry.turn = time.Time{}
	}
	return nil
}

// withdraw gives up the place in the queue of a stack that may run. One whose run waits for
// prerequisites has the slot of a run, and none.
func (tn *turns) withdraw(p *pass) {
	if p.entry.turn.IsZero() {
		tn.queue.Withdraw(p.id)
		return
	}
	p.entry.turn = time.Time{}
	tn.queue.Leave(p.id)
}

// writeStatus writes the status in one patch if it says anything new.
func (cm *committer) writeStatus(ctx context.Context, p *pass) error {
	if wait := cm.untilJudged(p); wait > 0 {
		p.recheckIn(wait)
		return nil
	}
	before := p.obj.DeepCopyObject().(client.Object)
	says := cm.statusOf(ctx, p)
	p.dialect.Encode(p.obj, says)
	change, err := kube.DifferenceOf(before, p.obj)
	if err != nil {
		return err
	}
	changed := !change.None()
	var debounce time.Duration
	if changed {
		debounce = cm.statusDebounce(p, before)
	}
	if debounce > 0 {
		p.recheckIn(debounce)
		return nil
	}
	p.entry.debouncedAt = time.Time{}
	if changed && p.o.Status.Review != nil && p.o.Status.Review.Repeats(p.reviewed) {
		if changed, err = more(p, before, says); err != nil {
			return err
		}
		if !changed {
			p.entry.verdict = p.o.Status.Review
		}
	}
	if !changed {
		return nil
	}
	if err := cm.saveCheckpoint(ctx, p); err != nil {
		return err
	}
	if t := p.dialect.Terrier(p.obj); t != nil && t.Writes < math.MaxInt64 { // as a wrong client may have made it
		t.Writes++ // from now on the API server refuses each earlier status
		change.Set(t.Writes, "status", "terrier", "writes")
	}
	patch, err := change.Patch(before.GetResourceVersion())
	if err != nil {
		return err
	}
	if err := cm.live.Status().Patch(ctx, p.obj, patch, client.FieldOwner(kube.FieldManager)); err != nil {
		return err
	}
	p.entry.verdict = nil
	cm.index.wrote(p.entry.objectRef, p.obj)
	return nil
}

// more reports whether the status says anything new beside a verdict that repeats the last
// one. Such a verdict is written with the next change: a policy that changes for a thousand
// stacks, and finds in their plans what it found before, costs no write to the API server. The
// record beside the plan has it.
func more(p *pass, before client.Object, says dialect.Summary) (bool, error) {
	whole := p.obj
	says.Status.Review = p.reviewed
	p.obj = before.DeepCopyObject().(client.Object)
	p.dialect.Encode(p.obj, says)
	change, err := kube.DifferenceOf(before, p.obj)
	if err != nil || !change.None() {
		p.obj = whole
	}
	return !change.None(), err
}

// statusOf is what the status of the object is to say.
func (cm *committer) statusOf(ctx context.Context, p *pass) dialect.Summary {
	if p.unreadable != nil {
		return dialect.Summary{Unreadable: p.unreadable, Now: p.o.Now}
	}
	r := dialect.Summary{
		Decision: p.decision, Status: p.o.Status, PlanInputs: p.o.PlanInputs, Run: p.o.Run,
		Next: p.o.Retry(p.decision), Every: p.o.Recheck(p.decision), Now: p.o.Now,
		Isolation: p.isolation, Ignored: cm.ignored(p), BreakGlassDenied: p.breakGlassDenied,
		Inventory: cm.inventory(ctx, p), PostDeploy: p.postDeploy, Prerequisites: p.prerequisites,
		RunUnread:   p.unread,
		RecordLacks: p.recordLacks(),
		SpecInvalid: p.o.Blocked != nil && p.o.Blocked.Reason == stack.SpecInvalid,
	}
	if p.job != nil {
		r.Environment = slices.AppendSeq([]string{}, maps.Keys(p.in.Resolved.Environment))
		slices.Sort(r.Environment)
	}
	return r
}

// ignored are the fields of the object that have no effect here, sorted.
func (cm *committer) ignored(p *pass) []string {
	all := slices.Clone(p.st.Ignored)
	if !cm.config.Pods {
		all = append(all, p.st.OnlyPods...)
	}
	if len(p.st.Configuration.SourcePaths) > 0 && p.entry.wholeSource != "" {
		all = append(all, fmt.Sprintf("metadata.annotations[%s] (the whole source counts: %s)", dialect.SourcePaths, p.entry.wholeSource))
	}
	slices.Sort(all)
	return all
}

// writeTargets writes the targets of a monitoring once steps about them ended, and removes
// them once there are none.
func (cm *committer) writeTargets(ctx context.Context, p *pass) error {
	steps := p.st.Configuration.AfterApply
	switch {
	case p.ended != nil && p.ended.Kind == stack.StepsRun && aftersteps.HasTargets(steps) && p.o.Status.AfterApply != nil:
		outputs, err := outputsOf(cm.records)(ctx, p.id)
		if err == nil {
			err = aftersteps.WriteTargets(ctx, cm.live, p.obj, steps, outputs, p.o.Status.AfterApply.Results)
		}
		return cm.targetsFailed(p, err)
	case p.st.Status.AfterApply != nil && p.o.Status.AfterApply == nil: // there are no steps any more
		return cm.targetsFailed(p, aftersteps.RemoveTargets(ctx, cm.live, p.obj, steps))
	}
	return nil
}

// targetsPatience is how long the status of a stack waits for targets that cannot be written
// for a reason that may pass.
const targetsPatience = 2 * time.Minute

// targetsFailed tells of targets that only a user can help with, and of those that something else
// keeps from being written for long, so that the status of the stack is written all the same: a
// monitoring must not keep a stack from its plans.
func (cm *committer) targetsFailed(p *pass, err error) error {
	since := p.entry.targetsFailed
	p.entry.targetsFailed = time.Time{}
	if err == nil {
		return nil
	}
	k := fault.Of(err)
	if k == fault.Denied || k == fault.Invalid || unopened(err) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsRequestEntityTooLargeError(err) {
		cm.teller.events.Event(p.obj, warning, "TargetsNotWritten", err.Error())
		return nil
	}
	if since.IsZero() {
		since = p.o.Now
	}
	if p.o.Now.Sub(since) >= targetsPatience {
		cm.teller.events.Event(p.obj, warning, "TargetsNotWritten", fmt.Sprintf("%v. Terrier has tried for %s, and tries again with the next run of the steps: terrier steps rerun %s", err, targetsPatience, p.o.Spec.Words.Argument))
		return nil
	}
	p.entry.targetsFailed = since
	return err
}

// forgetRun removes a run that ended and is written down.
func (cm *committer) forgetRun(_ context.Context, p *pass) error {
	if p.ended == nil {
		return nil
	}
	return cm.runner.Forget(p.id, p.ended.ID)
}

// recheckIn asks for a pass after a while, or earlier if that was asked for.
func (p *pass) recheckIn(after time.Duration) {
	if after > 0 && (p.recheck == 0 || after < p.recheck) {
		p.recheck = after
	}
}

// next says when the next pass is due.
func (cm *committer) next(p *pass) ctrl.Result {
	if p.outcome == outdated {
		return cm.loader.requeue(p.entry)
	}
	if p.decision.Reason == stack.PrerequisiteMissing {
		p.recheckIn(p.entry.looking.Pause)
	}
	after, soon := p.nextPass()
	if soon {
		return again
	}
	if p.recheck > 0 && (after == 0 || after > p.recheck) {
		after = p.recheck
	}
	return ctrl.Result{RequeueAfter: after}
}

// nextPass is when the decision asks for a pass: soon, after a while, or if that is
// zero when something changes.
func (p *pass) nextPass() (after time.Duration, soon bool) {
	switch a := p.decision.Action.(type) {
	case stack.Wait:
		if p.o.Run != nil && (a.For == 0 || a.For > runInterval) {
			return runInterval, false
		}
		return a.For, false
	case stack.Start, stack.Apply, stack.Destroy, stack.Cancel:
		switch {
		case p.o.Run != nil:
			return runInterval, false
		case p.o.Queued != "":
			return 0, false // the queue wakes the stack
		default:
			return 0, true // decided by what this pass did, to be carried out by the next
		}
	default:
		return 0, true
	}
}

// failurePatience is how long the passes over a stack end early before its status says so.
// Most of what ends them passes: an API server or a store of records that is away for a while.
const failurePatience = time.Minute

// failed takes an error that ended a pass before its commit, or in it. Nothing in the status
// would say why it does not change: once such passes last, the condition Ready does. The next
// pass that does not fail writes what it was.
func (cm *committer) failed(ctx context.Context, p *pass, why error) error {
	if ctx.Err() != nil {
		return why // the controller stops
	}
	now := cm.loader.now()
	if p.entry.failingSince.IsZero() {
		p.entry.failingSince = now
	}
	if now.Sub(p.entry.failingSince) < failurePatience {
		return why
	}
	return errors.Join(why, cm.tellFailing(ctx, p, dialect.Summary{Failing: why, Now: now}))
}

// When a stack asks again which policies judge it: after a time as long as it has waited. The end
// of what it waits for wakes it as well.
const (
	unjudgedRecheck  = time.Second      // at first
	unjudgedPause    = time.Minute      // at the latest
	unjudgedPatience = 10 * time.Second // after which the status says what it waits for
)

// unjudged has a stack wait until it is known which policies judge it. Mostly that takes as long
// as a program is compiled; once it lasts, the condition Ready says why.
func (cm *committer) unjudged(ctx context.Context, p *pass, why error) (ctrl.Result, error) {
	now := cm.loader.now()
	if p.entry.failingSince.IsZero() {
		p.entry.failingSince = now
	}
	waited := now.Sub(p.entry.failingSince)
	next := ctrl.Result{RequeueAfter: min(max(unjudgedRecheck, waited), unjudgedPause)}
	if waited < unjudgedPatience {
		return next, nil
	}
	return next, cm.tellFailing(ctx, p, dialect.Summary{Failing: why, Now: now})
}

// tellFailing writes the condition, unless the object has it already.
func (cm *committer) tellFailing(ctx context.Context, p *pass, says dialect.Summary) error {
	obj := p.dialect.New() // p.obj may be what the pass was about to write
	if err := cm.live.Get(ctx, client.ObjectKeyFromObject(p.obj), obj); err != nil || string(obj.GetUID()) != p.id {
		return client.IgnoreNotFound(err)
	}
	before := obj.DeepCopyObject().(client.Object)
	p.dialect.Encode(obj, says)
	change, err := kube.DifferenceOf(before, obj)
	if err != nil || change.None() {
		return err
	}
	if t := p.dialect.Terrier(obj); t != nil && t.Writes < math.MaxInt64 {
		t.Writes++
		change.Set(t.Writes, "status", "terrier", "writes")
	}
	patch, err := change.Patch(before.GetResourceVersion())
	if err != nil {
		return err
	}
	err = cm.live.Status().Patch(ctx, obj, patch, client.FieldOwner(kube.FieldManager))
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return nil // the next pass tells it
	case err != nil:
		return fmt.Errorf("reporting that: %w", err)
	}
	cm.index.wrote(p.entry.objectRef, obj)
	cm.teller.events.Event(obj, warning, dialect.ReconcileFailed, says.Failing.Error())
	return nil
}
