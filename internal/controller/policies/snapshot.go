package policies

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/policy/v1alpha1"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/policyapi"
	"github.com/terrier-iac/terrier/internal/stack"
)

// snapshot are all policies, compiled, as they were at one moment. It does not change.
type snapshot struct {
	policies   []*compiled                  // by name, those of the cluster first
	namespaces map[string]map[string]string // labels
}

// snapshot reads all policies. Programs are compiled beside it.
func (p *Policies) snapshot(ctx context.Context) (*snapshot, error) {
	before := map[string]*compiled{}
	if was := p.now.Load(); was != nil {
		for _, c := range was.policies {
			before[c.id] = c
		}
	}
	var all v1alpha1.ClusterPolicyList
	var some v1alpha1.PolicyList
	if err := p.cache.List(ctx, &all); err != nil {
		return nil, err
	}
	if err := p.cache.List(ctx, &some); err != nil {
		return nil, err
	}
	s, used := &snapshot{namespaces: map[string]map[string]string{}}, map[string]bool{}
	add := func(obj client.Object) {
		name, spec := specOf(obj)
		c := p.compile(ctx, obj, name, spec, before[string(obj.GetUID())])
		used[c.text.ID] = true
		s.policies = append(s.policies, c)
	}
	for i := range all.Items {
		add(&all.Items[i])
	}
	for i := range some.Items {
		add(&some.Items[i])
	}
	if err := eachWeave(ctx, p, func(obj *unstructured.Unstructured) {
		if c := compileWeave(p, obj, before[string(obj.GetUID())]); c != nil {
			used[c.text.ID] = true
			s.policies = append(s.policies, c)
		}
	}); err != nil {
		return nil, err
	}
	p.builds.keep(used)
	slices.SortFunc(s.policies, func(a, b *compiled) int { return cmp.Compare(a.source.Policy, b.source.Policy) })
	namespaces := &metav1.PartialObjectMetadataList{}
	namespaces.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := p.cache.List(ctx, namespaces); err != nil {
		return nil, err
	}
	for _, n := range namespaces.Items {
		s.namespaces[n.Name] = n.Labels
	}
	return s, nil
}

// subject is a stack as the labels of its namespace were when the policies were read.
func (s *snapshot) subject(p *Policies, obj client.Object) policyapi.Subject {
	return p.subject(obj, s.namespaces[obj.GetNamespace()])
}

func (p *Policies) subject(obj client.Object, of labels.Set) policyapi.Subject {
	kind := kindOf(p.Dialects, obj)
	return policyapi.NewSubject(policyapi.Stack{Group: kind.Group, Kind: kind.Kind, Namespace: obj.GetNamespace(), Name: obj.GetName()}, p.TenantLabel, obj.GetLabels(), of)
}

func kindOf(dialects dialect.Registry, obj client.Object) schema.GroupVersionKind {
	if d := dialects.For(obj); d != nil {
		return d.Kind()
	}
	return schema.GroupVersionKind{}
}

