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
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube/children"
	"github.com/terrier-iac/terrier/internal/tenant"
	"github.com/terrier-iac/terrier/internal/tenantapi"
)

// parallel is how many objects of one tenant are read or written at once.
const parallel = 4

// observer reads Tenants, their rows and their objects.
type observer struct {
	Options
	kinds  kinds
	memory *objects[memory]
}

// begin begins a pass over a Tenant.
func (c *observer) begin(obj *tenantsv1.Tenant) *pass {
	return &pass{
		obj: obj, now: c.Now().UTC().Truncate(time.Second), children: c.Children, // times in a status have no fractions
		owner: children.Owner{
			APIVersion: tenantsv1.GroupVersion.String(), Kind: tenantsv1.TenantKind,
			Namespace: obj.Namespace, Name: obj.Name, UID: string(obj.UID), TenantID: tenant.Label(obj.Spec.UID),
		},
		memory: c.memory.of(obj, func() *memory { return &memory{notes: map[tenant.Ref]note{}} }),
		seen:   map[tenant.Ref]children.Live{},
		said:   digest([]any{obj.Generation, obj.Annotations}),
	}
}

// observe reads the objects of a Tenant.
func (c *observer) observe(ctx context.Context, p *pass) error {
	obj := p.obj
	if name := obj.Spec.ServiceAccountName; name != "" {
		p.account = obj.Namespace + "/" + name
		if as, err := c.Children.As(obj.Namespace, name); err == nil {
			p.children = as
		} else {
			p.refused = &tenant.Failure{Reason: tenant.AccountInvalid, Message: fmt.Sprintf("spec.%v. Correct it in the TenantTemplate %s%s", err, obj.Spec.TemplateRef, andHere(obj))}
		}
	}
	p.o = tenant.Observed{
		Now: p.now, Deleting: !obj.DeletionTimestamp.IsZero(),
		Protected: tenantapi.Protected(obj.Annotations),
		Inventory: inventoryOf(obj), Before: verdictsOf(obj, p.memory.verdicts), Live: map[tenant.Ref]tenant.Child{},
	}
	if err := c.render(ctx, p); err != nil {
		return err
	}
	if p.coming > 0 {
		return nil
	}
	p.recorded = map[tenant.Ref]bool{}
	for _, i := range p.o.Inventory {
		p.recorded[i.Place()] = true
	}
	if len(obj.Status.Inventory) == 0 {
		takeOver(p)
	}
	if err := c.resolveAll(ctx, p); err != nil {
		return err
	}
	p.findRoom()
	return c.readAll(ctx, p)
}

// andHere is where else to correct a field of a Tenant: one that is being deleted gets no
// other generation of its template.
func andHere(obj *tenantsv1.Tenant) string {
	if obj.DeletionTimestamp.IsZero() {
		return ""
	}
	return ", and in this Tenant, which is being deleted"
}

