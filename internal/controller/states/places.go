package states

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/backend"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir/module"
)

// Index is the name under which the cache finds stacks by where their state is. Its
// values are those of Place.
const Index = "terrier.state"

// Backend translates the backend of a stack. A managed one has the reference of
// its state.
func Backend(c stack.Configuration, namespace string) (module.Backend, *kube.StateRef, string) {
	b := c.Backend
	switch b.Kind {
	case stack.Kubernetes:
		return module.Kubernetes{SecretSuffix: b.Suffix, InClusterConfig: b.InCluster, ConfigPath: &b.ConfigPath, Namespace: namespace, Labels: b.Labels}, nil, "kubernetes"
	case stack.Custom:
		return module.Custom{HCL: b.Custom}, nil, ""
	case stack.Declared:
		return module.Unset{}, nil, ""
	case stack.Remote:
		return module.Cloud{Organization: b.Cloud.Organization, Workspace: b.Cloud.Workspace, Tags: b.Cloud.Tags, Hostname: b.Cloud.Hostname}, nil, "cloud"
	case stack.Plugin:
		return module.Plugin{}, nil, ""
	default:
		r := kube.RefOf(c, namespace)
		ref := &r
		if ref.Workspace != defaultWorkspace {
			// The engine's http backend knows no workspaces, so terraform.workspace
			// would read wrong; the supervisor carries a local state back and forth.
			return module.Local{}, ref, ""
		}
		return module.Managed{}, ref, ""
	}
}

const defaultWorkspace = "default"

// Workspace is the workspace of the engine that a stack's state is in.
func Workspace(c stack.Configuration) string {
	if c.Workspace == "" {
		return defaultWorkspace
	}
	return c.Workspace
}

// Place names where a stack keeps its state, the same for two that spell it in
// two ways. It is empty where two stacks that say the same may still mean two
// places.
func Place(c stack.Configuration, namespace string) string {
	b, workspace := c.Backend, Workspace(c)
	switch b.Kind {
	case stack.Managed:
		if b.Git != nil {
			return b.Git.In(namespace, b.Suffix, workspace).Key(namespace)
		}
		return secretPlace(namespace, workspace, b.Suffix)
	case stack.Kubernetes:
		if b.ConfigPath == "" || len(c.Completes) > 0 {
			return ""
		}
		return stack.Digest(module.KubernetesPlace(b.ConfigPath, namespace, workspace, b.Suffix))
	case stack.Custom:
		place := module.CustomPlace(b.Custom, workspace)
		switch {
		case place.Parts == nil:
			return ""
		case len(c.Completes) > 0: // what completes it is known by name alone
			return stack.Digest([]any{place.Parts, namespace, c.Completes})
		case place.Secret != nil: // a managed state may be in there
			return secretPlace(place.Secret[0], place.Secret[1], place.Secret[2])
		default:
			return stack.Digest(place.Parts)
		}
	case stack.Remote:
		if b.Cloud == nil || b.Cloud.Workspace == "" {
			return ""
		}
		return stack.Digest(module.CloudPlace(b.Cloud.Hostname, b.Cloud.Organization, b.Cloud.Workspace))
	case stack.Plugin:
		place := module.PluginPlace(b, namespace, workspace)
		switch {
		case place.Parts == nil:
			return ""
		case place.Secret != nil:
			return secretPlace(place.Secret[0], place.Secret[1], place.Secret[2])
		default:
			return stack.Digest(place.Parts)
		}
	default:
		return ""
	}
}

// ManagedPlace identifies the place of a state that Terrier keeps.
func ManagedPlace(ref kube.StateRef) string {
	if ref.Git != nil {
		return ref.Git.Key(ref.Namespace)
	}
	return "secret/" + ref.String()
}

// LastStateIn is what the facts of a state say that Terrier keeps.
func LastStateIn(ref kube.StateRef, facts stack.StateFacts) stack.LastState {
	return stack.LastStateIn(ManagedPlace(ref), ref.InWords(), true, facts)
}

