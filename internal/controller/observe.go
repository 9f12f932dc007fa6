package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/afterapply"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/controller/aftersteps"
	"github.com/terrier-iac/terrier/internal/controller/gitstate"
	"github.com/terrier-iac/terrier/internal/controller/policies"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/controller/states"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/stack"
)

// observer finds what a decision depends on. It writes nothing outside the pass, except
// what it has read, which the entry of the stack keeps, so that it is not read again, and the
// place of a due drift check in the line of a budget.
type observer struct {
	blobs        records.Blobs
	cache        client.Reader
	config       Config
	live         client.Reader
	checks       *driftRecords
	dependencies *dependencies
	gates        *gates
	jobs         *jobs
	inspector    *states.Inspector
	destroys     policies.Ledger
	records      *records.Store
	snapshots    *snapshots
	steps        *aftersteps.Files
}

// observe gathers what a decision depends on beside the object and its run, and no
// more than it needs: a stack whose run goes on is not asked for its inputs. Whether
// a break-glass session is open follows from the time, and is part of the observation.
func (ob *observer) observe(ctx context.Context, p *pass) error {
	if p.unreadable != nil {
		return nil
	}
	ob.observeBreakGlass(p)
	checks, err := ob.checks.driftChecks(ctx, p.entry)
	if err != nil {
		return err
	}
	p.o.CheckedAt, p.o.DriftedAt = checks.At, checks.Drifted
	if p.o.Run == nil && p.o.Unsettled == nil && !p.o.Deleting {
		if err := ob.snapshots.look(ctx, p); err != nil {
			return err
		}
	}
	if ob.jobs.config.Pods && p.o.Blocked == nil {
		p.o.Pod = p.st.Configuration.PodShape()
	}
	switch {
	case p.o.Unsettled != nil:
		return nil
	case p.o.Run != nil:
		p.o.PlanInputs, p.o.Steps = p.o.Run.Cause.PlanInputs, stack.KnownSteps(p.o.Status)
		return nil
	case p.o.Deleting:
		if p.o.Dependents, err = ob.dependencies.dependents(ctx, p.dialect, p.obj); err == nil {
			err = ob.inspector.Inherit(ctx, p.subject())
		}
		switch stack.Reason(fault.Reason(err, "")) {
		case stack.StateNotAdopted, stack.StateFailed, gitstate.ReasonNoAccess: // a user has to say whose it is, or a git server does not answer
			p.o.Obstacle, err = obstacle(err), nil
		}
		if err == nil {
			err = ob.observeCorrection(ctx, p)
		}
		if err == nil {
			err = ob.observeSpent(ctx, p)
		}
		return err
	case p.o.Blocked != nil || p.o.Spec.Suspended:
		ob.checks.budgets.Drop(p.id) // nothing of it is checked until that is over
		return nil
	}
	ob.jobs.observeInputs(ctx, p)
	if p.o.Blocked == nil {
		p.o.Blocked = ob.snapshots.standIn(ctx, p)
	}
	if err := ob.gates.observe(ctx, p); err != nil {
		return err
	}
	if b := p.o.Blocked; b == nil || b.AwaitsInput() {
		if p.o.Waiting, err = ob.dependencies.firstNotReady(ctx, p); err != nil {
			return err
		}
	}
	if p.o.Blocked == nil {
		p.o.OtherDestroy = ob.otherDestroy(ctx, p)
		if p.o.Unwritten, err = ob.unwritten(ctx, p); err == nil {
			err = ob.observeSteps(ctx, p)
		}
	}
	if err == nil {
		err = ob.observeSpent(ctx, p)
	}
	if err == nil {
		err = ob.checks.observeBudget(ctx, p)
	}
	return err
}

// observeSteps finds which steps follow an apply, and what they would be given.
func (ob *observer) observeSteps(ctx context.Context, p *pass) error {
	p.o.Steps = nil
	if steps := p.st.Configuration.AfterApply; len(steps) > 0 {
		files, err := ob.steps.Digest(p.in.archive, p.o.PlanInputs.Source, p.st.Configuration.Path, steps)
		if err != nil {
			return fmt.Errorf("reading the files of the steps after an apply: %w", err)
		}
		outputs, err := ob.stepOutputs(ctx, p)
		if err != nil {
			return fmt.Errorf("reading the outputs for the steps after an apply: %w", err)
		}
		p.o.Steps = &stack.Steps{Digest: stack.Digest([]any{steps, files}), Outputs: outputs}
		if slices.ContainsFunc(steps, func(s afterapply.Step) bool { return s.Command != nil || s.Ansible != nil }) {
			p.o.Steps.Source = stack.Digest([]string{p.o.PlanInputs.Source, p.st.Configuration.Path})
		}
	}
	p.o.Status = stack.WithSteps(p.o.Status, p.o.Steps)
	return nil
}

