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
	dialect "github.com/terrier-iac/terrier/internal/dialect/tenants"
	"github.com/terrier-iac/terrier/internal/tenant"
)

// Templates says of each template whether it is valid and how far its last
// change has come. It changes no Tenant: registries do that, by the same rules
// (tenant.Advance), so that what is shown is what is done. Only where there is no
// registry does it take away the Tenants of a template that was deleted.
type Templates struct {
	Options

	cache     client.Client
	templates *templates
	revisions *revisions
}

// Reconcile takes one look at a template.
func (c *Templates) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var obj tenantsv1.TenantTemplate
	if err := c.Live.Get(ctx, req.NamespacedName, &obj); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	registry, err := c.registryOf(ctx, &obj)
	if err != nil {
		return ctrl.Result{}, err
	}
	if obj.DeletionTimestamp != nil {
		return c.finish(ctx, &obj, registry)
	}
	if err := c.ensureFinalizer(ctx, &obj, tenantsv1.FinalizerTemplate); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if err := c.revisions.keep(ctx, &obj); err != nil {
		return ctrl.Result{}, err
	}
	own, err := c.tenantsOf(ctx, &obj)
	if err != nil {
		return ctrl.Result{}, err
	}
	pause, fresh, err := c.report(ctx, &obj, registry, own)
	if apierrors.IsConflict(err) {
		return requeue, nil // somebody else wrote: look with fresh eyes
	}
	if err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if fresh { // generations go when there is a new one
		used := map[int64]bool{obj.Generation: true, obj.Status.Rollout.GoodGeneration: true}
		for _, e := range own {
			used[e.Generation] = true
		}
		if err := c.revisions.prune(ctx, &obj, used); err != nil {
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
			own = append(own, dialect.Existing(&list.Items[i]))
		}
	}
	return own, nil
}

// finish lets a template go whose Tenants are gone. Its registry takes them away,
// within its guard.
func (c *Templates) finish(ctx context.Context, obj *tenantsv1.TenantTemplate, registry *tenantsv1.TenantRegistry) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(obj, tenantsv1.FinalizerTemplate) {
		return ctrl.Result{}, nil
	}
	// Read from the server: a cache that lags would leave behind what was just made.
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
		return ctrl.Result{RequeueAfter: leavingLook}, client.IgnoreNotFound(c.reportDeleting(ctx, obj, registry, list.Items))
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

// removeAll is for Tenants that no registry looks after any more.
func (c *Templates) removeAll(ctx context.Context, all []tenantsv1.Tenant) error {
	for i := range all {
		if e := dialect.Existing(&all[i]); e.Deleting || e.Protected {
			continue
		}
		if err := c.Live.Delete(ctx, &all[i], client.Preconditions{UID: &all[i].UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting tenant %s: %w", all[i].Name, err)
		}
	}
	return nil
}

// templates remembers what is wrong with each template, so that it is found out
// once for each generation.
type templates struct {
	mu      sync.Mutex
	checked map[types.UID]checked
}

type checked struct {
	generation int64
	vars       string
	problems   []string
	events     []notice // what has a name of its own among them
}

// notice is something to tell of once.
type notice struct{ reason, message string }

// eventNames are those that Tenant Operator has for what is wrong with a field.
var eventNames = map[string]string{"id": "DuplicateResourceIDs", "dependIds": "DependencyValidationFailed"}

// events are what check found that has a name of its own, the first of each.
func (t *templates) events(obj *tenantsv1.TenantTemplate) []notice {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.checked[obj.UID].events
}

// known is what a step of the registry has to know of a template.
func (t *templates) known(obj *tenantsv1.TenantTemplate, registry *tenantsv1.TenantRegistry) tenant.TemplateKnown {
	k := tenant.TemplateKnown{
		Name: obj.Name, Generation: obj.Generation, Valid: len(t.check(obj, registry)) == 0,
		Deleting: obj.DeletionTimestamp != nil, Protected: protects(obj), Resume: obj.Annotations[tenantsv1.AnnotationRollout],
	}
	if r := obj.Status.Rollout; r != nil && r.GoodGeneration != obj.Generation {
		k.Good = r.GoodGeneration
	}
	k.Rollout, _ = dialect.Rollout(obj) // what is wrong with it makes the template invalid
	return k
}

// check finds what is wrong with a template, with the variables that its
// registry gives.
func (t *templates) check(obj *tenantsv1.TenantTemplate, registry *tenantsv1.TenantRegistry) []string {
	var vars []string
	if registry != nil {
		vars = tenant.VariablesOf(dialect.Mapping(registry))
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
