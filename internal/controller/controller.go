// Package controller keeps stacks true: it observes an object and all that
// belongs to it, lets the core decide, carries out one action, and reports.
// Rules are not here, they are in package stack; neither is anything that knows
// how a run is isolated or where bytes are kept.
//
// Start reading at Stacks.Reconcile.
package controller

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/source"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Runner starts runs and finds them again.
type Runner interface {
	Start(ctx context.Context, job runner.Job) error
	Current(stack string) (*runner.Report, error)
	Cancel(ctx context.Context, stack, id string) error
	Forget(stack, id string) error
}

// Runs holds what runs left behind.
type Runs interface {
	Open(stack, id, file string) (io.ReadCloser, error)
	Remove(stack string) error
	List() ([]runner.Report, error) // of all stacks, those at work and those not forgotten
}

// Artifacts fetches the archives of sources, verified.
type Artifacts interface {
	Get(ctx context.Context, a source.Artifact) (path string, err error)
}

// States keeps states and their locks.
type States interface {
	Load(ctx context.Context, ref kube.StateRef) (kube.Stored, error)
	Save(ctx context.Context, ref kube.StateRef, owner kube.Owner, state []byte) error
	Locks
}

// Locks are the locks of states.
type Locks interface {
	Holder(ctx context.Context, ref kube.StateRef) (*kube.LockedError, error)
	Lock(ctx context.Context, ref kube.StateRef, info kube.LockInfo) error
	Unlock(ctx context.Context, ref kube.StateRef, id string) error
}

// Blobs is where records are kept.
type Blobs interface {
	Put(ctx context.Context, key string, r io.Reader) error
	Get(ctx context.Context, key string) (io.ReadCloser, error)
	Delete(ctx context.Context, key string) error
	List(ctx context.Context, prefix string) ([]string, error)
}

// Events tells people what happened to an object.
type Events interface {
	Event(obj client.Object, kind, reason, message string)
}

// Config is what an operator sets for all stacks.
type Config struct {
	CrossNamespace  bool     // sources and dependencies may be in another namespace
	TenantLabel     string   // whose value is the tenant of a stack; its namespace if empty or not set
	Network         string   // of runs that do not say: none or host
	HostNetwork     bool     // a stack may ask for the host's network although the default is none
	Mirror          string   // directory of providers, may be empty
	MirrorProviders []string // their addresses
	Writable        []string // host directories that runs may write
	MinLevel        int
	Glass           Glass
	NoReattach      bool // the engine starts providers itself, each time it needs one
	Limits          runner.Limits
	Patience        time.Duration // how long progress may go untold that nobody waits for; see Patience
	StackMetrics    bool          // a metric that upstream has by the names of stacks has them here, too
}

// Stacks reconciles the objects of one dialect.
type Stacks struct {
	Client    client.Client // reads kinds of stacks and sources from its cache
	Live      client.Client // reads everything from the server
	Dialect   dialect.Dialect
	Runner    Runner
	Runs      Runs
	Artifacts Artifacts
	Modules   *Modules
	States    States
	Blobs     Blobs
	Engine    func(ctx context.Context, name string) (engine.Engine, error)
	Events    Events
	Audit     Journal // nil records nothing
	Webhooks  Webhooks
	Queue     *schedule.Queue
	Config    Config
	Key       secret.Text // keys digests of inputs, so that a digest tells nothing about them
	Now       func() time.Time
	Log       *slog.Logger
	Metrics   prometheus.Registerer // nil counts for nobody

	kind     string       // of its objects, in the schedule
	records  sync.RWMutex // held for writing while records that nothing needs are dropped
	reviews  *reviewPool
	index    index
	requests requests

	newcomers schedule.Newcomers
	metrics   *metrics
}

// pass is one reconcile of one object.
type pass struct {
	obj   client.Object
	stale bool   // obj is a copy that the server may have a newer version of
	id    string // the stack: the object's UID
	entry *entry // what is remembered of it
	st    dialect.Stack
	o     stack.Observation
	job   *runner.Job // as far as it is known before the kind of run is
	note  note
	in    inputs
	ended *stack.Run     // a run that ended and was folded in
	over  bool           // what follows from that was done in this pass, too
	stuck error          // why a run that ended could not be folded in
	said  *runner.Report // what a run that ended said of itself

	glassDenied bool // somebody wants to work by hand where that is not allowed

	unreadable error  // why nothing can be decided
	unaudited  error  // why the audit log does not hold what people asked for
	level      string // isolation of the newest run
	wait       string // what a start waits for, if it does

	listed *dialect.Inventory // what a run of this pass left of a state that we do not keep
}