// render renders the objects of p, or says why there are none. Only a passing
// failure is an error.
func (c *observer) render(ctx context.Context, p *pass) error {
	generation := generationOf(p.obj)
	template, err := tenantapi.Pinned(p.obj, generation)
	if err != nil {
		p.o.Broken = &tenant.Failure{Reason: tenant.SortError, Message: err.Error()}
		return nil
	}
	p.o.Resources = template.Resources
	if p.o.Deleting && len(p.o.Inventory) > 0 {
		return c.redactDeleting(ctx, p) // the inventory says what to delete
	}
	row, err := c.row(ctx, p)
	if err != nil {
		if fault.Of(err) == fault.Broken && !p.o.Deleting {
			again, lasting := p.memory.outages.lasts(rowOfTenant, p.now)
			if !lasting || ctx.Err() != nil {
				return err
			}
			p.blind = true
			p.o.Broken = &tenant.Failure{Reason: tenant.VariablesBuildError, Message: err.Error(), RetryAt: p.now.Add(again)}
			return nil
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
	p.memory.outages.over(rowOfTenant)
	values := tenant.ValuesOf(row, tenantapi.RegistryOf(p.obj), p.obj.Spec.TemplateRef)
	p.o.Objects, p.o.Errors = tenant.Render(template, values, tenant.RenderOptions{
		Namespace: p.obj.Namespace, TenantUID: p.obj.Spec.UID,
		Types: c.Children.Types(), IsNamespaced: c.Children.Types().IsNamespaced,
	})
	p.redact(row)
	return nil
}

// redactDeleting redacts the row of a Tenant that is being deleted by its
// inventory: its stacks say why they are not destroyed, and may quote it. A row that
// is lost, or that Terrier cannot read, stops no deletion. As long as it cannot be read, what
// objects say is hidden.
func (c *observer) redactDeleting(ctx context.Context, p *pass) error {
	row, err := c.row(ctx, p)
	switch {
	case err == nil:
		p.redact(row)
	case fault.Of(err) == fault.Broken:
		if _, lasting := p.memory.outages.lasts(rowOfTenant, p.now); !apierrors.IsForbidden(err) && (!lasting || ctx.Err() != nil) {
			return err
		}
		p.blind = true
	}
	return nil
}

// hiddenMessage is in place of what an object says that may quote a row which cannot be read.
const hiddenMessage = "what it says is hidden, since it may quote the row of the tenant, which cannot be read"

// generationOf is the template generation of a Tenant; zero for one that a user
// created.
func generationOf(t *tenantsv1.Tenant) int64 {
	n, err := strconv.ParseInt(t.Annotations[tenantsv1.AnnotationTemplateGeneration], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// readAll reads every object that is wanted or in the inventory.
func (c *observer) readAll(ctx context.Context, p *pass) error {
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
	var group errgroup.Group // each object that cannot be read is to be known
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
		if t.item != nil && !found[i].Owned && c.notAllowed(p, t.ref) != nil {
			t.item.UID = "" // where tenants may not write, only the object itself can name its owner
		}
	}
	p.memory.only(refs)
	return nil
}

// child observes one object; object is nil for one that is not wanted.
func (c *observer) child(ctx context.Context, p *pass, ref tenant.Ref, object *tenant.Object) (tenant.Child, error) {
	if p.refused != nil {
		return tenant.Child{Unseen: true, Failure: p.refused}, nil
	}
	if p.full[ref] {
		return tenant.Child{Unseen: true, NoRoom: true, Failure: p.noRoom()}, nil
	}
	if object != nil {
		if f := c.notAllowed(p, ref); f != nil {
			return tenant.Child{Unseen: true, Failure: f}, nil
		}
	}
	if ref.Version == "" {
		return tenant.Child{Unseen: true, Failure: &tenant.Failure{Reason: tenant.KindUnknown, RetryAt: p.now.Add(lastPause),
			Message: "some APIs of the cluster do not answer, or Terrier may not read one of them, so that the kind of this object is unknown"}}, nil
	}
	key := ref
	c.Children.Watches().Ensure(key.APIVersion(), key.Kind, client.ObjectKeyFromObject(p.obj))
	n := p.memory.get(ref)
	if object != nil && c.fresh(p, key, n) {
		return tenant.Child{}, nil
	}
	live, known := p.children.Recall(key, p.owner)
	if !known || live.ResourceVersion != n.version || object != nil && object.ReadyWhen != "" && n.object == nil {
		var err error
		if object == nil {
			live, err = c.leaving(ctx, p, key)
		} else {
			live, err = p.children.Read(ctx, key, p.owner)
		}
		if err != nil {
			return c.unseen(ctx, p, ref, object, err)
		}
		p.saw(ref, live)
		n.version, n.seen, n.denied = live.ResourceVersion, withoutStatus(live.Object), 0
		n.object = nil
		if object != nil && object.ReadyWhen != "" {
			n.object = live.Object
		}
		p.memory.put(ref, n)
		p.memory.outages.over(about{Ref: ref})
	}
	child := c.childOf(key, live)
	if child.Object == nil {
		child.Object = n.object
	}
	if p.blind && child.Message != "" {
		child.Message = hiddenMessage
	}
	want := ""
	if object != nil {
		want = p.wantedDigest(*object)
		child.Current = live.Exists && n.desired == want && n.live == n.seen
	}
	if n.failure != nil && n.tried == p.trial(want, n) {
		child.Failure = n.failure
	}
	return child, nil
}

// leaving reads an object that is to go. Its end must be seen even when the roles of the
// account are gone, and also where the controller itself has no role for the kind.
func (o Options) leaving(ctx context.Context, p *pass, key children.Key) (children.Live, error) {
	live, err := o.Children.Read(ctx, key, p.owner)
	if apierrors.IsForbidden(err) {
		return p.children.Read(ctx, key, p.owner)
	}
	return live, err
}

// fresh reports whether a wanted object was probably never created for a tenant.
// Terrier then creates it without reading it first. It reads the objects of a
// tenant that is being deleted, since it creates none of them; objects outside the
// tenant's namespace, since the account must have the right to read them; and
// objects that failed before, to see whether they have changed.
func (c *observer) fresh(p *pass, key children.Key, n note) bool {
	made := slices.ContainsFunc(p.o.Inventory, func(i tenant.Item) bool { return i.UID != "" && i.Place() == key.Place() })
	return !p.o.Deleting && key.Namespace == p.obj.Namespace && !made && n.version == "" && n.failure == nil && n.denied == 0 && c.Children.Watches().Unclaimed(key)
}

// unseen is an object that could not be read. A failure of the server is an error, unless
// it lasts.
func (c *observer) unseen(ctx context.Context, p *pass, ref tenant.Ref, object *tenant.Object, err error) (tenant.Child, error) {
	if meta.IsNoMatchError(err) && object == nil {
		return tenant.Child{NoKind: true}, nil // its objects were deleted with the kind
	}
	f, concerns := failureOf(p, "get", ref, err)
	if !concerns {
		if lasting := p.unavailable(ctx, "get", ref, err); lasting != nil {
			return tenant.Child{Unseen: true, Failure: lasting}, nil
		}
		return tenant.Child{}, err
	}
	n := p.memory.get(ref)
	f.RetryAt = p.now.Add(pause(firstDenied, n.denied))
	n.denied++
	p.memory.put(ref, n)
	return tenant.Child{Unseen: true, Failure: &f}, nil
}

func (o Options) childOf(key children.Key, l children.Live) tenant.Child {
	return tenant.Child{
		Exists: l.Exists, Deleting: l.Deleting, Owned: l.Owned, Orphaned: l.Orphaned, Tied: l.Tied, CreatedOnce: l.CreatedOnce,
		UID: l.UID, Generation: l.Generation, Deletion: tenant.DeletionPolicy(l.DeletionPolicy), Finalizers: l.Finalizers,
		Readiness: l.State, Message: l.Message, Depends: l.Depends, Object: l.Object,
		Unwatched: o.Children.Watches().Unwatched(key),
	}
}

// notAllowed says why a tenant may not have an object there. A tenant may write to
// its own namespace, and to those that the platform allows. RBAC alone decides for
// a ServiceAccount.
func (c *observer) notAllowed(p *pass, ref tenant.Ref) *tenant.Failure {
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
		"%s would be %s, but tenants of %s may write to their own namespace only; allow it with --tenant-namespaces, or set a serviceAccountName in the template that may write there",
		ref, where, p.obj.Namespace)}
}
