package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/controller/aftersteps"
	"github.com/terrier-iac/terrier/internal/controller/approvals"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/controller/states"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/failpoint"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/review"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/stack"
)

// note travels with a run: what a controller that finds it must know.
type note struct {
	Cause   stack.Cause    `json:"cause"`
	After   *string        `json:"after,omitempty"` // the run whose end was recorded last when this one was started; nil in what earlier releases noted
	State   *kube.StateRef `json:"state,omitempty"` // nil if the engine keeps the state elsewhere
	Backend string         `json:"backend,omitempty"`
	In      string         `json:"in,omitempty"`     // where the state is, for people
	Waited  time.Duration  `json:"waited,omitempty"` // for its turn; only told
	Class   string         `json:"class,omitempty"`  // under which the schedule admitted it
	Tenant  string         `json:"tenant,omitempty"` // of the stack when it was admitted

	Hosts []aftersteps.Order `json:"hosts,omitempty"` // what is written into repositories after a run of steps, or of a destroy

	Stamped string `json:"stamped,omitempty"` // the epoch of the stamps on the object when the run began
	Changes int    `json:"changes,omitempty"` // the number of the newest change of the object then
}

// place identifies where the state of the run is.
func (n note) place() string {
	if n.State != nil {
		return states.ManagedPlace(*n.State)
	}
	return n.Backend
}

// class is under which the schedule counts the run. Earlier releases did not note it.
func (n note) class(kind stack.RunKind) schedule.Class {
	if c, ok := schedule.ClassNamed(n.Class); ok {
		return c
	}
	switch {
	case kind.Writes():
		return schedule.Apply
	case kind == stack.CheckRun:
		return schedule.Drift
	default:
		return schedule.Upstream
	}
}

// settler takes over what runs left.
type settler struct {
	blobs     records.Blobs
	live      client.Client
	log       *slog.Logger
	dialects  dialect.Registry
	queue     Queue
	runner    runner.Runner
	store     states.Store
	reviewers review.Reviewers
	checks    *driftRecords
	records   *records.Store
	states    *states.Keeper
	turns     *turns
	metrics   *metrics
	approvals *approvals.Verifier

	// What the controller writes after a run, and what it needs to know of the stack for that.
	hosts    *aftersteps.Writer
	accounts Accounts
	config   Config
	people   Events
	wakes    *wakeQueues
}

// unreadRecheck is when a run is read again that could not be. Its end may have been announced.
const unreadRecheck = 20 * time.Second

// settle takes over what the run of the stack left: of a run that goes on the state
// so far, of a run that ended everything. It is the only place that folds the
// report of a run into the status. A stack whose run cannot be read waits, and says why:
// the run may go on.
func (se *settler) settle(ctx context.Context, p *pass) error {
	if p.unreadable != nil {
		return nil
	}
	err := takeOver(ctx, se, p)
	if err == nil || ctx.Err() != nil || fault.Of(err) == fault.Conflict || fault.Reason(err, "") == aftersteps.Soon {
		return err
	}
	p.unread = true
	p.o.Unsettled = &stack.Blocked{Kind: fault.Later, Reason: stack.StateFailed, Message: fmt.Sprintf(
		"Terrier cannot read the run of this stack, which may be running: %v. Terrier tries again by itself, and begins no other run of the stack before", err)}
	p.recheckIn(unreadRecheck)
	se.log.Error("run not read", "stack", client.ObjectKeyFromObject(p.obj).String(), "err", err)
	return nil
}

