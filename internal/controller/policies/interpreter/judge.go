package interpreter

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/controller/policies"
	"github.com/terrier-iac/terrier/internal/controller/sources"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/policy/document"
	"github.com/terrier-iac/terrier/internal/review"
	"github.com/terrier-iac/terrier/internal/review/rego/worker"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/tenant"
)

// Judge implements policies.Programs.
func (p *Programs) Judge(ctx context.Context, q policies.Question) ([]policy.Finding, string, error) {
	var members []worker.Member
	for _, m := range q.Members {
		prog, ok := m.Program.(*program)
		if !ok {
			panic(fmt.Sprintf("interpreter: %T is no program", m.Program)) // Compile made it
		}
		for i, one := range prog.members {
			if w := prog.weave[i]; w != nil && !w.Selects(p.dialectOf(q.Stack.Group).Kind().Kind, q.Stack.Namespace, q.Stack.Name, q.Stack.Labels) {
				continue
			}
			one.Policy, one.Approval, one.OnError, one.DryRun = m.Policy, m.Approval, m.OnError, m.DryRun
			members = append(members, one)
		}
	}
	asked, digest, err := p.asked(ctx, q)
	if err != nil {
		return worker.Broken(members, err), digest, nil
	}
	found, err := p.workers.Findings(ctx, asked, members)
	return found, digest, err
}

// asked is what programs are shown, and its digest. The time of the evaluation is no part of
// the digest.
func (p *Programs) asked(ctx context.Context, q policies.Question) (worker.Asked, string, error) {
	f, err := p.facts(ctx, q)
	if err != nil {
		return worker.Asked{}, "", err
	}
	digest := stack.Digest([]any{string(q.Document), f})
	f.Now = q.Now.UTC()
	object, err := shown(q)
	return worker.Asked{Document: q.Document, Facts: f, Object: object, Now: q.Now}, digest, err
}

// shown is the object of the stack without its status, and without what kubectl and the API
// server keep in it. Values in it are masked: variables may be written into the object.
func shown(q policies.Question) (map[string]any, error) {
	object := maps.Clone(q.Plan.Object)
	delete(object, "status")
	b, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encoding the object: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var out map[string]any
	if err := dec.Decode(&out); err != nil {
		return nil, fmt.Errorf("reading the object: %w", err)
	}
	if meta, ok := out["metadata"].(map[string]any); ok {
		delete(meta, "managedFields")
		meta["annotations"] = q.Stack.Annotations
	}
	if spec, ok := out["spec"].(map[string]any); ok {
		for _, name := range []string{"vars", "values", "cloud"} { // which hold values
			delete(spec, name)
		}
	}
	return out, nil
}

// dialectOf is the dialect of a group.
func (p *Programs) dialectOf(group string) dialect.Dialect {
	for _, d := range p.dialects.All() {
		if d.Kind().Group == group {
			return d
		}
	}
	return p.dialects.First()
}

// facts are what is known beside the plan.
func (p *Programs) facts(ctx context.Context, q policies.Question) (document.Facts, error) {
	s := q.Stack
	d := p.dialectOf(s.Group)
	obj := d.New()
	raw, err := json.Marshal(q.Plan.Object)
	if err == nil {
		err = json.Unmarshal(raw, obj)
	}
	if err != nil {
		return document.Facts{}, fmt.Errorf("reading the object: %w", err)
	}
	st, _ := d.Decode(obj) // a spec that is wrong has no plan to judge
	f := document.Facts{
		Stack: document.Stack{
			Kind: d.Kind().Kind, Namespace: s.Namespace, Name: s.Name, Labels: s.Labels, Annotations: s.Annotations,
			Environment: s.Environment, Tenant: s.Tenant, Mode: string(st.Spec.Mode), Workspace: st.Configuration.Workspace, Path: st.Configuration.Path,
		},
		Tenant:    p.tenant(ctx, d.Kind(), obj),
		Run:       document.Run{Kind: string(stack.PlanRun), Deletion: obj.GetDeletionTimestamp() != nil},
		Requester: requesterOf(obj),
		Previous:  previousOf(st.Status),
	}
	if pending := st.Status.Pending; pending != nil {
		f.Engine, f.Source.Revision, f.Source.Digest = pending.PlanInputs.Engine, pending.PlanInputs.Revision, pending.PlanInputs.Source
		if pending.Destroy {
			f.Run.Cause = "destroy"
		}
	}
	f.Source.Signature, f.Source.Signed, f.Source.Signer = q.Source, q.Source.Verified, q.Source.By
	f.Source.Besides = st.Configuration.Besides()
	if ref := st.Configuration.Source; ref != nil {
		if err := p.source(ctx, &f.Source, d, obj, *ref, q); err != nil {
			return f, err
		}
	}
	if q.Document == nil {
		return f, nil // there is no plan yet
	}
	return f, p.modules(ctx, &f, s.UID, st.Status)
}

