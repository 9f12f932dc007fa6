package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// note travels with a run: what a controller that finds it must know.
type note struct {
	Cause   stack.Cause    `json:"cause"`
	State   *kube.StateRef `json:"state,omitempty"` // nil if the engine keeps the state elsewhere
	Backend string         `json:"backend,omitempty"`
	Waited  time.Duration  `json:"waited,omitempty"` // for its turn; only told
}

// observe gathers all that Decide may look at, and no more than it needs: a
// stack whose run goes on is not asked for its inputs.
func (c *Stacks) observe(ctx context.Context, obj client.Object) (*pass, error) {
	p := &pass{obj: obj, id: string(obj.GetUID()), entry: c.index.make(string(obj.GetUID()), client.ObjectKeyFromObject(obj))}
	var err error
	p.st, err = c.Dialect.Decode(obj)
	p.o = stack.Observation{
		Now: c.Now(), Spec: p.st.Spec, Status: p.st.Status, Request: p.st.Request,
		Deleting: !obj.GetDeletionTimestamp().IsZero(),
	}
	switch fault.Of(err) {
	case fault.None:
		p.o.Status = p.o.Relieved()
	case fault.Invalid, fault.Denied:
		p.o.Blocked = blockedBy(err, stack.SpecInvalid)
	default:
		// Nothing may be decided: a memory that is taken for empty would let go of
		// what exists.
		p.unreadable = err
		return p, nil
	}
	if err := c.restoreStatus(ctx, p); err != nil {
		return nil, err
	}
	if err := c.observeRun(ctx, p); err != nil {
		return nil, err
	}
	c.observeGlass(p)
	checks, err := c.driftChecks(ctx, p.entry)
	if err != nil {
		return nil, err
	}
	p.o.CheckedAt = checks.At
	switch {
	case p.stuck != nil:
		return p, nil
	case p.o.Run != nil:
		p.o.PlanInputs = p.o.Run.Cause.PlanInputs
		return p, nil
	case p.o.Deleting:
		if p.o.Dependents, err = c.dependents(ctx, obj); err == nil {
			err = c.inherit(ctx, p)
		}
		return p, err
	case p.o.Blocked != nil || p.o.Spec.Suspended:
		return p, nil
	}
	c.observeBasis(ctx, p)
	if p.o.Blocked == nil {
		if p.o.Waiting, err = c.dependencies(ctx, p); err != nil {
			return nil, err
		}
		p.o.Unwritten, err = c.unwritten(ctx, p)
	}
	return p, err
}

// observeRun finds the run of the stack, and folds it into memory if it ended.
func (c *Stacks) observeRun(ctx context.Context, p *pass) error {
	report, err := c.Runner.Current(p.id)
	if err != nil || report == nil {
		return err
	}
	var n note
	if err := json.Unmarshal(report.Note, &n); err != nil {
		return fmt.Errorf("reading the note of run %s: %w", report.ID, err)
	}
	p.level = isolation(report.Level)
	run := runOf(report, n)
	if !run.Done {
		p.o.Run = &run
		request := c.request(ctx, p, run.Kind, run.Cause)
		request.Began = report.Started
		c.Queue.Running(p.id, request)
		if run.Kind.Writes() {
			// What is done so far is kept even if this machine is lost.
			if err := c.flush(ctx, p, report, n); err != nil {
				c.Log.Warn("state not stored yet", "stack", report.Name, "run", report.ID, "err", err)
			}
		}
		return nil
	}
	if report.ID != p.o.Status.LastRun {
		if err := c.collect(ctx, p, report, n, &run); err != nil {
			p.stuck = err
			c.Log.Error("run not recorded", "stack", report.Name, "run", report.ID, "err", err)
			return nil // the run stays, and is collected again
		}
		p.o.Status = p.o.Status.Record(run)
	}
	p.ended, p.said = &run, report
	return nil
}

// runOf is a report in the words of the core.
func runOf(r *runner.Report, n note) stack.Run {
	run := stack.Run{
		ID: r.ID, Kind: r.Kind, Cause: n.Cause, Done: r.Phase == runner.Done, Outcome: r.Outcome,
		Step: r.Step, Message: r.Message, State: r.State.Digest, Since: r.Started, At: r.Finished,
		// A state that we do not keep may hold anything.
		Exists: r.Resources > 0 || n.State == nil,
	}
	if !run.Done {
		run.Step, run.Until = string(r.Phase), r.Until
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

// observeBasis finds what a plan would be made from now, or says why it cannot.
func (c *Stacks) observeBasis(ctx context.Context, p *pass) {
	p.o.PlanInputs = stack.PlanInputs{Shape: p.st.Configuration.Shape()}
	if p.o.Blocked = p.findImports(); p.o.Blocked != nil {
		return
	}
	for _, step := range []func(context.Context, *pass) *stack.Blocked{c.findSource, c.findEngine, c.findModule, c.findInputs, c.buildJob} {
		if p.o.Blocked = step(ctx, p); p.o.Blocked != nil {
			return
		}
	}
}

// unwritten reports whether the published outputs are gone or were changed.
func (c *Stacks) unwritten(ctx context.Context, p *pass) (bool, error) {
	to, m := p.st.Configuration.Outputs, p.o.Status
	if to == nil || m.Published == "" {
		return false, nil
	}
	key := types.NamespacedName{Namespace: p.obj.GetNamespace(), Name: to.Secret}
	if c.outputsUntouched(ctx, p.entry, key) {
		return false, nil
	}
	same, version, err := kube.OutputsIntact(ctx, c.Live, key)
	p.entry.outputs = publishedOutputs{to.Secret, version}
	if fault.Of(err) == fault.Missing {
		return true, nil
	}
	return !same, err
}

// publishedOutputs is a Secret, and the version at which it holds the outputs as
// they were written; an empty version says nothing.
type publishedOutputs struct{ secret, version string }

// outputsUntouched reports whether the watch of Secrets has the outputs of a stack
// at the version at which they were right. A watch that lags behind shows another
// version, or none, and then the server is asked. A change that the watch has not
// seen yet wakes the stack once the watch has it.
func (c *Stacks) outputsUntouched(ctx context.Context, e *entry, key types.NamespacedName) bool {
	if e.outputs.version == "" || e.outputs.secret != key.Name {
		return false
	}
	seen := &metav1.PartialObjectMetadata{}
	seen.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	return c.Client.Get(ctx, key, seen) == nil && seen.ResourceVersion == e.outputs.version
}
