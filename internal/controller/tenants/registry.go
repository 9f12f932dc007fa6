package tenants

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/tenant"
	"github.com/terrier-iac/terrier/internal/tenantapi"
)

// Registries reconciles the Tenant objects of each registry with its rows. A pass
// over one is:
//
//	read     the rows, if it is time to                      registry_read.go
//	observe  Tenants and templates                           registry_observe.go
//	decide   tenant.Sync
//	act      create, change and delete Tenants               registry_act.go
//	report   status, conditions, events, metrics             registry_report.go
//
// Most passes do not read: a Tenant became ready, a template changed. They decide
// with the rows of the last read.
type Registries struct {
	Options

	cache     client.Client // of the kinds of tenants
	templates *templates
	metrics   *registryMetrics
	wake      *wake
	memory    objects[remembered]

	reader rowReader
	writer tenantWriter
	status registryStatus
	passes *passes
}

// remembered is kept for one registry between passes. All of it can be lost: the
// next pass reads the rows then.
type remembered struct {
	uid        types.UID
	generation int64 // of the registry when it was read last

	read  tenant.Read // the last complete one
	err   error       // of the last attempt; nil if it was complete
	next  time.Time   // when to read again
	fails int
	asked string // the requests of users at the last read
	sync  string // the request for a read that the last complete one answers

	permit string // the permission for deletions when the last read began; empty for none
	byRows string // the token of the blocked deletions, if the last complete read asks for some of them
	knows  bool   // byRows is known: this process had a complete read

	reading *reading // that goes on beside the passes; nil if none does
	slow    bool     // the last one did not end within the patience of its pass

	allowed   *tenant.Blocked // what a user has allowed at the last read; nil for nothing
	allowedAt time.Time       // the time of that read

	mu    sync.Mutex
	now   bool             // the database notified Terrier of a change
	kept  map[string]bool  // Tenants whose rows this process has written
	given map[string]given // what this process has given each Tenant last

	refused map[string]refusal // Tenants that the API server refused, by name
}

// registryPass is one pass over one registry.
type registryPass struct {
	obj      *tenantsv1.TenantRegistry
	before   *tenantsv1.TenantRegistry
	memory   *remembered
	fresh    bool // this pass has the result of a read
	waiting  bool // a read goes on, so that the rows are unknown
	queued   bool // or it has to wait for others of its namespace
	again    bool // another read is due already
	known    tenant.Known
	tenants  map[string]*tenantsv1.Tenant // of this registry, by name; without resources
	specs    map[string]*tenantsv1.TenantTemplate
	step     tenant.Step
	failures []tenant.RowError // Tenants that could not be written
	said     announced
}

func (c *Registries) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	l := &registryPass{obj: &tenantsv1.TenantRegistry{}}
	if err := c.Live.Get(ctx, req.NamespacedName, l.obj); err != nil {
		if apierrors.IsNotFound(err) {
			c.forget(req.NamespacedName)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, err
	}
	result, err := c.once(ctx, l)
	return c.passes.ended(ctx, l.obj, result, err, asItIs)
}

// once is one pass, or one step of a deletion.
func (c *Registries) once(ctx context.Context, l *registryPass) (ctrl.Result, error) {
	if l.obj.DeletionTimestamp != nil {
		return c.finish(ctx, l.obj)
	}
	if err := c.ensureFinalizer(ctx, l.obj, tenantsv1.RegistryFinalizer); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	l.before = l.obj.DeepCopy()
	l.memory = c.remembers(l.obj)
	return c.pass(ctx, l)
}

// remembers is what is kept for a registry.
func (c *Registries) remembers(obj *tenantsv1.TenantRegistry) *remembered {
	return c.memory.of(obj, func() *remembered {
		return &remembered{uid: obj.UID, kept: map[string]bool{}, given: map[string]given{}}
	})
}

// pass takes the steps of the type's comment, and returns the time of the next one.
func (c *Registries) pass(ctx context.Context, l *registryPass) (ctrl.Result, error) {
	began := c.Now()
	if l.obj.Spec.Suspend {
		c.reader.drop(l.memory)
		c.reader.beside.withdraw(client.ObjectKeyFromObject(l.obj))
		c.wake.listen(l.obj, nil)
		return ctrl.Result{}, c.status.suspended(ctx, l)
	}
	if !l.obj.Spec.DryRun && paused(l.before) {
		c.reader.drop(l.memory)
		l.resume(began)
	}
	c.reader.read(ctx, l)
	if err := c.observe(ctx, l); err != nil {
		return ctrl.Result{}, err
	}
	l.step = tenant.Sync(l.known)
	if l.step.Allowed {
		l.memory.allowed, l.memory.allowedAt = l.known.Blocked, l.memory.read.Time
	}
	var err error
	if !l.obj.Spec.DryRun {
		if err = c.allowed(ctx, l); err != nil {
			return ctrl.Result{}, err // no deletion before its audit entry
		}
		err = c.writer.apply(ctx, l)
	}
	switch unreported := c.status.report(ctx, l); {
	case err == nil && apierrors.IsConflict(unreported):
		return requeue, nil // another writer was faster
	case unreported != nil:
		return ctrl.Result{}, errors.Join(err, client.IgnoreNotFound(unreported))
	}
	if r := l.memory.read; l.fresh && l.memory.err == nil && r.Time.Before(began) {
		began = r.Time // the read began beside an earlier pass
	}
	c.metrics.passed(l, c.Now().Sub(began))
	if err != nil {
		return ctrl.Result{}, reported{err} // in status.rowErrors
	}
	pause := max(l.memory.next.Sub(c.Now()), time.Millisecond)
	switch {
	case l.queued:
		pause = readTurn
	case l.waiting:
		pause = longestRead // its end wakes the registry
	case l.again:
		pause = time.Millisecond
	}
	if a := l.attempts(c.Now()); a > 0 {
		pause = min(pause, a)
	}
	if a := l.step.Again; a > 0 && a < pause {
		// A grace period can only end with a read; a deadline of a rollout needs none.
		pause = a
		if l.step.Leaving > 0 && l.memory.err == nil {
			l.memory.next = c.Now().Add(a)
		}
	}
	return ctrl.Result{RequeueAfter: pause}, nil
}

