package policies

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/policy/document"
	"github.com/terrier-iac/terrier/internal/policyapi"
	"github.com/terrier-iac/terrier/internal/query"
)

// TenantLabel says for which tenant a namespace or a stack is, unless the operator chose
// another label (--tenant-label).
const TenantLabel = "terrier.dev/tenant"

// Namespaces are the labels of namespaces by name; nil if the user cannot read them.
type Namespaces map[string]map[string]string

// SubjectOf is what selectors look at of a stack.
func SubjectOf(s query.Stack, n Namespaces) policyapi.Subject {
	is := kinds.All().First().Kind()
	if _, group, ok := strings.Cut(s.Kind, "."); ok {
		is.Group = group
	}
	return policyapi.NewSubject(policyapi.Stack{Group: is.Group, Kind: is.Kind, Namespace: s.Namespace, Name: s.Name}, TenantLabel, s.Labels, n[s.Namespace])
}

// FactsOf are the facts about a plan of a stack that its user can read. The controller
// knows more: the source with its signature, the tenant, and the requester.
func FactsOf(ctx context.Context, from Stacks, s query.Stack, p query.PlanInfo, n Namespaces, now time.Time) (document.Facts, error) {
	f := factsOf(s, p, n, now)
	r, err := from.Uses(ctx, s.Key())
	switch {
	case fault.Of(err) == fault.Missing || fault.Of(err) == fault.Denied: // the input says that it is not known
		return f, nil
	case err != nil:
		return f, err
	}
	f.Use(r.Usage)
	return f, nil
}

// factsOf are those facts without modules and providers.
func factsOf(s query.Stack, p query.PlanInfo, n Namespaces, now time.Time) document.Facts {
	of := SubjectOf(s, n)
	source, _, _ := strings.Cut(s.Source, "/")
	if source == s.Source {
		source = "" // an inline module
	}
	f := document.Facts{
		Stack: document.Stack{
			Kind: "Terraform", Namespace: s.Namespace, Name: s.Name, Labels: s.Labels, Path: s.Path, Mode: string(s.Mode),
			Environment: of.Environment, Tenant: of.Tenant,
		},
		Source: document.Source{Kind: source, Revision: cmp.Or(p.Revision, s.Revision)},
		Run:    document.Run{Kind: "plan", Deletion: s.Deleting},
		Now:    Now(now),
	}
	if p.Destroy {
		f.Run.Cause = "destroy"
	}
	if a := s.Applied; a != nil && a.Digest != p.Digest {
		f.Previous = previousOf(*a, s.AppliedAt)
	}
	return f
}

// previousOf is a plan as the one that was applied before.
func previousOf(p query.PlanInfo, at time.Time) *document.Previous {
	c := p.Changes
	return &document.Previous{Name: p.Name, Digest: p.Digest, AppliedAt: at, Counts: map[string]int{
		"add": c.Add, "change": c.Change, "destroy": c.Destroy, "import": c.Import, "forget": c.Forget, "move": c.Move, "outputs": c.Outputs,
	}}
}
