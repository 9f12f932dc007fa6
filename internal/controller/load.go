package controller

import (
	"context"
	"log/slog"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/stack"
)

// loader begins passes.
type loader struct {
	blobs    records.Blobs
	cache    client.Client
	events   Events
	live     client.Client
	log      *slog.Logger
	now      func() time.Time
	queue    *schedule.Queue
	index    *index
	removals *removals
}

// load begins a pass: it reads the object, finds its entry and decodes both. There
// is no pass if there is nothing to be decided about the object.
//
// It also writes: it ends stacks whose objects are gone (removals), and puts the
// finalizer on an object that has none.
func (ld *loader) load(ctx context.Context, of objectRef) (*pass, ctrl.Result, error) {
	obj, cached, err := ld.readObject(ctx, of)
	if err != nil {
		if client.IgnoreNotFound(err) != nil {
			return nil, ctrl.Result{}, err
		}
		wait, err := ld.removals.abandoned(ctx, of, "")
		return nil, ctrl.Result{RequeueAfter: wait}, err
	}
	id := string(obj.GetUID())
	if !obj.GetDeletionTimestamp().IsZero() && !controllerutil.ContainsFinalizer(obj, of.dialect.Finalizer()) {
		ld.queue.Leave(id) // it was released, and the finalizer of another controller holds it
		return nil, ctrl.Result{}, nil
	}
	p := &pass{dialect: of.dialect, obj: obj, stale: cached, id: id, entry: ld.index.make(id, of)}
	p.recheck = ld.formerStacks(ctx, p.entry)
	if err := ld.ensureFinalizer(ctx, of, obj); apierrors.IsConflict(err) {
		return nil, ld.requeue(p.entry), nil // the other write may have changed nothing that wakes the stack
	} else if err != nil {
		return nil, ctrl.Result{}, client.IgnoreNotFound(err)
	}
	return p, ctrl.Result{}, ld.decode(ctx, p)
}

// formerStacks looks after stacks whose objects had the name of this one before.
// It returns when to do so again, zero if there is no need. A failure is no reason
// to hold up the stack that has the name now.
func (ld *loader) formerStacks(ctx context.Context, e *entry) time.Duration {
	wait, err := ld.removals.abandoned(ctx, e.objectRef, e.id)
	if err != nil {
		ld.log.Warn("former stack not cleaned up", "stack", e.objectRef.String(), "err", err)
		return runInterval
	}
	return wait
}

// ensureFinalizer puts the finalizer on obj before anything is created for it.
func (ld *loader) ensureFinalizer(ctx context.Context, of objectRef, obj client.Object) error {
	if !obj.GetDeletionTimestamp().IsZero() || slices.Contains(obj.GetFinalizers(), of.dialect.Finalizer()) {
		return nil
	}
	before := obj.DeepCopyObject().(client.Object)
	obj.SetFinalizers(append(obj.GetFinalizers(), of.dialect.Finalizer()))
	err := ld.live.Patch(ctx, obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(kube.FieldManager))
	if err == nil {
		ld.index.wrote(of, obj)
	}
	return err
}

// decode begins the observation with what the object says.
func (ld *loader) decode(ctx context.Context, p *pass) error {
	var err error
	p.st, err = p.dialect.Decode(p.obj)
	p.o = stack.Observation{
		Now: ld.now(), Spec: p.st.Spec, Status: p.st.Status, Replan: p.st.Replan,
		Deleting: !p.obj.GetDeletionTimestamp().IsZero(),
	}
	switch fault.Of(err) {
	case fault.None:
		p.o.Status = p.o.Status.WithoutOldFailure(p.o.Spec)
	case fault.Invalid, fault.Denied:
		p.o.Blocked = blockedBy(err, stack.SpecInvalid)
	default:
		p.unreadable, p.o.Unreadable = err, err.Error()
		return nil
	}
	return ld.restoreStatus(ctx, p)
}
