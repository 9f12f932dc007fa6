package tenants

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	dialect "github.com/terrier-iac/terrier/internal/dialect/tenants"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube/children"
	"github.com/terrier-iac/terrier/internal/tenant"
)

// parallel is how many objects of one tenant are looked at or written at once.
const parallel = 4

// observer reads Tenants, their rows and their objects.
type observer struct {
	Options
	kinds  kinds
	memory *objects[memory]
}

// observe finds out all that is known of a Tenant and its objects.
func (c *observer) observe(ctx context.Context, obj *tenantsv1.Tenant) (*pass, error) {
	p := &pass{
		obj: obj, now: c.Now().UTC().Truncate(time.Second), children: c.Children, // times in a status have no fractions
		owner: children.Owner{
			APIVersion: tenantsv1.GroupVersion.String(), Kind: tenantsv1.TenantKind,
			Namespace: obj.Namespace, Name: obj.Name, UID: string(obj.UID), TenantID: tenant.Label(obj.Spec.UID),
		},
		memory: c.memory.of(obj, func() *memory { return &memory{notes: map[tenant.Ref]note{}} }),
		seen:   map[tenant.Ref]children.Live{},
		said:   digest([]any{obj.Generation, obj.Annotations}),
	}
	if name := obj.Spec.ServiceAccountName; name != "" {
		as, err := c.Children.As(obj.Namespace, name)
		if err != nil {
			return nil, fmt.Errorf("writing as %s/%s: %w", obj.Namespace, name, err)
		}
		p.children, p.account = as, obj.Namespace+"/"+name
	}
	p.o = tenant.Observed{
		Now: p.now, Deleting: !obj.DeletionTimestamp.IsZero(),
		Protected: obj.Annotations[tenantsv1.AnnotationDeletionProtection] == "true",
		Inventory: inventoryOf(obj), Before: verdictsOf(obj), Live: map[tenant.Ref]tenant.Child{},
	}
	if err := c.render(ctx, p); err != nil {
		return nil, err
	}
	if p.coming > 0 {
		return p, nil
	}
	p.recorded = map[tenant.Ref]bool{}
	for _, i := range p.o.Inventory {
		p.recorded[i.Place()] = true
	}
	if len(obj.Status.Inventory) == 0 {
		takeOver(p)
	}
	if err := c.resolveAll(ctx, p); err != nil {
		return nil, err
	}
	return p, c.lookAt(ctx, p)
}

// render makes the objects of p, or says why there are none. Only what may pass
// by itself is an error.
func (c *observer) render(ctx context.Context, p *pass) error {
	generation := generationOf(p.obj)
	template, err := dialect.Pinned(p.obj, generation)
	if err != nil {
		p.o.Broken = &tenant.Failure{Reason: tenant.SortError, Message: err.Error()}
		return nil
	}
	p.o.Resources = template.Resources
	if p.o.Deleting && len(p.o.Inventory) > 0 {
		return c.hideLeaving(ctx, p) // what there is, is written down
	}
	row, err := c.row(ctx, p)
	if err != nil {
		if fault.Of(err) == fault.Broken && !p.o.Deleting {
			return err
		}
		if fault.Of(err) == fault.Later && !p.o.Deleting {
			if p.coming = p.memory.awaitRow(p.now); p.coming > 0 {
				return nil
			}
		}
		p.o.Broken = &tenant.Failure{Reason: tenant.VariablesBuildError, Message: err.Error()}
		return nil
	}
	p.memory.missed = time.Time{}
	values := tenant.ValuesOf(row, dialect.RegistryOf(p.obj), p.obj.Spec.TemplateRef)
	p.o.Objects, p.o.Errors = tenant.Render(template, values, tenant.RenderOptions{
		Namespace: p.obj.Namespace, TenantUID: p.obj.Spec.UID,
		Types: c.Children.Types(), IsNamespaced: c.Children.Types().IsNamespaced,
	})
	p.hide(row)
	return nil
}

// hideLeaving hides the row of a Tenant that goes by what is written down: its
// stacks say why they are not destroyed, and may quote it. One that is lost, or
// that may not be read, keeps nothing from going.
func (c *observer) hideLeaving(ctx context.Context, p *pass) error {
	row, err := c.row(ctx, p)
	switch {
	case err == nil:
		p.hide(row)
	case fault.Of(err) == fault.Broken && !apierrors.IsForbidden(err):
		return err
	}
	return nil
}

