package policies

import (
	"cmp"
	"context"
	"fmt"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/controller/sources"
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
	// A plan of a part of the source is applied only while the source of now has this part, so
	// that its signature is that of now. A rollback applies what the source has not any more.
	if pending := st.Status.Pending; pending != nil && (len(st.Configuration.SourcePaths) == 0 || st.Status.Rollback != nil) {
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
		return out, nil
	}
	if a := source.GetArtifact(); a != nil {
		out.Revision, out.Artifact = cmp.Or(out.Revision, a.Revision), cmp.Or(out.Artifact, a.Digest)
	}
	out.Signature = p.Signatures.Of(source, out.Revision, out.Artifact)
	return out, nil
}
