package tenants

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/tenant"
	"github.com/terrier-iac/terrier/internal/tenantapi"
)

// observe gathers the inputs of a step.
func (c *Registries) observe(ctx context.Context, l *registryPass) error {
	s := &l.obj.Status
	l.known = tenant.Known{
		Now: c.Now(), Registry: l.obj.Namespace + "/" + l.obj.Name, Guard: tenantapi.Guard(l.obj),
		Read: l.memory.read, Taken: map[string]string{},
		Digest: func(r tenant.Row) string { return digestOf(c.Key, r) },
	}
	if a := l.obj.Annotations[tenantsv1.AnnotationAllowDeletions]; a == l.memory.permit {
		l.known.Allowed = a // rows from before a permission do not count for it
	}
	if b := s.Blocked; b != nil && b.Token != "" {
		l.known.Blocked = &tenant.Blocked{Token: b.Token, Since: b.Since.Time}
	} else if l.memory.allowed != nil && l.memory.allowedAt.Equal(l.memory.read.Time) {
		l.known.Blocked = l.memory.allowed // the cache may not show yet what was done at this read
	}
	if s.DeparturesFrom != nil {
		l.known.From = s.DeparturesFrom.Time
	}
	l.known.Read.OK = l.known.Read.OK && l.memory.err == nil && !l.waiting
	for _, d := range s.Departed {
		l.known.Departed = append(l.known.Departed, tenant.Departed{UID: d.UID, Time: d.Time.Time, Count: int(d.Count)})
	}
	if err := c.observeTemplates(ctx, l); err != nil {
		return err
	}
	return c.observeTenants(ctx, l)
}

func (c *Registries) observeTemplates(ctx context.Context, l *registryPass) error {
	var list tenantsv1.TenantTemplateList
	if err := c.cache.List(ctx, &list, client.InNamespace(l.obj.Namespace), client.MatchingFields{indexRegistry: l.obj.Name}); err != nil {
		return fmt.Errorf("listing templates: %w", err)
	}
	l.specs = map[string]*tenantsv1.TenantTemplate{}
	for i := range list.Items {
		t := &list.Items[i]
		l.specs[t.Name] = t
		l.known.Templates = append(l.known.Templates, c.templates.known(t, l.obj))
	}
	return nil
}

// observeTenants sorts the Tenants of the namespace into those of the registry and
// others.
func (c *Registries) observeTenants(ctx context.Context, l *registryPass) error {
	var list tenantsv1.TenantList
	if err := c.cache.List(ctx, &list, client.InNamespace(l.obj.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing tenants: %w", err)
	}
	kept, err := c.rowsKept(ctx, l)
	if err != nil {
		return err
	}
	l.tenants = map[string]*tenantsv1.Tenant{}
	for i := range list.Items {
		t := &list.Items[i]
		if t.Labels[tenantsv1.LabelRegistry] != tenant.Label(l.obj.Name) {
			l.known.Taken[t.Name] = holderOf(t)
			continue
		}
		e := tenantapi.Existing(t)
		if !kept[t.Name] {
			e.Row = "" // the Secret is lost and has to be written again
		}
		l.tenants[t.Name] = t
		l.known.Tenants = append(l.known.Tenants, e)
	}
	l.memory.onlyOf(l.tenants)
	return nil
}

func holderOf(t *tenantsv1.Tenant) string {
	if other := tenantapi.RegistryOf(t); other != "" {
		return "the registry " + other
	}
	return "a tenant that belongs to no registry"
}

// rowsKept are the Tenants whose rows exist by the cache, and those whose rows were
// written just now.
func (c *Registries) rowsKept(ctx context.Context, l *registryPass) (map[string]bool, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	if err := c.cache.List(ctx, list, client.InNamespace(l.obj.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the rows of tenants: %w", err)
	}
	kept := map[string]bool{}
	for i := range list.Items {
		if name, ok := strings.CutPrefix(list.Items[i].Name, tenantapi.RowSecret("")); ok {
			kept[name] = true
		}
	}
	l.memory.mu.Lock()
	defer l.memory.mu.Unlock()
	for name := range l.memory.kept {
		if kept[name] {
			delete(l.memory.kept, name) // from now on the cache knows
		}
		kept[name] = true
	}
	return kept, nil
}
