package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// snapshots keep what a destroy is made from.
type snapshots struct {
	blobs   records.Blobs
	engine  func(ctx context.Context, name string) (engine.Engine, error)
	jobs    *jobs
	records *records.Store
}

// snapshot keeps everything that a later destroy needs, whether or not the
// source, the Secrets or the variables exist by then. It returns its key; the
// same inputs have the same key and are kept once.
func (sn *snapshots) snapshot(ctx context.Context, p *pass) (string, error) {
	key := record.Snapshot(p.id, stack.Digest([]any{p.o.PlanInputs, p.note.Backend, p.in.Credentials}))
	if p.o.Status.Snapshot == key {
		return key, nil
	}
	defer sn.records.Hold()()
	// The record comes before its archive: so the leader, which sweeps archives, sees it.
	made := snapshot{Job: *p.job, Note: p.note, PlanInputs: p.o.PlanInputs, Origin: p.in.origin, Revision: p.in.revision}
	if err := record.At[snapshot](key).Write(ctx, sn.blobs, made); err != nil {
		return "", err
	}
	if p.in.archive == "" {
		return key, nil
	}
	return key, sn.records.KeepTree(ctx, p.in.archive, p.o.PlanInputs.Source)
}

// snapshot is a job as it was when its plan was made.
type snapshot struct {
	Job        runner.Job
	Note       note
	PlanInputs stack.PlanInputs `json:"Basis"` // as records of before call it

	Origin   string `json:",omitempty"` // of the source: see inputs; earlier releases never say so
	Revision string `json:",omitempty"` // likewise
}

// sourceOf reads which archive a snapshot needs.
func (rm *removals) sourceOf(ctx context.Context, key string) (string, error) {
	s, err := record.At[snapshot](key).Read(ctx, rm.blobs)
	return s.PlanInputs.Source, err
}

// recall makes the pass's job from a snapshot. What can still be resolved now
// is preferred for credentials, which may have been renewed since.
func (sn *snapshots) recall(ctx context.Context, p *pass) error {
	if p.o.Corrected {
		return nil // the job is that of now
	}
	if p.o.Status.Snapshot == "" {
		return sn.improvise(ctx, p) // applied by another controller
	}
	s, err := record.At[snapshot](p.o.Status.Snapshot).Read(ctx, sn.blobs)
	if fault.Of(err) == fault.Missing {
		return sn.improvise(ctx, p) // the data directory was lost
	}
	if err != nil {
		return fmt.Errorf("reading the record of what was applied: %w", err)
	}
	return sn.restore(ctx, p, s)
}

// standIn puts what was applied before in the place of what is asked for, as long as the stack
// is rolled back. What is asked for is known, and ends the rollback if it is something else than
// what is bad.
func (sn *snapshots) standIn(ctx context.Context, p *pass) *stack.Blocked {
	asked := p.o.PlanInputs
	if p.in.imports != nil {
		asked.Shape = p.st.Configuration.Shape() // a repair asks for nothing else
	}
	p.o.Status = stack.WithRollback(p.o.Status, p.o.Spec, asked)
	b := p.o.Status.Rollback
	switch {
	case b == nil:
		return nil
	case p.in.imports != nil:
		return blockedBy(fault.New(fault.Invalid, "", fmt.Errorf("the stack is rolled back to %s, and a repair is of what the object asks for. End the rollback first: terrier rollback %s --end",
			b.To.PlanInputs.Revision, p.o.Spec.Words.Argument)), stack.StateIncomplete)
	}
	stuck := func(err error) *stack.Blocked {
		return blockedBy(fmt.Errorf("the stack is rolled back to %s, which cannot be planned: %w. To plan what the object asks for: terrier rollback %s --end", b.To.PlanInputs.Revision, err, p.o.Spec.Words.Argument), stack.SourceFailed)
	}
	s, err := record.At[snapshot](b.To.Snapshot).Read(ctx, sn.blobs)
	if err != nil {
		return stuck(fmt.Errorf("reading the record of its apply: %w", err))
	}
	if !p.keepsState(s.Note) {
		return stuck(fault.New(fault.Invalid, "", errors.New("its state was in another place")))
	}
	engine, now, mask, sandbox := p.o.PlanInputs.Engine, p.note, p.in.Mask, p.job.Sandbox
	if s.PlanInputs.Engine != engine { // the directory was initialised with another one
		s.Job.Options.InitKey = stack.Digest([]string{s.Job.Options.InitKey, engine})
	}
	if err := sn.restore(ctx, p, s); err != nil {
		return stuck(err)
	}
	// The place is the same; whether the state is encrypted, and what runs may reach, is decided now.
	p.note, p.job.Sandbox = now, sandbox
	p.o.PlanInputs, p.o.SourceAt = b.Inputs(engine), b.To.At
	p.in.Mask = slices.Concat(mask, s.Job.Mask)
	p.in.archive, p.wanted = "", nil // what is asked for is not what runs
	p.in.origin, p.in.revision = s.Origin, s.Revision
	if s.Job.Tree.Archive != "" {
		if p.in.archive, err = sn.records.Archives.Path(s.PlanInputs.Source); err != nil {
			return stuck(fmt.Errorf("finding its source: %w", err))
		}
	}
	p.wantImage()
	return nil
}

