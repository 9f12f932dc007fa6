package tenants

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/kube/children"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/tenant"
	"github.com/terrier-iac/terrier/internal/tenantapi"
)

const (
	tenantWorkers = 10 // as in Tenant Operator

	firstRetry = 50 * time.Millisecond
	lastRetry  = 30 * time.Second

	// maxRounds bounds the steps of one pass, so that a tenant with very many levels
	// does not delay others.
	maxRounds = 64
)

// Tenants reconciles the objects of each Tenant with its row and its template. A
// pass over one is: observe (observe.go), decide (tenant.Plan) and act (act.go),
// until there is nothing left to do now, and report (report.go).
//
// Reads and writes are cached, so that an unchanged tenant costs no request. Nothing
// depends on the cache: a new controller compares instead.
type Tenants struct {
	Options

	metrics *metrics
	memory  *objects[memory]
	cache   client.Reader // has Tenants; without one the server is asked each time

	observer observer
	writer   childWriter
	status   tenantStatus
	passes   *passes
}

func newTenants(o Options, kinds kinds) (*Tenants, error) {
	m, err := newMetrics(o.Metrics)
	if err != nil {
		return nil, err
	}
	memories := &objects[memory]{}
	return &Tenants{
		Options: o, metrics: m, memory: memories,
		observer: observer{o, kinds, memories}, writer: childWriter{o, m}, status: tenantStatus{o, m},
		passes: &passes{Options: o, fresh: freshTenant, conditions: conditionsOfTenant, says: map[string]bool{string(tenant.ReadyCondition): false, string(tenant.DegradedCondition): true}},
	}, nil
}

// pass is one pass over one Tenant.
type pass struct {
	obj      *tenantsv1.Tenant
	now      time.Time
	children *children.Cluster // as the ServiceAccount of the template
	account  string            // the ServiceAccount that writes; empty for the controller
	refused  *tenant.Failure   // why nothing can be written as that account; nil if it can
	blind    bool              // the row cannot be read, and what objects say may quote it
	owner    children.Owner
	memory   *memory
	o        tenant.Observed
	row      string                // digest of the row, if a registry has it
	coming   time.Duration         // how long the pass waits for a missing row; zero if it does not
	secrets  []string              // values of the row that no message may show
	redactor func() *plan.Redactor // of secrets, created when it is needed
	said     string                // digest of the Tenant without its status: a change of it retries everything at once
	recorded map[tenant.Ref]bool   // places in the stored inventory
	full     map[tenant.Ref]bool   // wanted objects for which the inventory has no room
	departed []tenant.Departure
	effects  []effect

	mu   sync.Mutex
	seen map[tenant.Ref]children.Live // objects that this pass has read
}

func (p *pass) saw(r tenant.Ref, l children.Live) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen[r] = l
}

// take returns an object that was read, once: after a write it is outdated.
func (p *pass) take(r tenant.Ref) *children.Live {
	p.mu.Lock()
	defer p.mu.Unlock()
	l, ok := p.seen[r]
	delete(p.seen, r)
	if !ok {
		return nil
	}
	return &l
}

func (c *Tenants) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	obj, err := c.latest(ctx, req.NamespacedName)
	if err != nil {
		if apierrors.IsNotFound(err) {
			c.forget(req.NamespacedName)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, err
	}
	if obj.DeletionTimestamp.IsZero() {
		if err := c.ensureFinalizer(ctx, obj, tenantsv1.TenantFinalizer); err != nil {
			return c.passes.ended(ctx, obj, ctrl.Result{}, client.IgnoreNotFound(err), asItIs)
		}
	} else if !controllerutil.ContainsFinalizer(obj, tenantsv1.TenantFinalizer) {
		return ctrl.Result{}, nil // it was released, and another finalizer keeps it
	} else if err := c.inBackground(ctx, obj); err != nil {
		return c.passes.ended(ctx, obj, ctrl.Result{}, client.IgnoreNotFound(err), asItIs)
	}
	began := c.Now()
	p := c.observer.begin(obj)
	result, outcome, err := c.pass(ctx, p)
	c.metrics.observe(c.Now().Sub(began), outcome, err)
	return c.passes.ended(ctx, obj, result, err, p.redacted)
}