func takeOver(ctx context.Context, se *settler, p *pass) error {
	report, err := se.runner.Current(p.id)
	if err != nil || report == nil {
		return err
	}
	var n note
	if err := json.Unmarshal(report.Note, &n); err != nil {
		return fmt.Errorf("reading the note of run %s: %w", report.ID, err)
	}
	p.isolation = isolation(report.Level)
	run := runOf(report, n)
	if run.Done && runner.NeverBegan(report.Reason) {
		return se.neverBegan(ctx, p, report, n)
	}
	if run.Done || report.Phase != runner.Starting {
		p.entry.room = roomWait{}
	}
	recorded, err := earlier(ctx, se.records, p, report, n)
	if err != nil {
		return err
	}
	if !run.Done {
		if recorded || report.ID == p.o.Status.LastRun {
			// Its end is recorded, so that nothing wants it. The next run waits for its end
			// nevertheless: it may have begun with another controller.
			if err := se.runner.Cancel(ctx, p.id, report.ID); err != nil {
				return fmt.Errorf("cancelling run %s, whose end is recorded: %w", report.ID, err)
			}
		}
		se.goesOn(ctx, p, report, n, &run)
		return nil
	}
	if p.o.Status.LastRun == report.ID && wroteMore(report, n, p.o.Status.KnownState) {
		p.o.Status.LastRun = "" // its end was recorded before it began
	}
	if recorded {
		se.log.Info("run is not taken over again", "stack", report.Name, "run", report.ID, "later", p.o.Status.LastRun)
		return se.runner.Forget(p.id, report.ID)
	}
	left := se.turns.candidate(ctx, p, run.Kind, run.Cause)
	left.Class, left.Tenant = n.class(run.Kind), cmp.Or(n.Tenant, left.Tenant)
	p.left = &left
	if report.ID != p.o.Status.LastRun {
		was := p.o.Status
		for _, step := range se.settlement(p, report, n, &run) {
			err := step.do(ctx)
			if fault.Reason(err, "") == states.Superseded {
				se.log.Warn("run is not taken over, since a later one was", "stack", report.Name, "run", report.ID, "err", err)
				p.o.Status = was
				return se.runner.Forget(p.id, report.ID)
			}
			if fault.Reason(err, "") == aftersteps.Soon {
				p.o.Status = was
				return err
			}
			if err != nil {
				// The run stays where it is, and the next pass repeats every step.
				p.o.Status, p.o.Unsettled = was, &stack.Blocked{Kind: fault.Later, Reason: stack.StateFailed, Message: err.Error()}
				se.log.Error("run not taken over", "stack", report.Name, "run", report.ID, "step", step.name, "err", err)
				return nil
			}
		}
		p.o.Status = p.o.Status.Record(run)
	}
	p.ended, p.report = &run, report
	return nil
}

// earlier reports whether the end of a run is recorded already, and that of a later one,
// too. Such a run comes back with a node that was lost, or with a pod that the last
// controller of its stack could not remove. Nothing is recorded while a run goes on, so
// one that began after another run than the one recorded last is no news. If the status
// is older than the runs, as one from a backup is, that proves nothing of a run that
// writes: of such a run the records have to have the end as well.
func earlier(ctx context.Context, kept *records.Store, p *pass, r *runner.Report, n note) (bool, error) {
	last := p.o.Status.LastRun
	if n.After == nil || last == "" || last == r.ID || last == *n.After || wroteMore(r, n, p.o.Status.KnownState) {
		return false, nil
	}
	if !r.Kind.Writes() {
		return true, nil
	}
	_, err := kept.Get(ctx, record.Run(p.id, r.ID, record.ReportFile))
	if fault.Of(err) == fault.Missing {
		return false, nil
	}
	return err == nil, err
}

// wroteMore reports whether a run left a state that is newer than the one that is known.
// The end of a run is recorded with its state. So the recorded end of a run that wrote
// more is not its own: a controller withdrew the run, and it began with the next one.
func wroteMore(r *runner.Report, n note, known stack.StateID) bool {
	return r.Kind.Writes() && n.State != nil && r.State.Serial > 0 && (known.Lineage == "" || r.State.Lineage == known.Lineage && r.State.Serial > known.Serial)
}

