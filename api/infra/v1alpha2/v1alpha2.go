// Package v1alpha2 holds the wire types of infra.contrib.fluxcd.io/v1alpha2,
// the stored version: every field of tofu-controller's API, and Terrier's own below
// status.terrier. It is data only: no defaulting in code, no mapping; package
// internal/dialect/infra maps it to a stack, and docs/compatibility.md lists which
// fields work.
//
// Start reading at TerraformSpec.
//
// +kubebuilder:object:generate=true
// +groupName=infra.contrib.fluxcd.io
package v1alpha2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is what manifests write as apiVersion.
var GroupVersion = schema.GroupVersion{Group: "infra.contrib.fluxcd.io", Version: "v1alpha2"}

// Kind is the one kind of this group.
const Kind = "Terraform"

// AddToScheme makes the types of this package known to s.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Terraform{}, &TerraformList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