// Foresee implements policies.Programs.
func (p *Programs) Foresee(ctx context.Context, q policies.Early) []policy.Finding {
	f, err := p.facts(ctx, policies.Question{Plan: &review.Plan{Object: q.Object}, Stack: q.Stack, Now: q.Now})
	if err != nil {
		return nil
	}
	f.Requester, f.Now = q.Requester, q.Now.UTC()
	var members []worker.Member
	for _, m := range q.Members {
		prog, ok := m.Program.(*program)
		if !ok {
			panic(fmt.Sprintf("interpreter: %T is no program", m.Program)) // Compile made it
		}
		for _, one := range prog.members {
			one.Policy, one.DryRun = m.Policy, m.DryRun
			members = append(members, one)
		}
	}
	return p.workers.Early(ctx, f, members)
}

// requesterOf is the user who changed the object last, as the API server stamped it.
func requesterOf(obj client.Object) string {
	changes := kube.Changes(obj.GetAnnotations()[kube.RequestedBy])
	if len(changes) == 0 {
		return ""
	}
	return changes[len(changes)-1].By
}

// By these an object says for which tenant it was made.
const (
	tenantName      = "kubernetes-tenants.org/tenant"
	tenantNamespace = "kubernetes-tenants.org/tenant-namespace"
	tenantWholeName = "terrier.dev/tenant" // an annotation, where the name is too long for a label
)

// tenant is the Tenant that the stack was made for, nil if there is none. Users may write the
// labels of a stack as they like, so that only the status of the Tenant proves it: the object is
// there before it is made.
func (p *Programs) tenant(ctx context.Context, kind schema.GroupVersionKind, obj client.Object) *document.Tenant {
	l := obj.GetLabels()
	key := types.NamespacedName{Namespace: cmp.Or(l[tenantNamespace], obj.GetNamespace()), Name: cmp.Or(obj.GetAnnotations()[tenantWholeName], l[tenantName])}
	if key.Name == "" {
		return nil
	}
	var t tenantsv1.Tenant
	if p.reader.Get(ctx, key, &t) != nil || !has(t.Status, kind, obj) {
		return nil
	}
	out := &document.Tenant{Name: key.Name, ID: tenant.Label(t.Spec.UID), Template: t.Spec.TemplateRef, Labels: t.Labels}
	var template tenantsv1.TenantTemplate
	if p.reader.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: t.Spec.TemplateRef}, &template) == nil {
		out.Registry = template.Spec.RegistryID
	}
	return out
}

// has reports whether a tenant has an object, also by what Tenant Operator has written.
func has(s tenantsv1.TenantStatus, kind schema.GroupVersionKind, obj client.Object) bool {
	applied := kind.Kind + "/" + obj.GetNamespace() + "/" + obj.GetName() + "@"
	return slices.ContainsFunc(s.Inventory, func(i tenantsv1.InventoryItem) bool {
		return i.Group == kind.Group && i.Kind == kind.Kind && i.Namespace == obj.GetNamespace() && i.Name == obj.GetName()
	}) || slices.ContainsFunc(s.AppliedResources, func(text string) bool { return strings.HasPrefix(text, applied) })
}

func previousOf(m stack.Status) *document.Previous {
	a := m.Applied
	if a == nil {
		return nil
	}
	c := a.Changes
	return &document.Previous{Name: a.Name, Digest: a.Digest, AppliedAt: m.AppliedAt, Counts: map[string]int{
		"add": c.Add, "change": c.Change, "destroy": c.Destroy, "import": c.Import, "forget": c.Forget, "move": c.Move, "outputs": c.Outputs,
	}}
}

// source says where the module comes from, and which versions the object of the source
// follows. A source that is not there any more has only a revision.
func (p *Programs) source(ctx context.Context, out *document.Source, d dialect.Dialect, of client.Object, ref stack.Ref, q policies.Question) error {
	kind := cmp.Or(ref.Kind, sourcev1.GitRepositoryKind)
	out.Kind = kind
	obj, err := sources.New(kind)
	if err != nil {
		return err
	}
	key := types.NamespacedName{Namespace: cmp.Or(ref.Namespace, of.GetNamespace()), Name: ref.Name}
	if err := p.reader.Get(ctx, key, obj); err != nil {
		return client.IgnoreNotFound(err)
	}
	switch o := obj.(type) {
	case *sourcev1.GitRepository:
		out.URL = o.Spec.URL
		if r := o.Spec.Reference; r != nil {
			out.Branch, out.Tag, out.Range, out.Pinned = r.Branch, r.Tag, r.SemVer, r.Commit != ""
		}
		if out.Branch == "" && out.Tag == "" && out.Range == "" && !out.Pinned {
			out.Branch = "master" // what the source then follows
		}
	case *sourcev1.OCIRepository:
		out.URL = o.Spec.URL
		if r := o.Spec.Reference; r != nil {
			out.Tag, out.Range, out.Pinned = r.Tag, r.SemVer, r.Digest != ""
		}
		if out.Tag == "" && out.Range == "" && !out.Pinned {
			out.Tag = "latest"
		}
	case *sourcev1.Bucket:
		out.URL = strings.TrimSuffix(o.Spec.Endpoint, "/") + "/" + o.Spec.BucketName
	}
	out.URL, _ = plan.MaskURLs(out.URL)
	// What the source has now may be newer than what was planned.
	if a := obj.GetArtifact(); a != nil && a.Revision == out.Revision && !a.LastUpdateTime.IsZero() {
		out.Age = max(0, int64(q.Now.Sub(a.LastUpdateTime.Time).Seconds()))
	}
	return nil
}
