package alustan

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/alustan/v1alpha1"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/stack"
)

// sessionRunes bounds what is remembered of a session's name.
const sessionRunes = 64

// asked reads what users ask of a stack. The kind has no fields for any of it.
func asked(obj *v1alpha1.Terraform) (dialect.Asked, error) {
	says := obj.Annotations
	a := dialect.Asked{
		Approved: says[Approved], Suspended: kube.IsTrue(says[Suspended]), Unlock: says[Unlock],
		Replan: says[RequestedAt], Session: says[BreakGlass],
	}
	if len(a.Session) > sessionRunes {
		a.Session = stack.Digest(a.Session)
	}
	return a.Annotated(obj)
}

// Ask has a Terraform ask for exactly this.
func (Dialect) Ask(o client.Object, want dialect.Asked) {
	obj := o.(*v1alpha1.Terraform)
	is, _ := asked(obj) // a repair that cannot be read is none
	for _, one := range []struct{ annotation, is, want string }{
		{Approved, is.Approved, want.Approved},
		{Suspended, yes(is.Suspended), yes(want.Suspended)},
		{Unlock, is.Unlock, want.Unlock},
		{RequestedAt, is.Replan, want.Replan},
		{BreakGlass, is.Session, want.Session},
	} {
		if one.is != one.want {
			dialect.SetAnnotation(obj, one.annotation, one.want)
		}
	}
	is.Annotate(obj, want)
}

func yes(b bool) string {
	if b {
		return "true"
	}
	return ""
}
