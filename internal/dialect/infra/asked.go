package infra

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/stack"
)

// BreakTheGlassAt is the annotation that begins a break-glass session.
const BreakTheGlassAt = "break-the-glass.tf-controller/requestedAt"

// bySpec is the session that the field asks for. It begins once: the field must be
// unset before it can begin another one.
const bySpec = "spec.breakTheGlass"

// sessionRunes bounds what is remembered of a session's name.
const sessionRunes = 64

// asked reads what users ask of a stack.
func asked(obj *v1alpha2.Terraform) (dialect.Asked, error) {
	a := dialect.Asked{Approved: obj.Spec.ApprovePlan, Suspended: obj.Spec.Suspend, Replan: obj.Annotations[RequestedAt]}
	if t := obj.Spec.TfState; t != nil && (t.ForceUnlock == v1alpha2.UnlockYes || t.ForceUnlock == v1alpha2.UnlockAuto) {
		a.Unlock = t.LockIdentifier
	}
	switch at := obj.Annotations[BreakTheGlassAt]; {
	case len(at) > sessionRunes:
		a.Session = stack.Digest(at)
	case at != "":
		a.Session = at
	case obj.Spec.BreakTheGlass:
		a.Session = bySpec
	}
	return a.Annotated(obj)
}

// Ask has a Terraform ask for exactly this.
func (Dialect) Ask(o client.Object, want dialect.Asked) {
	obj := o.(*v1alpha2.Terraform)
	is, _ := asked(obj) // a repair that cannot be read is none
	obj.Spec.ApprovePlan, obj.Spec.Suspend = want.Approved, want.Suspended
	if want.Unlock != is.Unlock {
		breakLock(&obj.Spec, want.Unlock)
	}
	if want.Replan != is.Replan {
		dialect.SetAnnotation(obj, RequestedAt, want.Replan)
	}
	if want.Session != is.Session {
		dialect.SetAnnotation(obj, BreakTheGlassAt, want.Session)
		obj.Spec.BreakTheGlass = obj.Spec.BreakTheGlass && want.Session != ""
	}
	is.Annotate(obj, want)
}

// breakLock allows the lock called id to be broken; none if id is empty.
func breakLock(s *v1alpha2.TerraformSpec, id string) {
	if s.TfState == nil {
		s.TfState = &v1alpha2.TfState{}
	}
	t := s.TfState
	t.LockIdentifier = id
	switch {
	case t.ForceUnlock == v1alpha2.UnlockAuto:
	case id == "":
		t.ForceUnlock = v1alpha2.UnlockNo
	default:
		t.ForceUnlock = v1alpha2.UnlockYes
	}
}
