package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

// Tenants carries out commands on registries and templates, and answers questions
// about them and about tenants.
type Tenants struct{ *query.Tenants }

// NewTenants returns the Tenants that the client of stacks may see and change.
func NewTenants(stacks *Stacks, config *rest.Config) *Tenants {
	return &Tenants{query.NewTenants(stacks.Stacks, config)}
}

// editRegistry changes the object of a registry, as editor.edit does that of a
// stack.
func (t *Tenants) editRegistry(ctx context.Context, key query.Key, change func(*tenantsv1.TenantRegistry) error) error {
	return editTenants(ctx, t, func() (*tenantsv1.TenantRegistry, error) { return t.RegistryObject(ctx, key) }, "registry "+key.String(), change)
}

// editTenants changes an object of one of the kinds of tenants, and retries on a
// conflict.
func editTenants[T client.Object](ctx context.Context, t *Tenants, read func() (T, error), what string, change func(T) error) error {
	var err error
	for range edits {
		var o T
		if o, err = read(); err != nil {
			return err
		}
		before, ok := o.DeepCopyObject().(T)
		if !ok {
			return errors.New("a copy of another kind") // never: DeepCopyObject returns its own type
		}
		if err := change(o); err != nil {
			return err
		}
		err = query.TenantsFault(t.Kube.Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(access.FieldManager)), what)
		if fault.Of(err) != fault.Conflict {
			return err
		}
	}
	return err
}

func note(o client.Object, name, value string) {
	a := o.GetAnnotations()
	if a == nil {
		a = map[string]string{}
	}
	a[name] = value
	o.SetAnnotations(a)
}

// ReadNow asks the controller to read the rows, and returns the request.
func (t *Tenants) ReadNow(ctx context.Context, key query.Key) (request string, err error) {
	request = t.Now().UTC().Format(time.RFC3339Nano)
	return request, t.editRegistry(ctx, key, func(o *tenantsv1.TenantRegistry) error {
		if o.Spec.Suspend {
			return fault.New(fault.Invalid, query.ReasonRegistryIdle, fmt.Errorf("the registry %s is suspended", key))
		}
		note(o, tenantsv1.AnnotationSyncNow, request)
		return nil
	})
}

// Allow allows exactly the deletions that token stands for. If other deletions are
// blocked by now it is a Conflict, and none is allowed.
func (t *Tenants) Allow(ctx context.Context, key query.Key, token string) error {
	return t.editRegistry(ctx, key, func(o *tenantsv1.TenantRegistry) error {
		switch b := o.Status.Blocked; {
		case b == nil || b.Token == "":
			return fault.New(fault.Conflict, query.ReasonNotBlocked, fmt.Errorf("no deletions of %s are blocked", key))
		case b.Token != token:
			return fault.New(fault.Conflict, query.ReasonTokenChanged, fmt.Errorf("the blocked deletions of %s changed since they were shown", key))
		}
		note(o, tenantsv1.AnnotationAllowDeletions, token)
		return nil
	})
}

// SuspendRegistry stops reading rows and changing tenants until ResumeRegistry.
func (t *Tenants) SuspendRegistry(ctx context.Context, key query.Key) error {
	return t.setSuspended(ctx, key, true)
}

// ResumeRegistry reads rows again.
func (t *Tenants) ResumeRegistry(ctx context.Context, key query.Key) error {
	return t.setSuspended(ctx, key, false)
}

func (t *Tenants) setSuspended(ctx context.Context, key query.Key, to bool) error {
	return t.editRegistry(ctx, key, func(o *tenantsv1.TenantRegistry) error {
		o.Spec.Suspend = to
		return nil
	})
}