// stepOutputs is a digest of the outputs that steps would be given. While their record is lost
// the outputs count as those that were known last: nothing says that they are others, and the
// next run that reads them writes the record again.
func (ob *observer) stepOutputs(ctx context.Context, p *pass) (string, error) {
	if seen := p.entry.stepOutputs; seen.digest != "" && seen.state == p.o.Status.State {
		return seen.digest, nil
	}
	b, err := ob.records.Get(ctx, record.Outputs(p.id))
	if reason := fault.Reason(err, ""); fault.Of(err) == fault.Missing || reason == blob.Damaged || reason == blob.KeyUnknown {
		known := ""
		if a := p.o.Status.AfterApply; a != nil {
			known = a.Outputs
		}
		return cmp.Or(known, ob.jobs.keyed("")), nil
	}
	if err != nil {
		return "", err
	}
	p.entry.stepOutputs = outputsSeen{p.o.Status.State, ob.jobs.keyed(string(b))}
	return p.entry.stepOutputs.digest, nil
}

// outputsSeen is a keyed digest of the outputs that belong to a state.
type outputsSeen struct{ state, digest string }

// otherDestroy reports whether the inputs differ from those of the last apply in nothing but
// the script that destroys, which the record of that apply has. Without the record the script
// that applies runs again.
func (ob *observer) otherDestroy(ctx context.Context, p *pass) bool {
	m := p.o.Status
	if p.st.Configuration.Script == nil || m.Snapshot == "" || m.Planned.Inputs == p.o.PlanInputs.Inputs {
		return false
	}
	before, err := record.SnapshotNamed[snapshot](p.id, m.Snapshot).Read(ctx, ob.blobs)
	if err != nil || before.Job.Script == nil {
		return false
	}
	s := before.Job.Script
	return stack.OtherDestroy(m, p.o.PlanInputs, p.in.DigestWith(stack.ScriptText{Text: string(s.Destroy), Path: s.DestroyPath, Args: s.DestroyArgs}))
}

// observeCorrection finds what a deleted stack is destroyed from, once a destroy has
// failed or a plan of it is pending: the record of the last apply, or what a user has
// changed since the deletion began. Where the state is does not change any more: a
// destroy with another backend would find nothing, and succeed.
func (ob *observer) observeCorrection(ctx context.Context, p *pass) error {
	if !p.o.Spec.DestroyLast || !p.o.Status.Created {
		return nil
	}
	p.o.Status = p.o.Status.WithDeletion()
	m := p.o.Status
	if m.Snapshot == "" || p.o.Blocked != nil || m.Failures == 0 && (m.Pending == nil || !m.Pending.Destroy) {
		return nil
	}
	applied, err := record.SnapshotNamed[snapshot](p.id, m.Snapshot).Read(ctx, ob.blobs)
	if err != nil {
		return nil //nolint:nilerr // the destroy that needs the record says what is wrong with it
	}
	ob.jobs.observeInputs(ctx, p)
	if p.o.Corrected = p.o.Blocked == nil && p.keepsState(applied.Note) && m.Corrects(p.o.PlanInputs, applied.PlanInputs); !p.o.Corrected {
		p.o.Blocked, p.o.PlanInputs, p.job, p.note, p.in = nil, applied.PlanInputs, nil, note{}, inputs{}
	}
	return nil
}

// keepsState reports whether a run that is made from what is there now has the state of
// the run that n is of. A module that declares its backend may have changed it, so that
// its state is not known to be the same.
func (p *pass) keepsState(n note) bool {
	return p.st.Configuration.Backend.Kind != stack.Declared && p.note.Backend == n.Backend && samePlace(p.note.State, n.State)
}

// samePlace reports whether two references are to one state, encrypted or not.
func samePlace(a, b *kube.StateRef) bool {
	if a == nil || b == nil {
		return a == b
	}
	x, y := *a, *b
	x.Encrypted, y.Encrypted = false, false
	return stack.Digest(x) == stack.Digest(y)
}

// observeInputs finds what a plan would be made from now, or says why it cannot.
func (jb *jobs) observeInputs(ctx context.Context, p *pass) {
	p.o.PlanInputs = stack.PlanInputs{Shape: p.st.Configuration.Shape()}
	if p.o.Blocked = p.findImports(); p.o.Blocked != nil {
		return
	}
	for _, step := range []func(context.Context, *pass) *stack.Blocked{jb.findSource, jb.findEngine, jb.findModule, jb.findInputs, jb.identifier.findIdentity, jb.buildJob} {
		if p.o.Blocked = step(ctx, p); p.o.Blocked != nil {
			return
		}
	}
	p.wantImage()
}

// unwritten reports whether the published outputs are gone or were changed.
func (ob *observer) unwritten(ctx context.Context, p *pass) (bool, error) {
	to, m := p.st.Configuration.Outputs, p.o.Status
	if to == nil || m.Published == "" {
		return false, nil
	}
	key := types.NamespacedName{Namespace: p.obj.GetNamespace(), Name: to.Secret}
	if ob.outputsUntouched(ctx, p.entry, key) {
		return false, nil
	}
	same, version, err := kube.OutputsIntact(ctx, ob.live, key)
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
func (ob *observer) outputsUntouched(ctx context.Context, e *entry, key types.NamespacedName) bool {
	if e.outputs.version == "" || e.outputs.secret != key.Name {
		return false
	}
	seen := &metav1.PartialObjectMetadata{}
	seen.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	return ob.cache.Get(ctx, key, seen) == nil && seen.ResourceVersion == e.outputs.version
}
