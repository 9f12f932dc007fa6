// Package v1alpha1 holds the wire types of alustan.io/v1alpha1: every field that the
// kind Terraform had in any of its four lives, and Terrier's own below status.terrier.
// Fields whose type changed from one life to the next accept all of their types. It is
// data only; package internal/dialect/alustan maps it to a stack, and docs/alustan.md
// lists which fields work.
//
// Start reading at TerraformSpec.
//
// +kubebuilder:object:generate=true
// +groupName=alustan.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is what manifests write as apiVersion.
var GroupVersion = schema.GroupVersion{Group: "alustan.io", Version: "v1alpha1"}

// Kind is the kind of stacks of this group.
const Kind = "Terraform"

// AddToScheme makes the types of this package known to s.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Terraform{}, &TerraformList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
