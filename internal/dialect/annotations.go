package dialect

import (
	"fmt"
	"hash/fnv"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Terrier's own annotations about how a stack is reconciled, in every kind.
const (
	Engine     = "terrier.dev/engine"      // tofu, terraform, or a name that the operator gave
	Network    = "terrier.dev/network"     // of the runs: none or host
	Deletion   = "terrier.dev/deletion"    // approve, retain or destroy; what happens to what was created
	AdoptState = "terrier.dev/adopt-state" // true
)

// What the annotation terrier.dev/deletion may say.
const (
	DeletionDestroy = "destroy" // the resources are destroyed
	DeletionApprove = "approve" // the same, by a plan that a user approved
	DeletionRetain  = "retain"  // what was created stays
)

// Annotated reads those of an object into s. What cannot be read is Invalid, and leaves s
// as it was.
func Annotated(o client.Object, s *stack.Spec) error {
	h := fnv.New64a()
	_, _ = h.Write([]byte(o.GetUID())) // never fails
	s.Spread = h.Sum64()
	says := o.GetAnnotations()
	s.AdoptState = says[AdoptState] == "true"
	switch v := says[Deletion]; v {
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
