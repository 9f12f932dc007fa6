package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/stack"
)

// runLook is how often a run that goes on is looked at, so that its state is
// stored as it goes; its end wakes the stack by itself.
const runLook = 20 * time.Second

// report is the only writer of status and events. It writes nothing when there
// is nothing new.
func (c *Stacks) report(ctx context.Context, p *pass, d stack.Decision, cause error) (ctrl.Result, error) {
	if p.wait == "" && p.o.Run == nil {
		c.Queue.Leave(p.id)
	}
	if _, gone := d.Action.(stack.Finish); gone && cause == nil && p.ended == nil {
		c.Log.Info("stack released", "stack", client.ObjectKeyFromObject(p.obj).String())
		return ctrl.Result{}, nil
	}
	if err := c.happened(ctx, p); err != nil {
		d, cause = p.unrecorded(err), nil
	}
	before := p.obj.DeepCopyObject().(client.Object)
	status := dialect.Report{
		Decision: d, Status: p.o.Status, PlanInputs: p.o.PlanInputs, Run: p.o.Run,
		Now: p.o.Now, Isolation: p.level, Ignored: p.st.Ignored, GlassDenied: p.glassDenied,
	}
	status.Inventory = c.inventory(ctx, p)
	if p.job != nil {
		status.Environment = slices.AppendSeq([]string{}, maps.Keys(p.in.resolved.Environment))
		slices.Sort(status.Environment)
	}
	status.Next, status.Every = p.o.Retry(d), p.o.Recheck(d)
	c.Dialect.Encode(p.obj, status)
	changed, err := differ(before, p.obj)
	if err != nil {
		return ctrl.Result{}, err
	}
	var debounce time.Duration
	if changed {
		debounce = c.statusDebounce(p, before)
	}
	if debounce == 0 {
		p.entry.debouncedAt = time.Time{}
	}
	if changed && debounce == 0 {
		if err := c.saveCheckpoint(ctx, p); err != nil {
			return ctrl.Result{}, err
		}
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		err := c.Live.Status().Patch(ctx, p.obj, patch, client.FieldOwner(kube.FieldManager))
		if apierrors.IsConflict(err) {
			return c.requeue(p.entry), nil // something else wrote the object; the run is not forgotten yet
		}
		if err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
		c.index.wrote(p.obj)
	}
	c.tell(p, d)
	c.decided(ctx, p, d)
	labels := c.writeLabels(ctx, p, d)
	if p.ended != nil {
		if err := c.Runner.Forget(p.id, p.ended.ID); err != nil {
			return ctrl.Result{}, err
		}
		if !p.over {
			return again, nil
		}
	}
	return sooner(debounce)(sooner(labels)(c.next(p, d, cause)))
}

// sooner looks again after a while at the latest, if that is not zero.
func sooner(after time.Duration) func(ctrl.Result, error) (ctrl.Result, error) {
	return func(r ctrl.Result, err error) (ctrl.Result, error) {
		if err == nil && after > 0 && (r.RequeueAfter == 0 || r.RequeueAfter > after) {
			r.RequeueAfter = after
		}
		return r, err
	}
}