// restore makes the pass's job from a snapshot.
func (sn *snapshots) restore(ctx context.Context, p *pass, s snapshot) error {
	e, err := sn.engine(ctx, p.st.Configuration.Engine)
	if err != nil {
		return err
	}
	s.Job.Engine = engineOf(p.st.Configuration, e)
	if s.Job.Tree.Archive != "" { // in records of earlier releases it is a path
		s.Job.Tree.Archive = s.PlanInputs.Source
		if err := sn.records.RestoreTree(ctx, s.PlanInputs.Source); err != nil {
			return fmt.Errorf("restoring the source that was applied: %w", err)
		}
	}
	// Records of approved scripts name a plan, which they do not contain and no destroy needs.
	s.Job.Plan, s.Job.LockFile, s.Job.Lineage, s.Job.Serial = runner.Content{}, runner.Content{}, "", 0
	s.Job.Sandbox = sn.jobs.sandbox(s.Job.Sandbox.Network)
	s.Job.Limits = sn.jobs.limits(p.st.Configuration)
	if b := p.o.Blocked; s.Job.Pod == nil || b == nil || b.Reason != stack.SpecInvalid {
		s.Job.Pod = podOf(p) // a spec that cannot be read says nothing about it
	}
	if to, now := s.Job.Script, p.st.Configuration.Script; to != nil && len(to.Destroy) == 0 && to.DestroyPath == "" && now != nil {
		if err := sn.jobs.destroyScript(ctx, p, to); err != nil {
			return err
		}
	}
	p.note = s.Note
	sn.jobs.refresh(ctx, p, &s.Job)
	if b := s.Job.Backend; b != nil {
		sn.jobs.config.own(b, p.obj)
	}
	p.job, p.o.PlanInputs = &s.Job, s.PlanInputs
	return nil
}

// improvise makes the pass's job from the source and the inputs of now, since there is no
// record of the last apply. A state that we keep is compared with what is known of it before
// any run. One in a backend of the stack's own is not, and a destroy with another backend than
// that of the apply would find nothing, and succeed.
func (sn *snapshots) improvise(ctx context.Context, p *pass) error {
	lost := p.o.Status.Snapshot != ""
	if s := p.st.Configuration.Script; s != nil {
		p.st.Configuration.Script = &stack.Script{Destroy: s.Destroy} // the other may be gone, and is not needed
	}
	sn.jobs.observeInputs(ctx, p)
	switch b := p.o.Blocked; {
	case b != nil:
		return fault.New(b.Kind, "SnapshotMissing", fmt.Errorf(
			"the record of the last apply is missing, so source and inputs are needed to destroy the resources: %s; restore them, or annotate the stack with terrier.dev/deletion=retain to leave the resources", b.Message))
	case lost && p.note.State == nil:
		return fault.New(fault.Invalid, "SnapshotMissing", errors.New(
			"the record of the last apply is missing, which names the backend of the state: restore the data directory, or annotate the stack with terrier.dev/deletion=retain to leave the resources"))
	}
	p.o.Status.Snapshot, p.o.Status.DestroyScript = "", false
	return nil
}

// keepFor names in the cause of a run the record of what the run is made from. A deleted
// stack keeps the one of its last apply, and one that is rolled back has that of the good one.
func (sn *snapshots) keepFor(ctx context.Context, p *pass, cause *stack.Cause) error {
	if b := p.o.Status.Rollback; b != nil && !p.o.Deleting {
		cause.Snapshot = b.To.Snapshot
		return nil
	}
	if m := p.o.Status; p.o.Deleting && m.Snapshot != "" {
		cause.Snapshot, cause.DestroyScript = m.Snapshot, m.DestroyScript
		return nil
	}
	key, err := sn.snapshot(ctx, p)
	if err != nil {
		return fmt.Errorf("recording what the plan is made from: %w", err)
	}
	s := p.job.Script
	cause.Snapshot, cause.DestroyScript = key, s != nil && (len(s.Destroy) > 0 || s.DestroyPath != "")
	return nil
}