// neverBegan takes back a run whose place found no room or no image, so that it never began.
// It leaves nothing but the lock of its state. It is no failure, and its turn goes to other runs.
func (se *settler) neverBegan(ctx context.Context, p *pass, r *runner.Report, n note) error {
	if err := se.freeLock(ctx, r, n); err != nil {
		return err
	}
	if err := se.runner.Forget(p.id, r.ID); err != nil {
		return err
	}
	se.log.Warn("run never began", "stack", r.Name, "run", r.ID, "why", r.Message)
	se.metrics.runs.WithLabelValues(string(r.Kind), string(r.Outcome)).Inc()
	p.entry.room = p.entry.room.longer(p.o.Now, roomFor{p.obj.GetGeneration(), n.Cause.Replan}, r.Message)
	se.queue.Leave(p.id)
	return nil
}

// fold records a run that could not be started: the obstacle is its outcome.
func (p *pass) fold(r stack.Run) { p.o.Status = p.o.Status.Record(r) }

// goesOn counts a run that goes on, and stores what it has done so far in case
// this machine is lost.
func (se *settler) goesOn(ctx context.Context, p *pass, r *runner.Report, n note, run *stack.Run) {
	p.o.Run = run
	candidate := se.turns.candidate(ctx, p, run.Kind, run.Cause)
	candidate.Began, candidate.Class = r.Started, n.class(run.Kind)
	se.queue.Running(p.id, candidate)
	if !run.Kind.Writes() {
		return
	}
	if err := se.states.Flush(ctx, p.subject(), r, n.State); err != nil {
		se.log.Warn("state not stored yet", "stack", r.Name, "run", r.ID, "err", err)
	}
}

// settleStep is one thing that has to be durable before a run counts as taken over.
type settleStep struct {
	name string
	do   func(context.Context) error
}

// settlement are the steps by which an ended run is taken over, in the order in
// which they must be durable. Each can be repeated: a program that ends between two
// of them begins at the first one again.
func (se *settler) settlement(p *pass, r *runner.Report, n note, run *stack.Run) []settleStep {
	steps := []settleStep{
		{"state", func(ctx context.Context) error { return se.states.Settle(ctx, p.subject(), r, n.State, run) }},
		{"moved", func(context.Context) (err error) { run.Moved, err = se.moved(p, r, n); return err }},
		// The lock is freed after this: the next holder of it must know what is untracked.
		{"untracked", func(ctx context.Context) error { return se.findUntracked(ctx, p, r, n, run) }},
		{"untracked-before", func(ctx context.Context) error { return se.followUntracked(ctx, p, n, run) }},
		{"forgotten", func(ctx context.Context) error { return se.keepForgotten(ctx, p, r, n) }},
		{"lock", func(ctx context.Context) error { return se.freeLock(ctx, r, n) }},
		{"hosts", func(ctx context.Context) error { return writeHosts(ctx, se, p, r, n, run) }}, // before the report is kept
		{"tolerated", func(context.Context) error { return judgeDrift(se, p, r, n, run) }},
		{"records", func(ctx context.Context) error { return se.keepRecords(ctx, p, r) }},
		{"memory", func(ctx context.Context) error { return se.checks.observeMemory(ctx, p, r) }},
		{"outputs", func(ctx context.Context) error { return se.keepOutputs(ctx, p, r, run) }},
		{"inventory", func(context.Context) error { return se.takeInventory(p, r) }},
		{"snapshots", func(ctx context.Context) error { return se.dropSnapshots(ctx, p, r, n) }},
		{"secrets", func(ctx context.Context) error { return se.settleSecrets(ctx, p, r, n) }}, // before what they hide is shown
		{"uses", func(ctx context.Context) error { return keepUses(ctx, se, p, r, n) }},
		{"applied", func(ctx context.Context) error { return keepApplied(ctx, se, p, r, n) }},
		{"plan", func(ctx context.Context) error { return se.keepPlan(ctx, p, r, n, run) }},
		{"post-deploy", func(ctx context.Context) error { return takePostDeploy(ctx, se, p, r) }},
		{"check-blocks", func(ctx context.Context) error { return se.hideCheckBlocks(ctx, p, run) }},
		{"approvers", func(ctx context.Context) error { return settleApprovers(ctx, se, p, *run, n) }},
		{"drift-check", func(ctx context.Context) error { return se.checked(ctx, p, r, run) }},
	}
	for i, s := range steps {
		steps[i].do = func(ctx context.Context) error {
			defer failpoint.Act("settle", s.name)()
			return s.do(ctx)
		}
	}
	return steps
}