// Reconcile brings one stack one step further.
func (c *Stacks) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	c.newcomers.Reconciled(c.scheduleKey(req.NamespacedName))
	obj, cached, err := c.readObject(ctx, req.NamespacedName)
	if err != nil {
		if client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, err
		}
		wait, err := c.abandoned(ctx, req.NamespacedName, "")
		return ctrl.Result{RequeueAfter: wait}, err
	}
	if !obj.GetDeletionTimestamp().IsZero() && !controllerutil.ContainsFinalizer(obj, c.Dialect.Finalizer()) {
		// It was let go, and somebody else's finalizer holds it.
		c.Queue.Leave(string(obj.GetUID()))
		return ctrl.Result{}, nil
	}
	e := c.index.make(string(obj.GetUID()), req.NamespacedName)
	former, err := c.abandoned(ctx, req.NamespacedName, e.id)
	if err != nil { // which is no reason to hold up the stack that has the name now
		c.Log.Warn("former stack not cleaned up", "stack", req.String(), "err", err)
		former = runLook
	}
	if err := c.ensureFinalizer(ctx, obj); apierrors.IsConflict(err) {
		return c.requeue(e), nil // the other write may have changed nothing that wakes the stack
	} else if err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	p, err := c.observe(ctx, obj)
	if err != nil {
		c.Queue.Withdraw(string(obj.GetUID())) // it asks again once it can be read
		return ctrl.Result{}, err
	}
	p.stale = cached
	if p.unreadable != nil {
		c.Queue.Withdraw(p.id)
		return c.reportUnreadable(ctx, p)
	}
	c.auditRequests(ctx, p)
	d := stack.Decide(p.o)
	switch {
	case p.stuck != nil:
		d = stack.Decision{Action: stack.Wait{For: p.o.Spec.RetryEvery}, Ready: stack.Reconciling, Reason: stack.StateFailed, Message: p.stuck.Error(), Rule: d.Rule}
	case p.ended != nil:
		d, err = c.conclude(ctx, p, d)
	default:
		d, err = c.act(ctx, p, d)
	}
	return sooner(former)(c.report(ctx, p, d, err))
}

// conclude publishes what a run that ended has put out, so that one write of the
// status tells of both. Whoever is killed in between finds the run again, and
// then the outputs where they should be. Any other action begins only once the
// run is written down and forgotten.
func (c *Stacks) conclude(ctx context.Context, p *pass, d stack.Decision) (stack.Decision, error) {
	if _, publishes := d.Action.(stack.Publish); !publishes {
		return d, nil
	}
	if c.happened(ctx, p) != nil {
		return d, nil // nothing is shown before it is recorded; the report says why
	}
	p.over = true
	return c.act(ctx, p, d)
}

// ensureFinalizer puts our finalizer on obj before anything is created for it.
func (c *Stacks) ensureFinalizer(ctx context.Context, obj client.Object) error {
	if !obj.GetDeletionTimestamp().IsZero() {
		return nil
	}
	before := obj.DeepCopyObject().(client.Object)
	if !addFinalizer(obj, c.Dialect.Finalizer()) {
		return nil
	}
	err := c.Live.Patch(ctx, obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(kube.FieldManager))
	if err == nil {
		c.index.wrote(obj)
	}
	return err
}

func addFinalizer(obj client.Object, name string) bool {
	for _, f := range obj.GetFinalizers() {
		if f == name {
			return false
		}
	}
	obj.SetFinalizers(append(obj.GetFinalizers(), name))
	return true
}

// blockedBy turns an error into something to wait for.
func blockedBy(err error, reason stack.Reason) *stack.Blocked {
	return &stack.Blocked{Kind: fault.Of(err), Reason: reason, Message: err.Error()}
}

// Kinds of events.
const (
	normal  = corev1.EventTypeNormal
	warning = corev1.EventTypeWarning
)