// reportUnreadable says why nothing is done, and leaves the rest of the status
// as it is, for a person to mend.
func (c *Stacks) reportUnreadable(ctx context.Context, p *pass) (ctrl.Result, error) {
	before := p.obj.DeepCopyObject().(client.Object)
	c.Dialect.Encode(p.obj, dialect.Report{Unreadable: p.unreadable, Now: p.o.Now})
	if changed, err := differ(before, p.obj); err != nil || !changed {
		return ctrl.Result{}, err
	}
	err := c.Live.Status().Patch(ctx, p.obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(kube.FieldManager))
	if apierrors.IsConflict(err) {
		return c.requeue(p.entry), nil
	}
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

// differ reports whether a patch from one object to the other would say
// anything. Equal is what the API server would hold to be equal: it sorts the
// keys of the memory, and knows no difference between an empty list and none.
func differ(before, after client.Object) (bool, error) {
	if equality.Semantic.DeepEqual(before, after) {
		return false, nil
	}
	data, err := client.MergeFrom(before).Data(after)
	return err != nil || string(data) != "{}", err
}

// again is a look with fresh eyes, at once.
var again = ctrl.Result{RequeueAfter: time.Nanosecond}

// next says when to look at the stack again.
func (c *Stacks) next(p *pass, d stack.Decision, cause error) (ctrl.Result, error) {
	if fault.Of(cause) == fault.Conflict {
		return c.requeue(p.entry), nil
	}
	if cause != nil {
		return ctrl.Result{}, cause
	}
	switch a := d.Action.(type) {
	case stack.Wait:
		if p.o.Run != nil && (a.For == 0 || a.For > runLook) {
			return ctrl.Result{RequeueAfter: runLook}, nil
		}
		return ctrl.Result{RequeueAfter: a.For}, nil
	case stack.Start, stack.Apply, stack.Destroy, stack.Cancel:
		if p.o.Run == nil && p.wait == "" {
			return again, nil // decided by what this pass did, to be done in the next
		}
		if p.o.Run == nil {
			return ctrl.Result{}, nil // woken by the queue
		}
		return ctrl.Result{RequeueAfter: runLook}, nil
	default:
		return again, nil
	}
}

// tell makes events of what happened, once. A plan that is applied at once is
// told of by its apply.
func (c *Stacks) tell(p *pass, d stack.Decision) {
	defer c.tellChanges(p)
	r := p.ended
	if r == nil || r.ID == p.st.Status.LastRun {
		return
	}
	m := p.o.Status
	_, goesOn := d.Action.(stack.Apply)
	reason := c.Dialect.EventReason(*r)
	c.metrics.ended(p.obj.GetNamespace(), p.obj.GetName(), p.said, *r, reason)
	facts := runFacts(*r)
	switch {
	case r.Kind == stack.GlassRun:
		c.tellByHand(p, *m.ByHand)
	case r.Kind == stack.PreviewRun, r.Outcome == stack.Interrupted && !r.Kind.Writes():
	case r.Outcome == stack.Stale:
		c.say(p, normal, "PlanStale", "The plan was not applied: the state changed after it was made", facts)
	case r.Outcome != stack.Succeeded:
		message := fmt.Sprintf("%s (attempt %d): %s", r.Outcome, m.Failures, r.Message)
		if failsAnew(p.st.Status, m) {
			c.say(p, warning, reason, message, facts)
		} else {
			c.sayAgain(p, warning, reason, message)
		}
	case r.Kind == stack.DestroyRun:
		c.say(p, normal, reason, "Everything in the state was destroyed", facts)
	case r.Kind == stack.ApplyRun:
		c.say(p, normal, reason, "Applied "+r.Cause.Plan.Name+": "+r.Cause.Plan.Changes.String(), facts)
	case r.Plan != nil && r.Plan.Drift:
		if old := p.st.Status.Pending; old == nil || old.Digest != r.Plan.Digest {
			c.metrics.drifts.Inc()
			c.say(p, warning, reason, "Drift detected: "+r.Plan.Changes.String(), facts)
		}
	case r.Plan != nil && goesOn:
	case r.Plan != nil && !news(p.st.Status.Pending, r.Plan):
		c.sayAgain(p, normal, reason, "Planned "+r.Plan.Name+": "+r.Plan.Changes.String())
	case r.Plan != nil && awaits(p):
		c.say(p, normal, reason, "Plan pending: "+r.Plan.Name+" waits for approval: "+r.Plan.Changes.String(), facts)
	case r.Plan != nil:
		c.say(p, normal, reason, "Planned "+r.Plan.Name+": "+r.Plan.Changes.String(), facts)
	}
}
