package tenants

import (
	"context"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/tenant"
	"github.com/terrier-iac/terrier/internal/tenantapi"
)

// Templates reports the validity of each template and the progress of its rollout.
// It changes no Tenant: registries do, by the same rules (tenant.Advance), so that
// the status shows what they do. Only without a registry does it delete the Tenants
// of a deleted template.
type Templates struct {
	Options

	cache     client.Client
	templates *templates
	revisions *revisions
	passes    *passes
}

func (c *Templates) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var obj tenantsv1.TenantTemplate
	if err := c.Live.Get(ctx, req.NamespacedName, &obj); err != nil {
		if apierrors.IsNotFound(err) {
			c.passes.outages.over(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	result, err := c.once(ctx, &obj)
	return c.passes.ended(ctx, &obj, result, err, asItIs)
}

// once is one pass, or one step of a deletion.
func (c *Templates) once(ctx context.Context, obj *tenantsv1.TenantTemplate) (ctrl.Result, error) {
	registry, err := c.registryOf(ctx, obj)
	if err != nil {
		return ctrl.Result{}, err
	}
	if obj.DeletionTimestamp != nil {
		return c.finish(ctx, obj, registry)
	}
	if err := c.ensureFinalizer(ctx, obj, tenantsv1.FinalizerTemplate); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if err := c.revisions.keep(ctx, obj); err != nil {
		return ctrl.Result{}, err
	}
	own, err := c.tenantsOf(ctx, obj)
	if err != nil {
		return ctrl.Result{}, err
	}
	pause, fresh, err := c.report(ctx, obj, registry, own)
	if err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if fresh { // a new generation makes others obsolete
		used := map[int64]bool{obj.Generation: true, obj.Status.Rollout.GoodGeneration: true}
		for _, e := range own {
			used[e.Generation] = true
		}
		if err := c.revisions.prune(ctx, obj, used); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{RequeueAfter: pause}, nil
}

// registryOf returns the registry of a template, nil if there is none.
func (c *Templates) registryOf(ctx context.Context, obj *tenantsv1.TenantTemplate) (*tenantsv1.TenantRegistry, error) {
	var r tenantsv1.TenantRegistry
	err := c.cache.Get(ctx, client.ObjectKey{Namespace: obj.Namespace, Name: obj.Spec.RegistryID}, &r)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return &r, err
}

func (c *Templates) tenantsOf(ctx context.Context, obj *tenantsv1.TenantTemplate) ([]tenant.Existing, error) {
	var list tenantsv1.TenantList
	err := c.cache.List(ctx, &list, client.InNamespace(obj.Namespace), client.MatchingFields{indexTemplate: obj.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("listing tenants: %w", err)
	}
	var own []tenant.Existing
	for i := range list.Items {
		if list.Items[i].Labels[tenantsv1.LabelRegistry] == tenant.Label(obj.Spec.RegistryID) {
			own = append(own, tenantapi.Existing(&list.Items[i]))
		}
	}
	return own, nil
}

// finish removes the finalizer of a template whose Tenants are gone. Its registry
// deletes them, within its guard.
func (c *Templates) finish(ctx context.Context, obj *tenantsv1.TenantTemplate, registry *tenantsv1.TenantRegistry) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(obj, tenantsv1.FinalizerTemplate) {
		return ctrl.Result{}, nil
	}
	if err := c.inBackground(ctx, obj); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	// Read from the server: a stale cache would miss Tenants that were just created.
	var list tenantsv1.TenantList
	if err := c.Live.List(ctx, &list, client.InNamespace(obj.Namespace), client.MatchingLabels{tenantsv1.LabelRegistry: tenant.Label(obj.Spec.RegistryID)}); err != nil {
		return ctrl.Result{}, err
	}
	list.Items = slices.DeleteFunc(list.Items, func(t tenantsv1.Tenant) bool { return t.Spec.TemplateRef != obj.Name })
	if len(list.Items) > 0 {
		if registry == nil && !protects(obj) {
			if err := c.removeAll(ctx, list.Items); err != nil {
				return ctrl.Result{}, err
			}
		}
		return ctrl.Result{RequeueAfter: deletionCheck}, client.IgnoreNotFound(c.reportDeleting(ctx, obj, registry, list.Items))
	}
	if err := c.record(ctx, obj, tenantsv1.TemplateKind, auditEntry{Entry: audit.Entry{What: audit.Deleted}}); err != nil {
		return ctrl.Result{}, err
	}
	if err := c.removeFinalizer(ctx, obj, tenantsv1.FinalizerTemplate); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	c.revisions.forget(obj.UID)
	c.templates.forget(obj.UID)
	return ctrl.Result{}, nil
}

// removeAll deletes Tenants that have no registry any more.
func (c *Templates) removeAll(ctx context.Context, all []tenantsv1.Tenant) error {
	for i := range all {
		if e := tenantapi.Existing(&all[i]); e.Deleting || e.Protected {
			continue
		}
		if err := c.Live.Delete(ctx, &all[i], client.Preconditions{UID: &all[i].UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting tenant %s: %w", all[i].Name, err)
		}
	}
	return nil
}

// templates keeps the problems of each template, so that each generation is checked
// once.
type templates struct {
	mu      sync.Mutex
	checked map[types.UID]checked
}

type checked struct {
	generation int64
	vars       string
	problems   []string
	events     []notice // those of them with an event of their own
}

// notice is an event to write once.
type notice struct{ reason, message string }

// eventNames are the events of Tenant Operator about problems with a field.
var eventNames = map[string]string{"id": "DuplicateResourceIDs", "dependIds": "DependencyValidationFailed"}

// events are the problems with an event of their own, the first of each.
func (t *templates) events(obj *tenantsv1.TenantTemplate) []notice {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.checked[obj.UID].events
}

// known describes a template for a step of its registry.
func (t *templates) known(obj *tenantsv1.TenantTemplate, registry *tenantsv1.TenantRegistry) tenant.TemplateKnown {
	k := tenant.TemplateKnown{
		Name: obj.Name, Generation: obj.Generation, Valid: len(t.check(obj, registry)) == 0,
		Deleting: obj.DeletionTimestamp != nil, Protected: protects(obj), Resume: obj.Annotations[tenantsv1.AnnotationRollout],
	}
	if r := obj.Status.Rollout; r != nil && r.GoodGeneration != obj.Generation {
		k.Good = r.GoodGeneration
	}
	k.Rollout, _ = tenantapi.Rollout(obj) // its error makes the template invalid
	return k
}

// check finds the problems of a template, with the variables of its registry.
func (t *templates) check(obj *tenantsv1.TenantTemplate, registry *tenantsv1.TenantRegistry) []string {
	var vars []string
	if registry != nil {
		vars = tenant.VariablesOf(tenantapi.Mapping(registry))
	}
	c := checked{generation: obj.Generation, vars: fmt.Sprint(vars)}
	t.mu.Lock()
	defer t.mu.Unlock()
	if was, ok := t.checked[obj.UID]; ok && was.generation == c.generation && was.vars == c.vars {
		return was.problems
	}
	for _, p := range CheckTemplate(obj, vars) {
		c.problems = append(c.problems, p.Error())
		name := eventNames[p.Field]
		if name != "" && !slices.ContainsFunc(c.events, func(n notice) bool { return n.reason == name }) {
			c.events = append(c.events, notice{name, p.Error()})
		}
	}
	t.checked[obj.UID] = c
	return c.problems
}

func (t *templates) forget(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.checked, uid)
}
