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
	fresh    bool // this pass tried to read the rows
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
	if l.obj.DeletionTimestamp != nil {
		return c.finish(ctx, l.obj)
	}
	if err := c.ensureFinalizer(ctx, l.obj, tenantsv1.RegistryFinalizer); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	l.before = l.obj.DeepCopy()
	l.memory = c.memory.of(l.obj, func() *remembered {
		return &remembered{uid: l.obj.UID, kept: map[string]bool{}, given: map[string]given{}}
	})
	return c.pass(ctx, l)
}

// pass takes the steps of the type's comment, and returns the time of the next one.
func (c *Registries) pass(ctx context.Context, l *registryPass) (ctrl.Result, error) {
	began := c.Now()
	if l.obj.Spec.Suspend {
		c.wake.listen(l.obj, nil)
		return ctrl.Result{}, c.status.suspended(ctx, l)
	}
	if !l.obj.Spec.DryRun && paused(l.before) {
		l.resume(began)
	}
	if c.reader.due(l) {
		c.reader.read(ctx, l)
	}
	if err := c.observe(ctx, l); err != nil {
		return ctrl.Result{}, err
	}
	l.step = tenant.Sync(l.known)
	var err error
	if !l.obj.Spec.DryRun {
		if err = c.allowed(ctx, l); err != nil {
			return ctrl.Result{}, err // no deletion before its audit entry
		}
		err = c.writer.apply(ctx, l)
	}
	switch reported := c.status.report(ctx, l); {
	case err == nil && apierrors.IsConflict(reported):
		return requeue, nil // another writer was faster
	case reported != nil:
		return ctrl.Result{}, errors.Join(err, client.IgnoreNotFound(reported))
	}
	c.metrics.passed(l, c.Now().Sub(began))
	if err != nil {
		return ctrl.Result{}, err
	}
	pause := max(l.memory.next.Sub(c.Now()), time.Millisecond)
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
	c.metrics.forget(key)
	c.wake.forget(key)
	if m != nil {
		c.Rows.Drop(string(m.uid))
	}
}

// finish deletes the Tenants of a registry that is being deleted, and then removes
// its finalizer. Protected Tenants stay, and keep their registry.
func (c *Registries) finish(ctx context.Context, obj *tenantsv1.TenantRegistry) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(obj, tenantsv1.RegistryFinalizer) {
		return ctrl.Result{}, nil
	}
	c.wake.listen(obj, nil)
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
		_, err := c.writer.remove(ctx, obj, gone, known)
		err = errors.Join(err, c.status.deleting(ctx, obj, len(list.Items), protected))
		return ctrl.Result{RequeueAfter: deletionCheck}, client.IgnoreNotFound(err)
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
