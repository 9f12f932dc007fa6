package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"

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
func (wt *watches) stateKeys(obj client.Object) []string {
	st := wt.decoded(obj)
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
// that of a state that was never written, or one in a backend of its own and whose
// owner we cannot read.
func (sts *states) unshared(ctx context.Context, p *pass, kind stack.RunKind) error {
	place := placeOf(p.st.Configuration, p.obj.GetNamespace())
	if place == "" || kind == stack.HealthRun {
		return nil
	}
	var found error
	err := eachStack(ctx, sts.cache, sts.dialects, func(d dialect.Dialect, other client.Object) error {
		if other.GetUID() != p.obj.GetUID() && before(d, other, p) {
			found = fault.New(fault.Denied, string(stack.StateShared), fmt.Errorf(
				"the stack %s keeps its state in the same place, and was there first. Give one of the two another backend key, backendConfig.secretSuffix or workspace. Terrier runs nothing on it", client.ObjectKeyFromObject(other)))
		}
		return nil
	}, client.MatchingFields{indexState: place})
	if err != nil {
		err = fmt.Errorf("looking for stacks with the same state: %w", err)
	}
	return errors.Join(err, found)
}

// before reports whether other has the better claim: a stack that applied something
// there comes before one that did not, and then the older one.
func before(d dialect.Dialect, other client.Object, p *pass) bool {
	st, err := d.Decode(other)
	if err != nil {
		return false // nothing is run for it
	}
	mine, theirs := established(p.st), established(st)
	if mine != theirs {
		return theirs
	}
	return cmp.Or(other.GetCreationTimestamp().Compare(p.obj.GetCreationTimestamp().Time), cmp.Compare(other.GetUID(), p.obj.GetUID())) < 0
}
