package controller

import (
	"context"
	"log/slog"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
)

// claimer makes objects the controller's own.
type claimer struct {
	cache    client.Reader
	live     client.Client
	log      *slog.Logger
	index    *index
	removals *removals
	jobs     *jobs
}

// claim ends former stacks of the object's name, and puts the finalizer on the
// object before anything is created for it: its source, if the object owns that. It is a Conflict if something else wrote
// the object meanwhile: that write may have changed nothing that wakes the stack.
func (cl *claimer) claim(ctx context.Context, p *pass) error {
	p.recheckIn(cl.formerStacks(ctx, p.entry))
	if err := cl.ensureFinalizer(ctx, p); err != nil {
		return err
	}
	return cl.ensureOwned(ctx, p)
}

// formerStacks looks after stacks whose objects had the name of this one before.
// It returns when to do so again, zero if there is no need. A failure is no reason
// to hold up the stack that has the name now.
func (cl *claimer) formerStacks(ctx context.Context, e *entry) time.Duration {
	wait, err := cl.removals.abandoned(ctx, e.objectRef, e.id)
	if err != nil {
		cl.log.Warn("former stack not cleaned up", "stack", e.objectRef.String(), "err", err)
		return runInterval
	}
	return wait
}

// ensureFinalizer puts the finalizer on the object of a pass if it has none.
func (cl *claimer) ensureFinalizer(ctx context.Context, p *pass) error {
	obj, finalizer := p.obj, p.dialect.Finalizer()
	if !obj.GetDeletionTimestamp().IsZero() || slices.Contains(obj.GetFinalizers(), finalizer) {
		return nil
	}
	before := obj.DeepCopyObject().(client.Object)
	obj.SetFinalizers(append(obj.GetFinalizers(), finalizer))
	err := cl.live.Patch(ctx, obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(kube.FieldManager))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return fault.New(fault.Conflict, "ObjectChanged", err)
	}
	if err == nil {
		cl.index.wrote(p.entry.objectRef, obj)
	}
	return err
}
