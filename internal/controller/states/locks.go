package states

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Locker holds the states of stacks for their runs.
type Locker struct {
	Events       Events
	Store        Locks
	Runs         Runs
	Installation string // tells the runs of this installation from those of others
}

// Runs tells whether a run exists.
type Runs interface {
	Current(key string) (*runner.Report, error)
}

// Take takes the lock of the state for a run that writes. For a run that reads
// it only checks that the lock has no other holder.
func (lk *Locker) Take(ctx context.Context, of Subject, ref kube.StateRef, job *runner.Job, unlock string) error {
	if unlock != "" {
		if err := lk.Store.Unlock(ctx, ref, unlock); err != nil {
			return fmt.Errorf("breaking the lock %s: %w", unlock, err)
		}
	}
	if !job.Kind.Writes() && job.Options.NoLock {
		return nil
	}
	err := lk.tryTake(ctx, of, ref, job)
	held, ok := errors.AsType[*kube.LockedError](err)
	if !ok {
		return err
	}
	if dead, why := lk.dead(ctx, of, held.Holder); why != nil || !dead {
		return errors.Join(why, err)
	}
	if err := lk.Store.Unlock(ctx, ref, held.Holder.ID); err != nil {
		return fmt.Errorf("freeing the lock of a run that is gone: %w", err)
	}
	lk.Events.Event(of.Object, corev1.EventTypeNormal, "LockFreed", "The state lock of run "+held.Holder.ID+" of this stack was freed, because the run does not exist any more")
	if !job.Kind.Writes() {
		return nil
	}
	return lk.tryTake(ctx, of, ref, job)
}

// tryTake takes the lock of a state for a run that writes. For one that reads it
// only checks it. Either returns the other holder.
func (lk *Locker) tryTake(ctx context.Context, of Subject, ref kube.StateRef, job *runner.Job) error {
	if job.Kind.Writes() {
		return lk.Store.Lock(ctx, ref, kube.LockInfo{
			ID: job.ID, Operation: string(job.Kind), Info: "run " + job.ID, Who: "terrier " + job.Name, Version: job.Engine.Version, Holder: lk.holder(of.ID, job.ID),
		})
	}
	h, err := lk.Store.Holder(ctx, ref)
	if err != nil || h == nil || h.Holder.ID == job.ID && !lk.Foreign(of.ID, h.Holder) {
		return err
	}
	return fault.New(fault.Later, string(stack.LockedByOther), h)
}

// holder names a run in a lock, so that the lock of a run that ended can be told
// from a lock of another installation, whose runs are unknown here.
func (lk *Locker) holder(id, run string) string {
	return strings.Join([]string{lk.Installation, id, run}, "/")
}

// Foreign reports whether a lock is known to be held by another installation. Its
// runs may have the same names, since a name follows from the cause.
func (lk *Locker) Foreign(id string, l kube.LockInfo) bool {
	return l.Holder != "" && l.Holder != lk.holder(id, l.ID)
}

// dead reports whether a lock is held by a run of this stack and installation
// that does not exist any more. A run has a supervisor for as long as it has a
// record, and its record goes only after its lock was freed; so this is one
// whose start was interrupted. Any other lock belongs to another holder.
func (lk *Locker) dead(ctx context.Context, of Subject, l kube.LockInfo) (bool, error) {
	if l.Holder == "" || l.Holder != lk.holder(of.ID, l.ID) {
		return false, nil
	}
	report, err := lk.Runs.Current(of.ID)
	return err == nil && (report == nil || report.ID != l.ID), err
}
