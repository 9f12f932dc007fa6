package tenants

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/tenant"
	"github.com/terrier-iac/terrier/internal/tenantapi"
)

// tenantsAtOnce is how many Tenants of one registry are written at once.
const tenantsAtOnce = 8

// rowRefused is a tenant that the API server refused.
const rowRefused = "TenantRefused"

// tenantWriter creates, changes and deletes the Tenants of registries.
type tenantWriter struct {
	Options
	revisions *revisions
}

// apply creates, changes and deletes Tenants as the step says. A Tenant that cannot
// be written does not stop the others.
func (c *tenantWriter) apply(ctx context.Context, l *registryPass) error {
	pinned := &pins{c: c.revisions, at: map[pin]*tenantsv1.TenantTemplateSpec{}}
	var errs []error
	var mu sync.Mutex
	attempt := func(uid, name string, what any, write func() error) {
		// A request for a read is also one for another attempt.
		r, err := l.memory.attempt(name, digest([]any{what, l.obj.Annotations[tenantsv1.AnnotationSyncNow]}), c.Now(), write)
		if err == nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if r.next.IsZero() {
			errs = append(errs, err)
		}
		message := fmt.Sprintf("writing tenant %s: %v", name, err)
		if tooLarge(err) {
			message += "; the Tenant holds its template, which is too large for one object: split the template into several"
		}
		l.failures = append(l.failures, tenant.RowError{UID: uid, Reason: rowRefused, Message: message, Next: r.next})
	}
	each(ctx, l.step.Create, func(ctx context.Context, n tenant.Creation) {
		attempt(n.Row.UID, n.Name, n, func() error { return c.create(ctx, l, pinned, n) })
	})
	each(ctx, l.step.Change, func(ctx context.Context, n tenant.Change) {
		t := l.tenants[n.Name]
		// The time of leaving differs with each attempt.
		what := []any{n.Row, n.Generation, n.Leaving != nil, n.Stay, n.Tie, t.UID, t.Generation, t.Annotations}
		attempt(t.Spec.UID, n.Name, what, func() error { return c.change(ctx, l, pinned, n) })
	})
	l.memory.wanted(l.step)
	stay, err := c.remove(ctx, l.obj, l.step.Remove, l.tenants)
	l.failures = append(l.failures, stay...)
	if err != nil {
		errs = append(errs, err)
	}
	slices.SortFunc(l.failures, func(a, b tenant.RowError) int { return strings.Compare(a.Message, b.Message) })
	if len(errs) > 3 {
		errs = append(errs[:3], fmt.Errorf("and %d more", len(errs)-3))
	}
	return errors.Join(errs...)
}

// each calls f for all items, some at once.
func each[T any](ctx context.Context, items []T, f func(context.Context, T)) {
	var g errgroup.Group
	g.SetLimit(tenantsAtOnce)
	for _, item := range items {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			f(ctx, item)
			return nil
		})
	}
	_ = g.Wait() // f keeps its own errors
}

// create creates a Tenant and then its row, which the Tenant owns. In between the
// Tenant waits: its annotation announces the row.
func (c *tenantWriter) create(ctx context.Context, l *registryPass, pinned *pins, n tenant.Creation) error {
	spec, err := pinned.spec(ctx, l.specs[n.Template], n.Generation)
	if err != nil {
		return err
	}
	t := &tenantsv1.Tenant{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: l.obj.Namespace, Name: n.Name,
			Labels: map[string]string{tenantsv1.LabelRegistry: tenant.Label(l.obj.Name), tenantsv1.LabelUID: n.Row.UID},
			Annotations: map[string]string{
				tenantsv1.AnnotationTemplateGeneration: strconv.FormatInt(n.Generation, 10),
				tenantsv1.AnnotationRow:                digestOf(c.Key, n.Row),
			},
			Finalizers: []string{tenantsv1.TenantFinalizer},
		},
		Spec: tenantsv1.TenantSpec{UID: n.Row.UID, TemplateRef: n.Template, Resources: spec.Resources, ServiceAccountName: spec.ServiceAccountName},
	}
	if n.Untied {
		tenantapi.Untie(t, l.obj.Name)
	} else {
		tenantapi.Tie(t, l.obj)
	}
	err = c.Live.Create(ctx, t, client.FieldOwner(tenantsv1.FieldManager))
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil // the cache is stale: its event starts another pass
	case err != nil:
		return err
	}
	delete(t.Annotations, tenantsv1.AnnotationRow) // a new Tenant has no Secret yet
	return c.writeRow(ctx, l, t, n.Row)
}