// paused reports whether the last pass was one of a suspended registry, or a dry run.
func paused(obj *tenantsv1.TenantRegistry) bool {
	r := meta.FindStatusCondition(obj.Status.Conditions, conditionReady)
	return obj.Status.DryRun != nil || r != nil && r.Reason == reasonSuspended
}

// resume begins after a pause: with a new read of the rows, and without the
// departures that were marked before.
func (l *registryPass) resume(now time.Time) {
	l.memory.read, l.memory.next = tenant.Read{}, time.Time{}
	l.obj.Status.DeparturesFrom = &metav1.Time{Time: now.UTC().Truncate(time.Second)}
}

// forget drops everything that is kept for a registry that is gone.
func (c *Registries) forget(key types.NamespacedName) {
	m := c.memory.forget(key)
	c.passes.outages.over(key)
	c.reader.beside.withdraw(key)
	c.metrics.forget(key)
	c.wake.forget(key)
	if m != nil {
		c.end(m)
	}
}

// end stops the read of a registry that is gone, and closes its connections. Another
// registry may have its name since.
func (c *Registries) end(m *remembered) {
	c.reader.drop(m)
	c.Rows.Drop(string(m.uid))
}

// finish deletes the Tenants of a registry that is being deleted, and then removes
// its finalizer. Protected Tenants stay, and keep their registry.
func (c *Registries) finish(ctx context.Context, obj *tenantsv1.TenantRegistry) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(obj, tenantsv1.RegistryFinalizer) {
		return ctrl.Result{}, nil
	}
	if err := c.inBackground(ctx, obj); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	c.wake.listen(obj, nil)
	c.reader.beside.withdraw(client.ObjectKeyFromObject(obj))
	if m := c.memory.get(client.ObjectKeyFromObject(obj)); m != nil {
		c.reader.drop(m)
	}
	// Read from the server: a stale cache would miss Tenants that were just created.
	var list tenantsv1.TenantList
	if err := c.Live.List(ctx, &list, client.InNamespace(obj.Namespace), client.MatchingLabels{tenantsv1.LabelRegistry: tenant.Label(obj.Name)}); err != nil {
		return ctrl.Result{}, err
	}
	protecting, err := c.protecting(ctx, obj)
	if err != nil {
		return ctrl.Result{}, err
	}
	known := map[string]*tenantsv1.Tenant{}
	var gone []tenant.Removal
	var protected []string
	for i := range list.Items {
		t := tenantapi.Existing(&list.Items[i])
		known[t.Name] = &list.Items[i]
		switch {
		case t.Deleting:
		case t.Protected || protecting[t.Template]:
			protected = append(protected, t.Name)
		default:
			gone = append(gone, tenant.Removal{Name: t.Name, UID: t.UID, Reason: registryDeleted})
		}
	}
	if len(list.Items) > 0 {
		stay, err := c.writer.remove(ctx, obj, gone, known)
		if unreported := c.status.deleting(ctx, obj, len(list.Items), protected, stay); client.IgnoreNotFound(unreported) != nil {
			return ctrl.Result{}, errors.Join(err, unreported)
		}
		if err != nil {
			return ctrl.Result{}, reported{err}
		}
		return ctrl.Result{RequeueAfter: deletionCheck}, nil
	}
	if err := c.record(ctx, obj, tenantsv1.RegistryKind, auditEntry{Entry: audit.Entry{What: audit.Deleted}}); err != nil {
		return ctrl.Result{}, err
	}
	if err := c.removeFinalizer(ctx, obj, tenantsv1.RegistryFinalizer); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	c.Events.Event(obj, corev1.EventTypeNormal, "TenantDeleted", "All tenants of the registry are gone")
	c.forget(client.ObjectKeyFromObject(obj))
	return ctrl.Result{}, nil
}

// registryDeleted is why a Tenant of a deleted registry is deleted.
const registryDeleted = "RegistryDeleted"

// deletionCheck is how often a deletion is checked; the end of each Tenant also
// wakes its registry.
const deletionCheck = 30 * time.Second

// protecting are the templates of a registry whose tenants are protected.
func (c *Registries) protecting(ctx context.Context, obj *tenantsv1.TenantRegistry) (map[string]bool, error) {
	var list tenantsv1.TenantTemplateList
	if err := c.Live.List(ctx, &list, client.InNamespace(obj.Namespace)); err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for i := range list.Items {
		if t := &list.Items[i]; t.Spec.RegistryID == obj.Name && protects(t) {
			names[t.Name] = true
		}
	}
	return names, nil
}

// protects reports whether a template protects its tenants against deletion.
func protects(t *tenantsv1.TenantTemplate) bool {
	return t.Spec.DeletionProtection || tenantapi.Protected(t.Annotations)
}
