package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir/module"
)

// indexState finds stacks by where their state is.
const indexState = "terrier.state"

// stateKeys is where the state of obj is, if two stacks could mean one place.
func (c *Stacks) stateKeys(obj client.Object) []string {
	st, _ := c.Dialect.Decode(obj) // an error is the object's own to report
	if place := placeOf(st.Configuration, obj.GetNamespace()); place != "" {
		return []string{place}
	}
	return nil
}

// placeOf names where a program keeps its state. It is empty where two programs
// that say the same may still mean two places.
func placeOf(p stack.Configuration, namespace string) string {
	b, workspace := p.Backend, workspaceOf(p)
	secret := kube.StateRef{Namespace: namespace, Workspace: workspace, Suffix: b.Suffix}.String()
	switch b.Kind {
	case stack.Managed:
		return "secret/" + secret
	case stack.Kubernetes:
		if b.ConfigPath == "" || len(p.Completes) > 0 {
			return ""
		}
		return stack.Digest([]any{b.Kind, b.ConfigPath, secret})
	case stack.Custom:
		if !module.Somewhere(b.Custom) {
			return ""
		}
		key := []any{b.Kind, b.Custom, workspace}
		if len(p.Completes) > 0 {
			key = append(key, namespace, p.Completes)
		}
		return stack.Digest(key)
	case stack.Remote:
		if b.Cloud == nil || b.Cloud.Workspace == "" {
			return ""
		}
		return stack.Digest([]any{b.Kind, b.Cloud.Hostname, b.Cloud.Organization, b.Cloud.Workspace})
	default:
		return ""
	}
}

// established reports whether a stack applied something where its state is.
func established(st dialect.Stack) bool {
	a := st.Status.Applied
	return a != nil && a.PlanInputs.Shape == st.Configuration.Shape()
}

// unshared refuses to use a place that another stack has a better claim to:
// that of a state that nobody wrote yet, or one that we do not keep and whose
// owner we cannot read.
func (c *Stacks) unshared(ctx context.Context, p *pass, kind stack.RunKind) error {
	place := placeOf(p.st.Configuration, p.obj.GetNamespace())
	if place == "" || kind == stack.HealthRun {
		return nil
	}
	list := c.Dialect.NewList()
	if err := c.Client.List(ctx, list, client.MatchingFields{indexState: place}); err != nil {
		return fmt.Errorf("looking for stacks with the same state: %w", err)
	}
	var found error
	err := meta.EachListItem(list, func(o runtime.Object) error {
		other, ok := o.(client.Object)
		if ok && other.GetUID() != p.obj.GetUID() && c.before(other, p) {
			found = fault.New(fault.Denied, string(stack.StateShared), fmt.Errorf(
				"the stack %s keeps its state in the same place, and was there first: give one of the two another backend key, backendConfig.secretSuffix or workspace. Nothing is run on it", client.ObjectKeyFromObject(other)))
		}
		return nil
	})
	return errors.Join(err, found)
}

// before reports whether other has the better claim: whoever applied something
// there comes before whoever did not, and then the older one.
func (c *Stacks) before(other client.Object, p *pass) bool {
	st, err := c.Dialect.Decode(other)
	if err != nil {
		return false // nothing is run for it
	}
	mine, theirs := established(p.st), established(st)
	if mine != theirs {
		return theirs
	}
	return cmp.Or(other.GetCreationTimestamp().Compare(p.obj.GetCreationTimestamp().Time), cmp.Compare(other.GetUID(), p.obj.GetUID())) < 0
}