// Named is where a stack keeps its state, for people. Only arguments are shown that are no
// credentials.
func Named(c stack.Configuration, namespace string) string {
	_, ref, _ := Backend(c, namespace)
	if ref != nil {
		return ref.InWords()
	}
	b, workspace := c.Backend, Workspace(c)
	name := "the backend of the module"
	switch b.Kind {
	case stack.Kubernetes:
		name = fmt.Sprintf("the backend kubernetes (secret_suffix %q)", b.Suffix)
	case stack.Custom:
		name = "the backend of the customConfiguration"
		if place := module.CustomPlace(b.Custom, workspace); place.Shown() != "" {
			name = "the backend " + place.Shown()
		}
	case stack.Remote:
		name = fmt.Sprintf("the cloud %s (organization %q, workspace %q)", b.Cloud.Hostname, b.Cloud.Organization, b.Cloud.Workspace)
	case stack.Plugin:
		name = "the backend " + b.Plugin + shownSettings(b, namespace, workspace)
	case stack.Managed, stack.Declared:
	}
	if workspace != defaultWorkspace {
		name += fmt.Sprintf(" in the workspace %q", workspace)
	}
	return name
}

// shownSettings are the arguments of a backend that Terrier knows by which users find a state.
func shownSettings(b stack.Backend, namespace, workspace string) string {
	known, ok := backend.Find(b.Plugin)
	if !ok {
		return ""
	}
	block, err := known.Render(backend.For(b, namespace, workspace))
	if err != nil {
		return ""
	}
	var shown []string
	for _, name := range []string{"bucket", "storage_account_name", "container_name", "key", "prefix", "schema_name", "namespace", "secret_suffix", "path"} {
		if text := block.Text(name); text != "" {
			shown = append(shown, fmt.Sprintf("%s %q", name, text))
		}
	}
	if len(shown) == 0 {
		return ""
	}
	return " (" + strings.Join(shown, ", ") + ")"
}

func secretPlace(namespace, workspace, suffix string) string {
	return "secret/" + kube.StateRef{Namespace: namespace, Workspace: workspace, Suffix: suffix}.String()
}

// established reports whether a stack applied something where its state is.
func established(st dialect.Stack) bool {
	a := st.Status.Applied
	return a != nil && a.PlanInputs.Shape == st.Configuration.Shape()
}

// unshared refuses to use a place that another stack has before this one:
// that of a state that was never written, or one in a backend of its own and whose
// owner we cannot read.
func (kp *Keeper) unshared(ctx context.Context, of Subject, kind stack.RunKind) error {
	place := Place(of.Asked.Configuration, of.Object.GetNamespace())
	if place == "" || kind == stack.HealthRun || kind == stack.StepsRun {
		return nil
	}
	var found error
	err := kp.Dialects.EachStack(ctx, kp.Cache, func(d dialect.Dialect, other client.Object) error {
		if other.GetUID() != of.Object.GetUID() && before(d, other, of) {
			found = fault.New(fault.Denied, string(stack.StateShared), fmt.Errorf(
				"the stack %s keeps its state in the same place, and was there first. Give one of the two another %s. Terrier runs nothing on it", client.ObjectKeyFromObject(other), of.Observed.Spec.Words.StatePlace))
		}
		return nil
	}, client.MatchingFields{Index: place})
	if err != nil {
		err = fmt.Errorf("looking for stacks with the same state: %w", err)
	}
	return errors.Join(err, found)
}

// before reports whether other comes first: a stack that applied something
// there comes before one that did not, and then the older one.
func before(d dialect.Dialect, other client.Object, of Subject) bool {
	st, err := d.Decode(other)
	if err != nil {
		return false // nothing is run for it
	}
	mine, theirs := established(of.Asked), established(st)
	if mine != theirs {
		return theirs
	}
	return cmp.Or(other.GetCreationTimestamp().Compare(of.Object.GetCreationTimestamp().Time), cmp.Compare(other.GetUID(), of.Object.GetUID())) < 0
}
