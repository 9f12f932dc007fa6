package policyapi

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/terrier-iac/terrier/api/policy/v1alpha1"
	"github.com/terrier-iac/terrier/internal/policy"
)

// Stack names a stack, with its API group and its kind.
type Stack struct{ Group, Kind, Namespace, Name string }

// Subject is what selectors look at. NewSubject makes one.
type Subject struct {
	Stack
	Tenant, Environment string
	Labels, Of          labels.Set // of the stack and of its namespace
}

// NewSubject is a stack with its own labels and those of its namespace.
// Labels of the namespace count more: users who may edit a stack change its labels.
func NewSubject(s Stack, tenantLabel string, own, of map[string]string) Subject {
	return Subject{
		Stack: s, Labels: own, Of: of,
		Tenant:      cmp.Or(of[tenantLabel], own[tenantLabel], s.Namespace),
		Environment: cmp.Or(of[v1alpha1.EnvironmentLabel], own[v1alpha1.EnvironmentLabel]),
	}
}

// Selector selects stacks. One that could not be read selects all stacks of its policy:
// their plans are held. The zero value selects every stack.
type Selector struct {
	in                                        string // the namespace of a Policy
	namespaces, tenants, environments, groups []string
	byNamespace, byStack                      labels.Selector

	// Targets are those of a Policy object of the Weave policy agent; nil for all.
	Targets func(kind, namespace, name string, labels map[string]string) bool
}

// SelectorOf reads the selector of a policy in a namespace, which is empty for a
// ClusterPolicy.
func SelectorOf(s v1alpha1.Selector, in string) (Selector, error) {
	out := Selector{in: in, namespaces: s.Namespaces, tenants: s.Tenants, environments: s.Environments, groups: s.Kinds}
	for field, l := range map[string]*metav1.LabelSelector{"namespaceSelector": s.NamespaceSelector, "stackSelector": s.StackSelector} {
		if l == nil {
			continue
		}
		by, err := metav1.LabelSelectorAsSelector(l)
		if err != nil {
			return Selector{in: in}, fmt.Errorf("spec.selector.%s: %w", field, err)
		}
		if field == "stackSelector" {
			out.byStack = by
		} else {
			out.byNamespace = by
		}
	}
	return out, nil
}

// Selects reports whether the policy is for a stack.
func (s Selector) Selects(of Subject) bool {
	matches := func(patterns []string, text string) bool {
		return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool { return policy.Glob(p, text) })
	}
	return (s.in == "" || s.in == of.Namespace) &&
		(len(s.groups) == 0 || slices.Contains(s.groups, of.Group)) &&
		matches(s.namespaces, of.Namespace) && matches(s.tenants, of.Tenant) && matches(s.environments, of.Environment) &&
		(s.byNamespace == nil || s.byNamespace.Matches(of.Of)) && (s.byStack == nil || s.byStack.Matches(of.Labels)) &&
		(s.Targets == nil || s.Targets(of.Kind, of.Namespace, of.Name, of.Labels))
}

// NeedsNamespaces reports whether it depends on the labels of namespaces which stacks the
// policy is for.
func (s Selector) NeedsNamespaces() bool {
	return s.byNamespace != nil || len(s.tenants)+len(s.environments) > 0
}
