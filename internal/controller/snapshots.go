package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/terrier-iac/terrier/internal/controller/provenance"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/controller/sources"
	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/policy/guard"
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

	signatures provenance.Reader
}

// snapshot keeps everything that a later destroy needs, whether or not the
// source, the Secrets or the variables exist by then. It returns its key; the
// same inputs have the same key and are kept once.
func (sn *snapshots) snapshot(ctx context.Context, p *pass) (string, error) {
	key := snapshotKey(p)
	if wanting, err := sn.wanting(ctx, p, key); !wanting || err != nil {
		return key, err
	}
	return key, sn.write(ctx, p, key)
}

func snapshotKey(p *pass) string {
	return record.Snapshot(p.id, stack.Digest([]any{p.o.PlanInputs, p.note.Backend, p.in.Credentials}))
}

// wanting reports whether the record of the inputs of the pass is to be written: it is another
// one than that of the last apply, or that one was lost, or its source was signed since.
func (sn *snapshots) wanting(ctx context.Context, p *pass, key string) (bool, error) {
	seen := p.entry.applied
	if p.o.Status.Snapshot != key || seen.lacks != "" {
		return true, nil
	}
	if seen.key != key || seen.signature.Verified {
		return false, nil
	}
	now, err := sn.signature(ctx, p)
	return now.Verified, err
}

// signature is what is known now of the signature on the source of the pass.
func (sn *snapshots) signature(ctx context.Context, p *pass) (policy.Signature, error) {
	ref := p.st.Configuration.Source
	if ref == nil || p.in.artifact == "" {
		return policy.Signature{}, nil
	}
	of, err := sources.New(ref.Kind)
	if err == nil {
		err = sn.jobs.cache.Get(ctx, keyOf(*ref, p.obj), of)
	}
	if apierrors.IsNotFound(err) {
		return policy.Signature{}, nil
	}
	if err != nil {
		return policy.Signature{}, fmt.Errorf("reading the signature of the source: %w", err)
	}
	return sn.signatures.Of(of, p.in.revision, p.in.artifact), nil
}

func (sn *snapshots) write(ctx context.Context, p *pass, key string) error {
	defer sn.records.Hold()()
	by, err := sn.signature(ctx, p)
	if err != nil {
		return err
	}
	if was := p.entry.applied; was.key == key && was.signature.Verified {
		by = was.signature // of the same source
	}
	// The record comes before its archive: so the leader, which sweeps archives, sees it.
	made := snapshot{Job: *p.job, Note: p.note, PlanInputs: p.o.PlanInputs, Origin: p.in.origin, Revision: p.in.revision,
		Signature: by, Besides: p.st.Configuration.Besides()}
	if err := record.At[snapshot](key).Write(ctx, sn.blobs, made); err != nil {
		return err
	}
	if p.in.archive != "" {
		if err := sn.records.KeepTree(ctx, p.in.archive, p.o.PlanInputs.Source); err != nil {
			return err
		}
	}
	if key == p.o.Status.Snapshot {
		p.entry.applied = recordSeen{key: key, at: p.o.Now, signature: by}
	}
	return nil
}

// recordSeen is the record of the last apply as it was seen last.
type recordSeen struct {
	key   string    // of the record; empty if it was not looked for
	at    time.Time // when it was read
	lacks string    // what keeps a destroy from being made from it, after its name; empty if nothing does

	signature policy.Signature // on its source, as the record has it
}

// recordEvery is how often the record of the last apply is read. Nothing removes it while a
// controller runs, but operators may restore a backup; and each run that succeeds lists it.
const recordEvery = 24 * time.Hour