func (c *tenantWriter) writeRow(ctx context.Context, l *registryPass, t *tenantsv1.Tenant, row tenant.Row) error {
	if err := writeRow(ctx, c.Live, t, row); err != nil {
		return err
	}
	l.memory.mu.Lock()
	defer l.memory.mu.Unlock()
	l.memory.kept[t.Name] = true
	return nil
}

// change writes a changed row, and then one patch of the Tenant. It removes the
// annotations of Tenant Operator with values of the row, since the Secret has them.
func (c *tenantWriter) change(ctx context.Context, l *registryPass, pinned *pins, n tenant.Change) error {
	t := l.tenants[n.Name]
	if n.Tie != "" {
		if err := c.tie(ctx, l, t, n.Tie); err != nil {
			return err
		}
		if n.Tie = ""; n == (tenant.Change{Name: n.Name, Template: n.Template}) {
			return nil
		}
	}
	old := t.Annotations
	annotations := map[string]any{}
	patch := map[string]any{}
	if n.Row != nil {
		if err := c.writeRow(ctx, l, t, *n.Row); err != nil {
			return err
		}
		annotations[tenantsv1.AnnotationRow] = digestOf(c.Key, *n.Row)
		for _, value := range []string{tenantsv1.AnnotationHostOrURL, tenantsv1.AnnotationActivate, tenantsv1.AnnotationExtra} {
			if _, there := old[value]; there {
				annotations[value] = nil
			}
		}
	}
	if n.Generation != 0 {
		spec, err := pinned.spec(ctx, l.specs[n.Template], n.Generation)
		if err != nil {
			return err
		}
		generation := strconv.FormatInt(n.Generation, 10)
		if old[tenantsv1.AnnotationRow] != "" && old[tenantsv1.AnnotationTemplateGeneration] != generation {
			annotations[tenantsv1.AnnotationChanged] = c.Now().UTC().Format(time.RFC3339)
		}
		annotations[tenantsv1.AnnotationTemplateGeneration] = generation
		patch["spec"] = specPatch(spec)
	}
	switch {
	case n.Stay:
		annotations[tenantsv1.AnnotationLeaving] = nil
	case n.Leaving != nil:
		annotations[tenantsv1.AnnotationLeaving] = tenantapi.LeavingText(*n.Leaving)
	}
	patch["metadata"] = map[string]any{"uid": t.UID, "annotations": annotations} // for no other Tenant of this name
	data, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	target := &metav1.PartialObjectMetadata{}
	target.SetGroupVersionKind(tenantsv1.GroupVersion.WithKind(tenantsv1.TenantKind))
	target.Namespace, target.Name = t.Namespace, t.Name
	err = c.Live.Patch(ctx, target, client.RawPatch(types.MergePatchType, data), client.FieldOwner(tenantsv1.FieldManager))
	if err == nil {
		before, after := l.memory.give(t, n, annotations[tenantsv1.AnnotationRow])
		c.changeEvents(t, n, before, after)
	}
	return client.IgnoreNotFound(err)
}

// given is what a Tenant was given last: a row and a generation of its template, and
// whether it leaves.
type given struct {
	uid             types.UID
	generation, row string
	leaving         string
}

// give notes what a change gives a Tenant. What it had before is known better than by
// the cache, which may not show the last change yet: that one is then made again, and
// changes nothing.
func (m *remembered) give(t *tenantsv1.Tenant, n tenant.Change, row any) (before, after given) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before = m.given[t.Name]
	if before.uid != t.UID {
		before = given{t.UID, t.Annotations[tenantsv1.AnnotationTemplateGeneration], t.Annotations[tenantsv1.AnnotationRow], t.Annotations[tenantsv1.AnnotationLeaving]}
	}
	after = before
	if n.Generation != 0 {
		after.generation = strconv.FormatInt(n.Generation, 10)
	}
	if digest, ok := row.(string); ok {
		after.row = digest
	}
	switch {
	case n.Stay:
		after.leaving = ""
	case n.Leaving != nil:
		after.leaving = tenantapi.LeavingText(*n.Leaving)
	}
	m.given[t.Name] = after
	return before, after
}

// onlyOf forgets Tenants that are gone.
func (m *remembered) onlyOf(tenants map[string]*tenantsv1.Tenant) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.given, func(name string, _ given) bool { return tenants[name] == nil })
}

