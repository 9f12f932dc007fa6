package infra

import (
	"encoding/json"
	"fmt"
	"hash/fnv"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/backend"
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

// pluggedIn reads the annotations that choose a plug-in for the state.
func pluggedIn(obj *v1alpha2.Terraform, c *stack.Configuration) error {
	name, ok := obj.Annotations[Backend]
	text := obj.Annotations[BackendSettings]
	s := &obj.Spec
	switch {
	case !ok && text == "":
		return nil
	case !ok || name == "":
		return invalid("the annotation "+BackendSettings, "needs the annotation %s, which names the backend", Backend)
	case s.BackendConfig != nil || s.Cloud != nil || len(s.BackendConfigsFrom) > 0:
		return invalid("the annotation "+Backend, "says where the state is, and so does the spec: remove spec.backendConfig, spec.cloud and spec.backendConfigsFrom, or the annotation")
	}
	var settings map[string]string
	if err := json.Unmarshal([]byte(text), &settings); text != "" && err != nil {
		return invalid("the annotation "+BackendSettings, "is no JSON object of texts: %v", err)
	}
	b, err := backend.Of(name, settings, obj.Namespace, obj.Name)
	if err != nil {
		return invalid("the annotation "+BackendSettings+":", "%v", err)
	}
	c.Backend = b
	return nil
}
