package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/stack"
)

// dependencyDepth bounds how far a chain of dependencies is followed.
const dependencyDepth = 64

// dependencies returns the first dependency that is not ready.
func (c *Stacks) dependencies(ctx context.Context, p *pass) (*stack.Blocked, error) {
	for _, ref := range p.st.Configuration.DependsOn {
		key := c.keyOf(ref, p.obj)
		if key.Namespace != p.obj.GetNamespace() && !c.Config.CrossNamespace {
			return &stack.Blocked{Kind: fault.Denied, Reason: stack.SourceDenied,
				Message: fmt.Sprintf("dependsOn: %s is in another namespace, which this platform does not allow", key)}, nil
		}
		why, err := c.dependency(ctx, p, key)
		if err != nil {
			return nil, err
		}
		if why != "" {
			return &stack.Blocked{Kind: fault.Later, Reason: stack.DependencyNotReady, Message: why}, nil
		}
	}
	return nil, nil
}

// dependency says why key cannot be relied on yet, or nothing.
func (c *Stacks) dependency(ctx context.Context, p *pass, key types.NamespacedName) (string, error) {
	if chain, err := c.cycle(ctx, client.ObjectKeyFromObject(p.obj), key); err != nil || chain != "" {
		return chain, err
	}
	obj := c.Dialect.New()
	if err := c.Client.Get(ctx, key, obj); err != nil {
		return fmt.Sprintf("dependency %s does not exist", key), client.IgnoreNotFound(err)
	}
	if ready, why := c.Dialect.Ready(obj); !ready {
		return fmt.Sprintf("dependency %s is not ready: %s", key, why), nil
	}
	dep, err := c.Dialect.Decode(obj)
	if err != nil {
		return fmt.Sprintf("dependency %s is not valid: %v", key, err), nil
	}
	m := dep.Status
	if a, b := dep.Configuration.Source, p.st.Configuration.Source; a != nil && b != nil && *a == *b && m.Planned.Source != p.o.PlanInputs.Source {
		return fmt.Sprintf("dependency %s has not seen revision %s yet", key, p.o.PlanInputs.Revision), nil
	}
	if dep.Configuration.Outputs != nil && m.Published == "" {
		return fmt.Sprintf("dependency %s has not published its outputs yet", key), nil
	}
	return "", nil
}

// cycle follows dependencies from next and says so if they lead back to start.
func (c *Stacks) cycle(ctx context.Context, start, next types.NamespacedName) (string, error) {
	type step struct {
		key  types.NamespacedName
		path []string
	}
	queue, seen := []step{{next, []string{start.String(), next.String()}}}, map[types.NamespacedName]bool{}
	for len(queue) > 0 && len(seen) < dependencyDepth {
		s := queue[0]
		queue = queue[1:]
		if s.key == start {
			return "dependsOn is a cycle: " + strings.Join(s.path, " → "), nil
		}
		if seen[s.key] {
			continue
		}
		seen[s.key] = true
		obj := c.Dialect.New()
		if err := c.Client.Get(ctx, s.key, obj); err != nil {
			if client.IgnoreNotFound(err) == nil {
				continue
			}
			return "", err
		}
		dep, err := c.Dialect.Decode(obj)
		if err != nil {
			continue // reported where it is the object itself
		}
		for _, ref := range dep.Configuration.DependsOn {
			k := c.keyOf(ref, obj)
			queue = append(queue, step{k, append(slices.Clone(s.path), k.String())})
		}
	}
	return "", nil
}

// dependents lists the stacks that depend on obj and go before it.
func (c *Stacks) dependents(ctx context.Context, obj client.Object) ([]string, error) {
	list := c.Dialect.NewList()
	if err := c.Client.List(ctx, list, client.MatchingFields{indexDependsOn: client.ObjectKeyFromObject(obj).String()}); err != nil {
		return nil, err
	}
	var names []string
	err := meta.EachListItem(list, func(o runtime.Object) error {
		dependant := o.(client.Object)
		if !obj.GetDeletionTimestamp().IsZero() && !dependant.GetDeletionTimestamp().IsZero() {
			// Two that wait for each other and are both to go have no order.
			circle, err := c.cycle(ctx, client.ObjectKeyFromObject(dependant), client.ObjectKeyFromObject(obj))
			if err != nil || circle != "" {
				return err
			}
		}
		name := dependant.GetName()
		if dependant.GetNamespace() != obj.GetNamespace() {
			name = dependant.GetNamespace() + "/" + name
		}
		names = append(names, name)
		return nil
	})
	slices.Sort(names)
	return names, err
}

// relieve takes off the dependencies of a stack that goes the finalizers that
// upstream put on them for it. Nobody here needs them, but upstream, should it
// come back, would wait for ever for a stack that is gone.
func (c *Stacks) relieve(ctx context.Context, p *pass) error {
	name := p.obj.GetName()
	for _, ref := range p.st.Configuration.DependsOn {
		key := c.keyOf(ref, p.obj)
		if key.Namespace != p.obj.GetNamespace() && !c.Config.CrossNamespace {
			continue
		}
		dep := c.Dialect.New()
		if err := c.Live.Get(ctx, key, dep); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return fmt.Errorf("reading the dependency %s: %w", key, err)
		}
		before := dep.DeepCopyObject().(client.Object)
		if !controllerutil.RemoveFinalizer(dep, c.Dialect.DependencyFinalizer()+name) {
			continue
		}
		// Upstream leaves out the namespace of the dependant, so that another one of
		// the same name may need the same finalizer.
		others, err := c.dependents(ctx, dep)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(others, func(o string) bool { return strings.HasSuffix(o, "/"+name) }) {
			continue
		}
		err = c.Live.Patch(ctx, dep, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(kube.FieldManager))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("releasing the dependency %s: %w", key, err)
		}
	}
	return nil
}

func (c *Stacks) keyOf(ref stack.Ref, from client.Object) types.NamespacedName {
	ns := ref.Namespace
	if ns == "" {
		ns = from.GetNamespace()
	}
	return types.NamespacedName{Namespace: ns, Name: ref.Name}
}
