package tenants

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/controller/sources"
	"github.com/terrier-iac/terrier/internal/kube/children"
	"github.com/terrier-iac/terrier/internal/rows"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/tenant"
	"github.com/terrier-iac/terrier/internal/tenantapi"
)

// Rows reads the tables of registries.
type Rows interface {
	Read(ctx context.Context, key string, c rows.Config, columns []string) (tenant.Snapshot, error)
	Listen(ctx context.Context, key string, c rows.Config, notify func()) error
	Drop(key string)
}

// Inventories reads the directories of tenants in the artifacts of sources.
type Inventories interface {
	// Read returns all tenants of an inventory as rows; more than most are an error. An
	// artifact that cannot be read, or lacks the directory, is an error and no rows.
	Read(ctx context.Context, obj *tenantsv1.TenantRegistry, most int) (tenant.Snapshot, error)
}

// Events writes events about objects.
type Events interface {
	Event(obj client.Object, kind, reason, message string)
}

// Options are what the reconcilers need.
type Options struct {
	Live     client.Client     // reads everything from the server
	Children *children.Cluster // the objects of tenants
	Rows     Rows
	Events   Events

	Inventories Inventories           // nil reads none
	Audit       AuditLog              // nil records nothing
	Stamps      Stamps                // nil believes all
	Metrics     prometheus.Registerer // nil for none

	Key        secret.Text // keys the digests of rows
	SQLiteDirs []string    // absolute directories with files that registries may use
	Namespaces []string    // patterns of namespaces that tenants may write to besides their own; * allows all, and cluster-scoped objects

	RegistryWorkers, TemplateWorkers, TenantWorkers int // 3, 5 and 10 if zero

	Now func() time.Time
	Log *slog.Logger
}

// Indexes of the cache.
const (
	indexRegistry  = "terrier.registry"  // of TenantTemplates: registryId
	indexTemplate  = "terrier.template"  // of Tenants: templateRef
	indexInventory = "terrier.inventory" // of TenantRegistries: Kind/name of the source
)

// Concurrent reconciles, as in Tenant Operator.
const (
	registryWorkers = 3
	templateWorkers = 5
)

// wakeDelay is how long registries and templates wait for more Tenants to change: a
// thousand that become ready cause a few passes.
const wakeDelay = time.Second

// Setup makes mgr run all three reconcilers.
func Setup(mgr ctrl.Manager, o Options) error {
	if err := setupRows(mgr, o); err != nil {
		return err
	}
	kinds, err := discover(mgr.GetConfig())
	if err != nil {
		return err
	}
	tenants, err := newTenants(o, kinds)
	if err != nil {
		return err
	}
	return tenants.SetupWithManager(mgr)
}

// setupRows makes mgr run the reconcilers that turn rows into Tenants.
func setupRows(mgr ctrl.Manager, o Options) error {
	ctx := context.Background() // all this is done before the manager starts
	indexes := mgr.GetFieldIndexer()
	err := errors.Join(
		indexes.IndexField(ctx, &tenantsv1.TenantTemplate{}, indexRegistry, func(o client.Object) []string {
			return []string{o.(*tenantsv1.TenantTemplate).Spec.RegistryID}
		}),
		indexes.IndexField(ctx, &tenantsv1.Tenant{}, indexTemplate, func(o client.Object) []string {
			return []string{o.(*tenantsv1.Tenant).Spec.TemplateRef}
		}),
		indexes.IndexField(ctx, &tenantsv1.TenantRegistry{}, indexInventory, inventorySource))
	if err != nil {
		return err
	}
	shared := &templates{checked: map[types.UID]checked{}}
	kept := &revisions{live: o.Live, kept: map[types.UID]int64{}}
	registries, err := newRegistries(mgr.GetClient(), o, shared, kept)
	if err != nil {
		return err
	}
	return errors.Join(
		mgr.Add(manager.RunnableFunc(registries.wake.Run)),
		mgr.Add(manager.RunnableFunc(registries.reader.beside.Run)),
		registries.SetupWithManager(mgr),
		newTemplates(mgr.GetClient(), o, shared, kept).SetupWithManager(mgr))
}

func newTemplates(cache client.Client, o Options, shared *templates, kept *revisions) *Templates {
	return &Templates{
		Options: o, cache: cache, templates: shared, revisions: kept,
		passes: &passes{Options: o, fresh: freshTemplate, conditions: conditionsOfTemplate, says: map[string]bool{conditionApplied: false}},
	}
}

