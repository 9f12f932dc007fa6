// Package v1alpha1 holds the wire types of infra.contrib.fluxcd.io/v1alpha1,
// which is served and deprecated. There is no conversion: its spec and status
// are those of v1alpha2, so that an object written through either version
// loses nothing.
//
// Start reading at package v1alpha2.
//
// +kubebuilder:object:generate=true
// +groupName=infra.contrib.fluxcd.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
)

// GroupVersion is what manifests write as apiVersion.
var GroupVersion = schema.GroupVersion{Group: v1alpha2.GroupVersion.Group, Version: "v1alpha1"}

// AddToScheme makes the types of this package known to s.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Terraform{}, &TerraformList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// Terraform is a stack: one root module with its inputs and one state.
//
// +kubebuilder:object:root=true
// +kubebuilder:deprecatedversion:warning="v1alpha1 Terraform is deprecated, upgrade to v1alpha2"
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=terraforms,singular=terraform,shortName=tf
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status"
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].message"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Plan",type="string",JSONPath=".status.plan.pending",priority=1
// +kubebuilder:printcolumn:name="Revision",type="string",JSONPath=".status.lastAppliedRevision",priority=1
// +kubebuilder:printcolumn:name="Phase",type="string",JSONPath=".status.terrier.phase",priority=1
type Terraform struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   v1alpha2.TerraformSpec   `json:"spec,omitempty"`
	Status v1alpha2.TerraformStatus `json:"status,omitzero"`
}

// TerraformList is a list of Terraform objects.
//
// +kubebuilder:object:root=true
type TerraformList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Terraform `json:"items"`
}
