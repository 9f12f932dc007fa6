package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/input"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// locks holds the states of stacks for their runs.
type locks struct {
	events Events
	runner runner.Runner
	store  States
	jobs   *jobs
}

// takeLock takes the lock of the state for a run that writes. For a run that reads
// it only checks that the lock has no other holder.
func (lk *locks) takeLock(ctx context.Context, p *pass, ref kube.StateRef, kind stack.RunKind, unlock string) error {
	job := p.job
	if unlock != "" {
		if err := lk.store.Unlock(ctx, ref, unlock); err != nil {
			return fmt.Errorf("breaking the lock %s: %w", unlock, err)
		}
	}
	if !kind.Writes() && job.Options.NoLock {
		return nil
	}
	err := lk.claim(ctx, p, ref, kind)
	held, ok := errors.AsType[*kube.LockedError](err)
	if !ok {
		return err
	}
	if dead, why := lk.dead(ctx, p, held.Holder); why != nil || !dead {
		return errors.Join(why, err)
	}
	if err := lk.store.Unlock(ctx, ref, held.Holder.ID); err != nil {
		return fmt.Errorf("freeing the lock of a run that is gone: %w", err)
	}
	lk.events.Event(p.obj, normal, "LockFreed", "The state lock of run "+held.Holder.ID+" of this stack was freed, because the run does not exist any more")
	if !kind.Writes() {
		return nil
	}
	return lk.claim(ctx, p, ref, kind)
}

// claim takes the lock of a state for a run that writes. For one that reads it
// only checks it. Either returns the other holder.
func (lk *locks) claim(ctx context.Context, p *pass, ref kube.StateRef, kind stack.RunKind) error {
	job := p.job
	if kind.Writes() {
		return lk.store.Lock(ctx, ref, kube.LockInfo{
			ID: job.ID, Operation: string(kind), Info: "run " + job.ID, Who: "terrier " + job.Name, Version: job.Engine.Version, Holder: lk.holder(p.id, job.ID),
		})
	}
	h, err := lk.store.Holder(ctx, ref)
	if err != nil || h == nil || h.Holder.ID == job.ID && !lk.foreign(p, h.Holder) {
		return err
	}
	return fault.New(fault.Later, string(stack.LockedByOther), h)
}

// holder names a run in a lock, so that a lock that was left behind can be told
// from one of another installation, whose runs are out of sight.
func (lk *locks) holder(id, run string) string {
	return strings.Join([]string{lk.jobs.keyed("installation")[len(input.DigestPrefix):][:16], id, run}, "/")
}

// foreign reports whether a lock is known to be held by another installation. Its
// runs may have the same names, since a name follows from the cause.
func (lk *locks) foreign(p *pass, l kube.LockInfo) bool {
	return l.Holder != "" && l.Holder != lk.holder(p.id, l.ID)
}

// dead reports whether a lock is held by a run of this stack and installation
// that does not exist any more. A run has a supervisor for as long as it has a
// record, and its record goes only after its lock was freed; so this is one
// whose start was interrupted. Any other lock belongs to another holder.
func (lk *locks) dead(ctx context.Context, p *pass, l kube.LockInfo) (bool, error) {
	if l.Holder == "" || l.Holder != lk.holder(p.id, l.ID) {
		return false, nil
	}
	report, err := lk.runner.Current(p.id)
	return err == nil && (report == nil || report.ID != l.ID), err
}

// locked records the state lock of another holder, as a run that met it would
// have.
func (lk *locks) locked(p *pass, kind stack.RunKind, cause stack.Cause, err error) error {
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