// changeEvents writes the events about a changed Tenant. A row that was only restored,
// since its Secret was lost, is no change.
func (c *tenantWriter) changeEvents(t *tenantsv1.Tenant, n tenant.Change, before, after given) {
	switch {
	case before.leaving == after.leaving:
	case n.Leaving != nil && n.Leaving.Allowed && !c.Now().Before(n.Leaving.Due): // it is deleted in this pass
	case n.Leaving != nil:
		c.Events.Event(t, corev1.EventTypeWarning, "TenantLeaving", n.Leaving.Message(c.Now()))
	default:
		c.Events.Event(t, corev1.EventTypeNormal, "TenantStays", "The tenant stays: its deletion is cancelled. Another deletion begins with a new grace period")
	}
	row, generation := before.row != after.row, before.generation != after.generation
	switch {
	case row && generation:
		c.Events.Event(t, corev1.EventTypeNormal, "TenantUpdated", fmt.Sprintf("The row has changed, and the tenant has generation %[2]d of the template %[1]s", n.Template, n.Generation))
	case generation:
		c.Events.Event(t, corev1.EventTypeNormal, "TemplateApplied", fmt.Sprintf("The tenant has generation %[2]d of the template %[1]s", n.Template, n.Generation))
	case row:
		c.Events.Event(t, corev1.EventTypeNormal, "DataUpdated", "The row has changed")
	}
}

// specPatch replaces all groups of a Tenant.
func specPatch(spec *tenantsv1.TenantTemplateSpec) map[string]any {
	out := map[string]any{"serviceAccountName": nil}
	if spec.ServiceAccountName != "" {
		out["serviceAccountName"] = spec.ServiceAccountName
	}
	for _, g := range spec.Groups() {
		out[g.Name] = nil
		if len(g.Resources) > 0 {
			out[g.Name] = g.Resources
		}
	}
	return out
}

// remove deletes Tenants, and returns those whose deletion the API server refused.
// The finalizer of each waits for its objects.
func (c *tenantWriter) remove(ctx context.Context, obj *tenantsv1.TenantRegistry, all []tenant.Removal, known map[string]*tenantsv1.Tenant) (stay []tenant.RowError, err error) {
	var mu sync.Mutex
	var errs []error
	each(ctx, all, func(ctx context.Context, r tenant.Removal) {
		t := &tenantsv1.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: obj.Namespace, Name: r.Name}}
		only := client.Preconditions{UID: &known[r.Name].UID} // no other Tenant of this name
		if err := client.IgnoreNotFound(c.Live.Delete(ctx, t, only)); err != nil {
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, fmt.Errorf("deleting tenant %s: %w", r.Name, err))
			stay = append(stay, tenant.RowError{UID: known[r.Name].Spec.UID, Reason: rowRefused, Message: fmt.Sprintf("deleting tenant %s: %v%s", r.Name, err, retriedDeletion)})
		}
	})
	if len(all) > 0 {
		c.Events.Event(obj, corev1.EventTypeNormal, "TenantDeleting", removed(all))
		c.Log.Info("tenants deleted", "registry", client.ObjectKeyFromObject(obj).String(), "count", len(all))
	}
	if len(errs) > 0 {
		c.Events.Event(obj, corev1.EventTypeWarning, "TenantDeletionFailed", errs[0].Error())
	}
	return stay, errors.Join(errs[:min(len(errs), 3)]...)
}

// removed names the Tenants that are deleted, and why.
func removed(all []tenant.Removal) string {
	var names []string
	for _, r := range all {
		names = append(names, r.Name+" ("+r.Reason+")")
	}
	return tenant.Few(names, 10)
}

// pins reads the specs of generations, each once in a pass.
type pins struct {
	c  *revisions
	mu sync.Mutex
	at map[pin]*tenantsv1.TenantTemplateSpec
}

type pin struct {
	template   string
	generation int64
}

func (p *pins) spec(ctx context.Context, t *tenantsv1.TenantTemplate, generation int64) (*tenantsv1.TenantTemplateSpec, error) {
	if t == nil {
		return nil, fault.New(fault.Missing, "", errors.New("its template does not exist any more"))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	key := pin{t.Name, generation}
	if s := p.at[key]; s != nil {
		return s, nil
	}
	s, err := p.c.spec(ctx, t, generation)
	if err == nil {
		p.at[key] = s
	}
	return s, err
}