// look notices that the record of the last apply was lost, or the archive that it needs.
func (sn *snapshots) look(ctx context.Context, p *pass) error {
	m, seen := p.o.Status, &p.entry.applied
	if m.Snapshot == "" || !m.Created {
		*seen = recordSeen{}
		return nil
	}
	if seen.key == m.Snapshot && seen.lacks == "" && p.o.Now.Sub(seen.at) < recordEvery {
		return nil
	}
	s, err := record.SnapshotNamed[snapshot](p.id, m.Snapshot).Read(ctx, sn.blobs)
	is := recordSeen{key: m.Snapshot, at: p.o.Now, signature: s.Signature}
	switch {
	case fault.Of(err) == fault.Missing:
		is.lacks = "is missing"
	case unopened(err):
		is.lacks = "cannot be opened: " + err.Error()
	case err != nil:
		return fmt.Errorf("reading the record of what was applied: %w", err)
	case s.Job.Tree.Archive != "":
		has, err := sn.records.HasTree(ctx, s.PlanInputs.Source)
		if err != nil {
			return fmt.Errorf("looking for the source that was applied: %w", err)
		}
		if !has {
			is.lacks = "lacks the archive of its source " + s.PlanInputs.Revision
		}
	}
	*seen = is
	return nil
}

// rewrite writes the record of the last apply again that was lost, once the inputs of the pass
// are those that were applied, and one whose source was signed since. A pass that starts a run
// has another job than the record.
func (sn *snapshots) rewrite(ctx context.Context, p *pass) error {
	_, waits := p.decision.Action.(stack.Wait)
	o := p.o
	if !o.Status.Created || !waits || p.job == nil || o.Blocked != nil || o.Obstacle != nil || o.Queued != "" || o.Run != nil || o.Deleting || o.Status.Rollback != nil {
		return nil
	}
	key := snapshotKey(p)
	if p.entry.applied.lacks == "" && key != o.Status.Snapshot {
		return nil // a later apply has the record of its inputs
	}
	if key != o.Status.Snapshot && !stack.RecordFits(o.Status, o.PlanInputs, p.note.place()) {
		return nil
	}
	if wanting, err := sn.wanting(ctx, p, key); !wanting || err != nil {
		return err
	}
	p.o.Status = stack.WithRecordAgain(o.Status, o.PlanInputs, key, destroysByScript(p))
	if err := sn.write(ctx, p, key); err != nil {
		p.o.Status = o.Status // which does not name what may not be there
		return fmt.Errorf("writing the record of the last apply again: %w", err)
	}
	return nil
}

// destroysByScript reports whether the job of the pass has a script that destroys the resources.
func destroysByScript(p *pass) bool {
	s := p.job.Script
	return s != nil && (len(s.Destroy) > 0 || s.DestroyPath != "")
}

// recordLacks is what is known of the record of the last apply, for the status: what is wrong
// with it, nil if that is not known.
func (p *pass) recordLacks() *string {
	switch m := p.o.Status; {
	case m.Snapshot == "" || !m.Created:
		return new("")
	case p.entry.applied.key != m.Snapshot:
		return nil
	default:
		return new(p.entry.applied.lacks)
	}
}

// snapshot is a job as it was when its plan was made.
type snapshot struct {
	Job        runner.Job
	Note       note
	PlanInputs stack.PlanInputs `json:"Basis"` // as records of before call it

	Origin   string `json:",omitempty"` // of the source: see inputs; earlier releases never say so
	Revision string `json:",omitempty"` // likewise

	Signature policy.Signature `json:",omitzero"`  // on the source, as far as it was verified by then; likewise
	Besides   []string         `json:",omitempty"` // code that is not in the source: see stack.Configuration; likewise
}

// Recorded returns what reads of the record of an apply what was applied, and what was known of
// the signature on it. A record that does not open says nothing.
func Recorded(blobs records.Blobs) func(ctx context.Context, uid, key string) (guard.Origin, error) {
	return func(ctx context.Context, uid, key string) (guard.Origin, error) {
		s, err := record.SnapshotNamed[snapshot](uid, key).Read(ctx, blobs)
		if unopened(err) {
			return guard.Origin{}, nil
		}
		return guard.Origin{Revision: s.PlanInputs.Revision, Artifact: s.PlanInputs.Source, Signature: s.Signature, Besides: s.Besides}, err
	}
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
	s, err := record.SnapshotNamed[snapshot](p.id, p.o.Status.Snapshot).Read(ctx, sn.blobs)
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
	s, err := record.SnapshotNamed[snapshot](p.id, b.To.Snapshot).Read(ctx, sn.blobs)
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
	cause.Snapshot, cause.DestroyScript = key, destroysByScript(p)
	return nil
}