func newRegistries(cache client.Client, o Options, shared *templates, kept *revisions) (*Registries, error) {
	m, err := newRegistryMetrics(o.Metrics)
	if err != nil {
		return nil, err
	}
	c := &Registries{
		Options: o, cache: cache, templates: shared, metrics: m, writer: tenantWriter{o, kept}, status: registryStatus{o},
		passes: &passes{Options: o, fresh: freshRegistry, conditions: conditionsOfRegistry, says: map[string]bool{conditionReady: false}},
	}
	c.wake = &wake{rows: o.Rows, notify: c.notify, log: o.Log, changed: make(chan struct{}, 1), wanted: map[types.NamespacedName]channel{}}
	c.reader = rowReader{o, m, c.wake, newBeside(c.wake.again)}
	c.memory.replaced = c.end
	return c, nil
}

// Slim drops the copy of the template from a cached Tenant, which is most of it. A
// reconciler that needs it reads it from the server.
func Slim(o any) (any, error) {
	t, ok := o.(*tenantsv1.Tenant)
	if !ok {
		return o, nil
	}
	t.ManagedFields = nil
	t.Spec.Resources = tenantsv1.Resources{}
	delete(t.Annotations, corev1.LastAppliedConfigAnnotation)
	return t, nil
}

// SetupWithManager makes mgr run c.
func (c *Registries) SetupWithManager(mgr ctrl.Manager) error {
	changed := builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))
	b := ctrl.NewControllerManagedBy(mgr).Named("tenantregistries").
		For(&tenantsv1.TenantRegistry{}, changed). // not its own status
		Watches(&tenantsv1.TenantTemplate{}, handler.EnqueueRequestsFromMapFunc(registryOfTemplate), builder.WithPredicates(templateChanged())).
		Watches(&tenantsv1.Tenant{}, soon(registryOfTenant), builder.WithPredicates(tenantChanged())).
		WatchesMetadata(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(c.rowLost), builder.WithPredicates(onlyDeleted(isRow))).
		WatchesRawSource(source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			c.wake.mu.Lock()
			defer c.wake.mu.Unlock()
			c.wake.queue = q
			return nil
		})).
		WithOptions(retrying(cmp.Or(c.RegistryWorkers, registryWorkers)))
	if c.Inventories != nil {
		for _, kind := range []string{sourcev1.GitRepositoryKind, sourcev1.OCIRepositoryKind, sourcev1.BucketKind} {
			obj, err := sources.New(kind)
			if err != nil {
				return err
			}
			b = b.Watches(obj, handler.EnqueueRequestsFromMapFunc(c.inventoriesOf(kind)), builder.WithPredicates(artifactChanged()))
		}
	}
	return b.Complete(c)
}

// SetupWithManager makes mgr run c.
func (c *Templates) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("tenanttemplates").
		For(&tenantsv1.TenantTemplate{}, builder.WithPredicates(templateChanged())).
		Watches(&tenantsv1.TenantRegistry{}, handler.EnqueueRequestsFromMapFunc(c.templatesOfRegistry), builder.WithPredicates(registryChanged())).
		Watches(&tenantsv1.Tenant{}, soon(templateOfTenant), builder.WithPredicates(tenantChanged())).
		WithOptions(retrying(cmp.Or(c.TemplateWorkers, templateWorkers))).
		Complete(c)
}

func retrying(workers int) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: workers,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
	}
}

func registryOfTemplate(_ context.Context, o client.Object) []reconcile.Request {
	return named(o.GetNamespace(), o.(*tenantsv1.TenantTemplate).Spec.RegistryID)
}

func registryOfTenant(o client.Object) []reconcile.Request {
	return named(o.GetNamespace(), tenantapi.RegistryOf(o))
}

func templateOfTenant(o client.Object) []reconcile.Request {
	return named(o.GetNamespace(), o.(*tenantsv1.Tenant).Spec.TemplateRef)
}

func named(namespace, name string) []reconcile.Request {
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}}
}

// templatesOfRegistry maps a registry to its templates.
func (c *Templates) templatesOfRegistry(ctx context.Context, o client.Object) []reconcile.Request {
	var list tenantsv1.TenantTemplateList
	if err := c.cache.List(ctx, &list, client.InNamespace(o.GetNamespace()), client.MatchingFields{indexRegistry: o.GetName()}); err != nil {
		c.Log.Error("templates not woken", "registry", client.ObjectKeyFromObject(o).String(), "err", err)
		return nil
	}
	var out []reconcile.Request
	for i := range list.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return out
}

// rowLost maps the deleted Secret of a row to the registry that has to write it
// again, if the Tenant still exists.
func (c *Registries) rowLost(ctx context.Context, o client.Object) []reconcile.Request {
	name := strings.TrimPrefix(o.GetName(), tenantapi.RowSecret(""))
	var t tenantsv1.Tenant
	if err := c.cache.Get(ctx, client.ObjectKey{Namespace: o.GetNamespace(), Name: name}, &t); err != nil {
		return nil // it was deleted with its Tenant
	}
	out := registryOfTenant(&t)
	for _, r := range out {
		c.rowGone(r.NamespacedName, name)
	}
	return out
}
