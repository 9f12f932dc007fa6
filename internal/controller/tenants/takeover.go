package tenants

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/terrier-iac/terrier/internal/kube/children"
	"github.com/terrier-iac/terrier/internal/tenant"
)

// kind is a kind of the cluster.
type kind struct {
	schema.GroupVersionKind
	namespaced bool
}

// kinds finds every kind of a name, in any group. Complete is false if some APIs did
// not answer.
type kinds func(name string) (found []kind, complete bool, err error)

// discover asks the server.
func discover(config *rest.Config) (kinds, error) {
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	return func(name string) (found []kind, complete bool, err error) {
		lists, err := d.ServerPreferredResources()
		complete = err == nil
		if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
			return nil, false, fmt.Errorf("discovering the kinds of the cluster: %w", err)
		}
		for _, list := range lists {
			gv, err := schema.ParseGroupVersion(list.GroupVersion)
			if err != nil {
				return nil, false, err
			}
			for _, r := range list.APIResources {
				if r.Kind == name && slices.Contains(r.Verbs, "delete") {
					found = append(found, kind{gv.WithKind(name), r.Namespaced})
				}
			}
		}
		return found, complete, nil
	}, nil
}

// takeOver fills the inventory of a Tenant that has none: with the objects that
// Tenant Operator recorded, by kinds without groups, and for a Tenant that is being
// deleted with the objects of its template.
func takeOver(p *pass) {
	rendered := map[tenant.Ref]tenant.Object{} // as a key has it: kind, namespace and name
	for _, o := range p.o.Objects {
		ref := tenant.RefOf(o.Rendered)
		rendered[tenant.Ref{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}] = o
	}
	var items []tenant.Item
	for _, key := range p.obj.Status.AppliedResources {
		item, ok := tenant.ParseKey(key)
		if !ok {
			p.departed = append(p.departed, tenant.Departure{Item: tenant.Item{ID: key, Ref: tenant.Ref{Kind: "object", Name: key}}, Unknown: true})
			continue
		}
		if o, ok := rendered[item.Ref]; ok {
			item.Ref, item.Deletion = tenant.RefOf(o.Rendered), o.Deletion
		}
		items = append(items, item)
	}
	if p.o.Deleting {
		for _, o := range p.o.Objects {
			ref := tenant.RefOf(o.Rendered)
			if !slices.ContainsFunc(items, func(i tenant.Item) bool { return i.Place() == ref.Place() }) {
				items = append(items, tenant.Item{ID: o.ID, Ref: ref, Deletion: o.Deletion})
			}
		}
	}
	p.o.Inventory = tenant.Ranked(items, p.o.Resources)
}

// resolveAll finds the kinds of items that have only the name of one.
func (c *observer) resolveAll(ctx context.Context, p *pass) error {
	for i := range p.o.Inventory {
		if item := &p.o.Inventory[i]; item.Version == "" {
			if err := c.resolve(ctx, p, item); err != nil {
				return err
			}
		}
	}
	return nil
}

// resolve finds the kind of an item: the one of which this tenant has the object. The
// item stays without a version if not every kind of the cluster is known, or may be read.
func (c *observer) resolve(ctx context.Context, p *pass, item *tenant.Item) error {
	found, complete, err := c.kinds(item.Kind)
	if err != nil {
		return p.patient(ctx, kindsOfCluster, err) // the item stays without a version
	}
	p.memory.outages.over(kindsOfCluster)
	var keys []children.Key
	for _, k := range found {
		key := children.Key{Group: k.Group, Version: k.Version, Kind: k.Kind, Namespace: item.Namespace, Name: item.Name}
		if !k.namespaced {
			key.Namespace = ""
		}
		live, err := c.leaving(ctx, p, key)
		switch {
		case apierrors.IsForbidden(err): // the object may be of this kind
			complete = false
		case err != nil:
			if err := p.patient(ctx, about{Ref: key}, fmt.Errorf("searching %s: %w", key, err)); err != nil {
				return err
			}
			complete = false
		case live.Exists && live.Owned:
			item.Ref = key
			return nil
		}
		keys = append(keys, key)
	}
	switch {
	case complete && len(keys) == 0:
		item.Version = "v1" // no such kind: the read says so
	case complete:
		item.Ref = keys[0] // it is gone, or has another owner
	}
	return nil
}