// requeue is another pass at once, with what the server has by then.
var requeue = ctrl.Result{RequeueAfter: time.Nanosecond}

// pass observes, decides, acts and reports.
func (c *Tenants) pass(ctx context.Context, p *pass) (ctrl.Result, tenant.Outcome, error) {
	if err := c.observer.observe(ctx, p); err != nil {
		return ctrl.Result{}, tenant.Outcome{}, err
	}
	if p.coming > 0 {
		return ctrl.Result{RequeueAfter: p.coming}, tenant.Outcome{}, nil
	}
	var out tenant.Outcome
	for range maxRounds {
		out = tenant.Plan(p.o)
		p.departed = append(p.departed, out.Departed...)
		p.o.Inventory = out.Inventory
		if len(out.Acts) == 0 {
			break
		}
		if err := c.status.recordInventory(ctx, p, out); err != nil {
			return ctrl.Result{}, out, err
		}
		if err := c.writer.apply(ctx, p, out.Acts); err != nil {
			// Report the actions so far: no other pass will.
			_, unreported := c.status.report(ctx, p, tenant.Plan(p.o))
			return ctrl.Result{}, out, errors.Join(err, unreported)
		}
	}
	if out.Done {
		return ctrl.Result{}, out, c.release(ctx, p)
	}
	later, err := c.status.report(ctx, p, out)
	if err != nil {
		return ctrl.Result{}, out, err
	}
	if len(out.Acts) > 0 {
		return requeue, out, nil
	}
	if later == 0 || out.Recheck > 0 && out.Recheck < later {
		later = out.Recheck
	}
	return ctrl.Result{RequeueAfter: later}, out, nil
}

// release removes the finalizer of a Tenant that has no objects left.
func (c *Tenants) release(ctx context.Context, p *pass) error {
	c.status.events(p, tenant.Outcome{})
	if err := c.removeFinalizer(ctx, p.obj, tenantsv1.TenantFinalizer); err != nil {
		return client.IgnoreNotFound(err)
	}
	c.Events.Event(p.obj, corev1.EventTypeNormal, tenant.TenantDeleted, "All objects of the tenant are deleted or retained")
	c.Log.Info("tenant released", "tenant", client.ObjectKeyFromObject(p.obj).String())
	c.forget(client.ObjectKeyFromObject(p.obj))
	return nil
}

// forget drops everything that is kept for a Tenant that is gone.
func (c *Tenants) forget(key types.NamespacedName) {
	c.memory.forget(key)
	c.metrics.forget(key)
	c.passes.outages.over(key)
}

// SetupWithManager makes mgr run c.
func (c *Tenants) SetupWithManager(mgr ctrl.Manager) error {
	c.cache = mgr.GetCache()
	return ctrl.NewControllerManagedBy(mgr).Named("tenants").
		For(&tenantsv1.Tenant{}, builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, // and the start of a deletion, which raises it
			predicate.AnnotationChangedPredicate{},
		))).
		// The row arrives after the Tenant that owns it.
		Owns(&corev1.Secret{}, builder.OnlyMetadata, builder.WithPredicates(predicate.NewPredicateFuncs(isRow), predicate.ResourceVersionChangedPredicate{})).
		WatchesRawSource(c.Children.Watches().Source()).
		WithOptions(retrying(cmp.Or(c.TenantWorkers, tenantWorkers))).
		Complete(c)
}

// isRow reports whether a Secret holds the row of a Tenant.
func isRow(o client.Object) bool { return strings.HasPrefix(o.GetName(), tenantapi.RowSecret("")) }
