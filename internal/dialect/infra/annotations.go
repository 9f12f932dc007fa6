package infra

import (
	"fmt"
	"hash/fnv"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

// What the annotation terrier.dev/deletion may say.
const (
	DeletionDestroy = "destroy" // as destroyResourcesOnDeletion: true
	DeletionApprove = "approve" // the same, by a plan that a user approved
	DeletionRetain  = "retain"  // what was created stays
)

// annotated reads Terrier's own annotations into s. What cannot be read is
// Invalid, and leaves s as it was.
func annotated(obj *v1alpha2.Terraform, s *stack.Spec) error {
	h := fnv.New64a()
	_, _ = h.Write([]byte(obj.UID)) // never fails
	s.Spread = h.Sum64()
	s.AdoptState = obj.Annotations[AdoptState] == "true"
	switch v := obj.Annotations[Deletion]; v {
	case "":
	case DeletionDestroy:
		s.DestroyLast = true
	case DeletionApprove:
		s.DestroyLast, s.ApproveDestroy = true, true
	case DeletionRetain:
		s.DestroyLast, s.Retain = false, true
	default:
		// A typing error must neither destroy nor abandon resources: a plan that needs
		// an approval does neither.
		s.DestroyLast, s.ApproveDestroy = true, true
		return fault.New(fault.Invalid, "", fmt.Errorf("the annotation %s is %.40q; it may be %s, %s or %s", Deletion, v, DeletionDestroy, DeletionApprove, DeletionRetain))
	}
	return nil
}
