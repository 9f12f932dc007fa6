package controller

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/stack"
)

// load begins a pass: it reads the object, finds its entry and decodes both. There
// is no pass if there is nothing to be decided about the object.
func (c *Stacks) load(ctx context.Context, key types.NamespacedName) (*pass, ctrl.Result, error) {
	obj, cached, err := c.readObject(ctx, key)
	if err != nil {
		if client.IgnoreNotFound(err) != nil {
			return nil, ctrl.Result{}, err
		}
		wait, err := c.abandoned(ctx, key, "")
		return nil, ctrl.Result{RequeueAfter: wait}, err
	}
	id := string(obj.GetUID())
	if !obj.GetDeletionTimestamp().IsZero() && !controllerutil.ContainsFinalizer(obj, c.Dialect.Finalizer()) {
		c.Queue.Leave(id) // it was released, and the finalizer of another controller holds it
		return nil, ctrl.Result{}, nil
	}
	p := &pass{obj: obj, stale: cached, id: id, entry: c.index.make(id, key)}
	p.recheck = c.formerStacks(ctx, p.entry)
	if err := c.ensureFinalizer(ctx, obj); apierrors.IsConflict(err) {
		return nil, c.requeue(p.entry), nil // the other write may have changed nothing that wakes the stack
	} else if err != nil {
		return nil, ctrl.Result{}, client.IgnoreNotFound(err)
	}
	return p, ctrl.Result{}, c.decode(ctx, p)
}

// formerStacks looks after stacks whose objects had the name of this one before.
// It returns when to do so again, zero if there is no need. A failure is no reason
// to hold up the stack that has the name now.
func (c *Stacks) formerStacks(ctx context.Context, e *entry) time.Duration {
	wait, err := c.abandoned(ctx, e.key, e.id)
	if err != nil {
		c.Log.Warn("former stack not cleaned up", "stack", e.key.String(), "err", err)
		return runLook
	}
	return wait
}

// ensureFinalizer puts the finalizer on obj before anything is created for it.
func (c *Stacks) ensureFinalizer(ctx context.Context, obj client.Object) error {
	if !obj.GetDeletionTimestamp().IsZero() || slices.Contains(obj.GetFinalizers(), c.Dialect.Finalizer()) {
		return nil
	}
	before := obj.DeepCopyObject().(client.Object)
	obj.SetFinalizers(append(obj.GetFinalizers(), c.Dialect.Finalizer()))
	err := c.Live.Patch(ctx, obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(kube.FieldManager))
	if err == nil {
		c.index.wrote(obj)
	}
	return err
}

// decode begins the observation with what the object says.
func (c *Stacks) decode(ctx context.Context, p *pass) error {
	var err error
	p.st, err = c.Dialect.Decode(p.obj)
	p.o = stack.Observation{
		Now: c.Now(), Spec: p.st.Spec, Status: p.st.Status, Request: p.st.Request,
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
	return c.restoreStatus(ctx, p)
}
