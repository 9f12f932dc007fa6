package policies

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/controller/sources"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/policy/guard"
)

// origin is where the pending plan of a stack comes from, and whether that is signed. Without
// a pending plan it is about what the next one will be made from.
func (p *Policies) origin(ctx context.Context, obj client.Object) (guard.Origin, error) {
	if p.cache == nil {
		return guard.Origin{Name: "the source", Signature: policy.Signature{
			Reason: "without the definitions of policy.terrier.dev signatures are not known: install them",
		}}, nil
	}
	d := p.Dialects.For(obj)
	if d == nil {
		return guard.Origin{}, nil
	}
	st, _ := d.Decode(obj) // a spec that is wrong has no plan to judge
	ref := st.Configuration.Source
	if ref == nil {
		return guard.Origin{}, nil
	}
	kind := cmp.Or(ref.Kind, sourcev1.GitRepositoryKind)
	key := types.NamespacedName{Namespace: cmp.Or(ref.Namespace, obj.GetNamespace()), Name: ref.Name}
	out := guard.Origin{Name: fmt.Sprintf("%s %s", kind, key), Besides: st.Configuration.Besides()}
	parts, pending := len(st.Configuration.SourcePaths) > 0, st.Status.Pending
	if pending != nil && !parts {
		out.Revision, out.Artifact = pending.PlanInputs.Revision, pending.PlanInputs.Source
	}
	source, err := sources.New(kind)
	if err != nil {
		return out, err
	}
	if err := p.cache.Get(ctx, key, source); client.IgnoreNotFound(err) != nil {
		return out, fmt.Errorf("reading the %s: %w", out.Name, err)
	} else if err != nil {
		out.Signature = policy.Signature{Reason: "the source does not exist any more: create it again"}
		return recorded(ctx, p, obj, st, out)
	}
	if a := source.GetArtifact(); a != nil {
		out.Revision, out.Artifact = cmp.Or(out.Revision, a.Revision), cmp.Or(out.Artifact, a.Digest)
	}
	out.Signature = p.Signatures.Of(source, out.Revision, out.Artifact)
	if parts && pending != nil && st.Status.Rollback == nil && obj.GetDeletionTimestamp().IsZero() {
		// A plan of a part of the source is applied only while the source of now has this part, so
		// that its signature is that of now. A plan from a record is made of another one.
		out.Artifact = pending.PlanInputs.Source
	}
	return recorded(ctx, p, obj, st, out)
}

// recorded is where a plan comes from that is made from the record of an apply: that of a
// rollback, and of the destroy of a deleted stack. The source has this artifact no more, and its
// signature is the one that was verified then.
func recorded(ctx context.Context, p *Policies, obj client.Object, st dialect.Stack, out guard.Origin) (guard.Origin, error) {
	m, deleting := st.Status, !obj.GetDeletionTimestamp().IsZero()
	key := ""
	switch {
	case deleting:
		key = m.Snapshot
	case m.Rollback != nil:
		key = m.Rollback.To.Snapshot
	}
	if p.Recorded == nil || key == "" {
		return out, nil
	}
	then, err := p.Recorded(ctx, string(obj.GetUID()), key)
	if err != nil {
		// Broken, so that it is said once it lasts: Later is that of policies which are not compiled yet.
		return out, fault.New(fault.Broken, fault.Reason(err, ""), fmt.Errorf("reading the signature of what was applied: %w", err))
	}
	if deleting && (!then.Signature.Verified || m.Pending != nil && m.Pending.PlanInputs.Source != then.Artifact) {
		return out, nil // a user may have corrected what is destroyed
	}
	out.Revision, out.Artifact, out.Signature = then.Revision, then.Artifact, then.Signature
	for _, field := range then.Besides {
		if !slices.Contains(out.Besides, field) {
			out.Besides = append(slices.Clone(out.Besides), field)
		}
	}
	if !then.Signature.Verified {
		out.Revision = m.Rollback.To.PlanInputs.Revision
		out.Signature = policy.Signature{Kind: then.Signature.Kind, Reason: "it was not verified when it was applied, and the signature of another revision says nothing of it. " +
			"To plan what the object asks for: terrier rollback " + st.Spec.Words.Argument + " --end"}
	}
	return out, nil
}