// set are the policies that judge a stack whose namespace has these labels. Its error is
// Later while one of them is not compiled yet, and one of reading the source.
func (s *snapshot) set(ctx context.Context, p *Policies, obj client.Object, namespace labels.Set) (Set, error) {
	of := p.subject(obj, namespace)
	// Users may change the labels of a stack, which would give it a limit of its own.
	out := Set{of: p, Tenant: cmp.Or(namespace[p.TenantLabel], obj.GetNamespace())}
	r := &reviewer{programs: p.Programs, now: p.Now, about: aboutStack(p.Dialects, obj, of)}
	selected := s.selected(of)
	own, err := ownGuards(obj)
	out.Invalid = err
	if own != nil {
		selected = append(selected, own)
	}
	var parts []string
	for _, c := range selected {
		if c.pending {
			return Set{}, fault.New(fault.Later, "PolicyPending", fmt.Errorf("the program of %s is not compiled yet; see the condition Ready of the policy", c.source.Policy))
		}
		c.addTimes(&out.Times)
		c.addDrift(&out.Drift)
		if m := c.guards.MaxDestroysPerHour; m != nil && !c.source.DryRun {
			out.PerHour = append(out.PerHour, PerHour{Policy: c.source.Policy, Most: *m, Tenant: out.Tenant})
		}
		if c.judges() {
			r.policies = append(r.policies, c)
			if a := c.source.Approval; a != nil && !c.source.DryRun {
				out.Approvals = append(out.Approvals, *a)
			}
			parts = append(parts, c.source.Policy, c.digest)
		}
	}
	if len(r.policies) > 0 {
		if out.Guards = !r.depends(); !out.Guards {
			parts = append(parts, r.about.digest())
		}
		if r.asksForSource() {
			if r.from, err = p.origin(ctx, obj); err != nil {
				return Set{}, err
			}
			parts = append(parts, stack.Digest([]any{r.from.Artifact, r.from.Signature, r.from.Besides}))
		}
		out.Digest, out.Reviewer = stack.Digest(parts), r
	}
	return out, nil
}

func (s *snapshot) selected(of policyapi.Subject) []*compiled {
	var out []*compiled
	for _, c := range s.policies {
		if c.selector.Selects(of) {
			out = append(out, c)
		}
	}
	return out
}

// differs says for which stacks the next snapshot says another thing; nil if for none.
func (s *snapshot) differs(next *snapshot) func(client.Object, *Policies) bool {
	type pair struct{ was, is *compiled }
	pairs := map[string]pair{}
	for _, c := range s.policies {
		pairs[c.id] = pair{was: c}
	}
	for _, c := range next.policies {
		pairs[c.id] = pair{pairs[c.id].was, c}
	}
	maps.DeleteFunc(pairs, func(_ string, p pair) bool { return p.was.same(p.is) })
	relabelled := map[string]bool{}
	for name, l := range next.namespaces {
		if was, ok := s.namespaces[name]; ok && !maps.Equal(was, l) {
			relabelled[name] = true
		}
	}
	if len(pairs) == 0 && len(relabelled) == 0 {
		return nil
	}
	return func(obj client.Object, p *Policies) bool {
		if relabelled[obj.GetNamespace()] {
			return true
		}
		was, is := s.subject(p, obj), next.subject(p, obj)
		for _, pair := range pairs {
			before, now := pair.was != nil && pair.was.selector.Selects(was), pair.is != nil && pair.is.selector.Selects(is)
			if before || now {
				if now && pair.is.pending {
					continue // it is woken once the program is compiled; until then it could only wait
				}
				return true
			}
		}
		return false
	}
}

// statusLabels are those that the controller writes: a verdict must not follow from itself.
var statusLabels = [...]string{"terrier.dev/pending-plan", "terrier.dev/drifted", "terrier.dev/failing"}

// about is what programs know of a stack beside its plan.
type about struct {
	group, namespace, name, uid string
	tenant, environment         string
	labels, annotations         map[string]string
}

func aboutStack(dialects dialect.Registry, obj client.Object, of policyapi.Subject) about {
	notes := maps.Clone(obj.GetAnnotations())
	maps.DeleteFunc(notes, func(name, _ string) bool {
		return strings.HasPrefix(name, "terrier.dev/") || strings.HasPrefix(name, "reconcile.fluxcd.io/") || name == "kubectl.kubernetes.io/last-applied-configuration"
	})
	own := maps.Clone(obj.GetLabels())
	for _, name := range statusLabels {
		delete(own, name)
	}
	return about{
		group: of.Group, namespace: of.Namespace, name: obj.GetName(), uid: string(obj.GetUID()),
		tenant: of.Tenant, environment: of.Environment, labels: own, annotations: notes,
	}
}

// digest is that of all of it: another label may be another verdict.
func (a about) digest() string {
	return stack.Digest([]any{a.group, a.namespace, a.name, a.tenant, a.environment, a.labels, a.annotations})
}