// generationOf is the generation of the template that a Tenant was given; zero
// for one that was made by hand.
func generationOf(t *tenantsv1.Tenant) int64 {
	n, err := strconv.ParseInt(t.Annotations[tenantsv1.AnnotationTemplateGeneration], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// lookAt looks at every object that is wanted or held.
func (c *observer) lookAt(ctx context.Context, p *pass) error {
	refs := map[tenant.Ref]bool{}
	type target struct {
		ref    tenant.Ref
		object *tenant.Object
		item   *tenant.Item
	}
	var targets []target
	for i := range p.o.Objects {
		if ref := tenant.RefOf(p.o.Objects[i].Rendered); !refs[ref] {
			refs[ref] = true
			targets = append(targets, target{ref: ref, object: &p.o.Objects[i]})
		}
	}
	for i := range p.o.Inventory {
		if ref := p.o.Inventory[i].Ref; !refs[ref] {
			refs[ref] = true
			targets = append(targets, target{ref: ref, item: &p.o.Inventory[i]})
		}
	}
	found := make([]tenant.Child, len(targets))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i, t := range targets {
		group.Go(func() (err error) {
			found[i], err = c.child(ctx, p, t.ref, t.object)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i, t := range targets {
		p.o.Live[t.ref] = found[i]
		if t.item != nil && !found[i].Owned && c.refuses(p, t.ref) != nil {
			t.item.UID = "" // where tenants may not write, only the object itself can say whose it is
		}
	}
	p.memory.only(refs)
	return nil
}

// child is what is known of one object; object is nil for one that is not wanted.
func (c *observer) child(ctx context.Context, p *pass, ref tenant.Ref, object *tenant.Object) (tenant.Child, error) {
	if object != nil {
		if f := c.refuses(p, ref); f != nil {
			return tenant.Child{Unseen: true, Failure: f}, nil
		}
	}
	if ref.Version == "" {
		return tenant.Child{Unseen: true, Failure: &tenant.Failure{Reason: tenant.KindUnknown, RetryAt: p.now.Add(lastPause),
			Message: "it is not known whether the cluster has this kind: some of its APIs do not answer"}}, nil
	}
	key := ref
	c.Children.Watches().Ensure(key.APIVersion(), key.Kind, client.ObjectKeyFromObject(p.obj))
	n := p.memory.get(ref)
	if object != nil && c.fresh(p, key, n) {
		return tenant.Child{}, nil
	}
	live, known := p.children.Recall(key, p.owner)
	if !known || live.ResourceVersion != n.version || object != nil && object.ReadyWhen != "" && n.object == nil {
		reader := p.children
		if object == nil {
			reader = c.Children // whether something is gone must be known when its account's roles are gone, too
		}
		var err error
		if live, err = reader.Read(ctx, key, p.owner); err != nil {
			return c.unseen(p, ref, object, err)
		}
		p.saw(ref, live)
		n.version, n.seen, n.blind = live.ResourceVersion, withoutStatus(live.Object), 0
		n.object = nil
		if object != nil && object.ReadyWhen != "" {
			n.object = live.Object
		}
		p.memory.put(ref, n)
	}
	child := childOf(live)
	if child.Object == nil {
		child.Object = n.object
	}
	want := ""
	if object != nil {
		want = wantedDigest(*object)
		child.Current = live.Exists && n.desired == want && n.live == n.seen
	}
	if n.failure != nil && n.tried == p.trial(want, n) {
		child.Failure = n.failure
	}
	return child, nil
}

// fresh says that an object which is wanted has not been made for any tenant, as
// far as is known. Nobody looks whether it is there: whoever makes it finds out.
// For a tenant that goes nobody makes anything, and what is not found stays behind.
// Outside the tenant's namespace it is the right to look that decides what may be
// found out, and what failed before is looked at to see whether it has changed.
func (c *observer) fresh(p *pass, key children.Key, n note) bool {
	made := slices.ContainsFunc(p.o.Inventory, func(i tenant.Item) bool { return i.UID != "" && i.Place() == key.Place() })
	return !p.o.Deleting && key.Namespace == p.obj.Namespace && !made && n.version == "" && n.failure == nil && n.blind == 0 && c.Children.Watches().Unclaimed(key)
}

// unseen is an object that could not be looked at. What has nothing to do with
// the object is an error.
func (c *observer) unseen(p *pass, ref tenant.Ref, object *tenant.Object, err error) (tenant.Child, error) {
	if meta.IsNoMatchError(err) && object == nil {
		return tenant.Child{NoKind: true}, nil // with its kind, its objects went
	}
	f, told := failureOf(p, "get", ref, err)
	if !told {
		return tenant.Child{}, err
	}
	n := p.memory.get(ref)
	f.RetryAt = p.now.Add(pause(firstSight, n.blind))
	n.blind++
	p.memory.put(ref, n)
	return tenant.Child{Unseen: true, Failure: &f}, nil
}

func childOf(l children.Live) tenant.Child {
	return tenant.Child{
		Exists: l.Exists, Deleting: l.Deleting, Owned: l.Owned, Orphaned: l.Orphaned, CreatedOnce: l.CreatedOnce,
		UID: l.UID, Generation: l.Generation, Deletion: tenant.DeletionPolicy(l.DeletionPolicy), Finalizers: l.Finalizers,
		Readiness: l.State, Message: l.Message, Object: l.Object,
	}
}

// refuses says why a tenant may not have an object there: its own namespace is
// its own, everything else is the platform's to allow, unless somebody writes
// whose rights the cluster knows.
func (c *observer) refuses(p *pass, ref tenant.Ref) *tenant.Failure {
	if ref.Namespace == p.obj.Namespace || p.account != "" || slices.Contains(c.Namespaces, "*") {
		return nil
	}
	where := "in namespace " + ref.Namespace
	if ref.Namespace == "" {
		where = "for the whole cluster"
	} else if slices.ContainsFunc(c.Namespaces, func(pattern string) bool {
		ok, err := path.Match(pattern, ref.Namespace)
		return err == nil && ok
	}) {
		return nil
	}
	return &tenant.Failure{Reason: tenant.NamespaceNotAllowed, Message: fmt.Sprintf(
		"%s would be %s, but tenants of %s may write to their own namespace only; allow it with --tenant-namespaces, or give the template a serviceAccountName that may write there",
		ref, where, p.obj.Namespace)}
}
