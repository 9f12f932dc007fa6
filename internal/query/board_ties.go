package query

import (
	"slices"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/input"
)

// ties are what binds a stack to others. Names of Secrets are those of its own
// namespace.
type ties struct {
	needs  []Key
	reads  []string
	writes string
}

// tiesOf are the ties of a stack. A stack that reads a Secret is tied to the
// stack that publishes to it, in whatever field the Secret is named.
func tiesOf(o *v1alpha2.Terraform) ties {
	var t ties
	refs := input.References(infra.Legible(o), o.Namespace)
	for _, r := range refs.DependsOn {
		t.needs = append(t.needs, Key{r.Namespace, r.Name})
	}
	if refs.Writes != nil {
		t.writes = refs.Writes.Name
	}
	for _, r := range refs.Reads {
		if r.Kind == input.Secret && r.Namespace == o.Namespace && !slices.Contains(t.reads, r.Name) {
			t.reads = append(t.reads, r.Name)
		}
	}
	return t
}