// writeHosts carries out the orders of a run. Secrets are read with the rights of the stack,
// where the operator says so.
func writeHosts(ctx context.Context, se *settler, p *pass, r *runner.Report, n note, run *stack.Run) error {
	of := p.entry.objectRef
	return se.hosts.Settle(ctx, aftersteps.Stack{
		UID: p.id, Namespace: p.obj.GetNamespace(), Name: p.obj.GetName(), By: managedBy(p), RolledBack: p.o.Status.Rollback != nil,
		Secrets: func() (client.Reader, error) {
			if se.config.ReadAs == "" {
				return se.live, nil
			}
			return se.accounts.As(types.NamespacedName{Namespace: p.obj.GetNamespace(), Name: cmp.Or(p.st.Configuration.Pod.Account, se.config.ReadAs)})
		},
		Wake: func() { se.wakes.add(of) },
		Warn: func(reason, message string) { se.people.Event(p.obj, warning, reason, message) },
	}, &p.entry.hosts, r, n.Hosts, run)
}

// runOf is a report in the words of the core.
func runOf(r *runner.Report, n note) stack.Run {
	run := stack.Run{
		ID: r.ID, Kind: r.Kind, Cause: n.Cause, Done: r.Phase == runner.Done, Outcome: r.Outcome,
		Step: r.Step, Message: r.Message, Permanent: r.Permanent, State: r.State.Digest, Since: r.Started, At: r.Finished,
		Steps:  r.StepResults(),
		Blocks: r.CheckBlocks, Untouched: r.Untouched && !r.Lost,
		// A state that we do not keep may hold anything.
		Exists: r.Resources > 0 || n.State == nil,
	}
	if run.Kind == stack.DestroyRun || run.Kind == stack.ScriptRun {
		run.Changes = r.Changes
	}
	if n.State == nil && r.Foreign != nil {
		run.LastState = stack.LastStateIn(n.place(), n.In, false, *r.Foreign)
	}
	if run.Missing = r.Missing; run.Missing != nil {
		run.Why = string(stack.StateMissing)
	}
	if !run.Done {
		run.Step, run.Until, run.Awaits = string(r.Phase), r.Until, r.Message
	}
	switch r.Reason {
	case runner.OutOfMemory, runner.NoSpace, runner.Stuck:
		run.Why = r.Reason // others are names of steps and locks, which are told apart already
	}
	if r.Lock != nil {
		run.Lock = &stack.Lock{ID: r.Lock.ID, Who: r.Lock.Who, Since: r.Lock.Created, Seen: r.Finished}
	}
	if run.Done && (run.Lock == nil || run.Lock.ID != n.Cause.Unlock) {
		run.Broke = n.Cause.Unlock
	}
	if run.Done && run.Message == "" && run.Outcome != stack.Succeeded {
		run.Message = fmt.Sprintf("%s ended: %s", r.Kind, r.Outcome)
	}
	return run
}

func isolation(level int) string {
	names := []string{"none", "basic", "kernel", "full"}
	if level < 0 || level >= len(names) {
		return ""
	}
	return names[level]
}

// settleApprovers keeps which changes of the object a run had, where policies may ask.
func settleApprovers(ctx context.Context, se *settler, p *pass, run stack.Run, n note) error {
	if p.policies.Digest == "" {
		return nil
	}
	return se.approvals.Settled(ctx, p.approvers(), run, n.Stamped, n.Changes)
}
