// Package v1alpha1 holds the wire types of policy.terrier.dev/v1alpha1: which plans need a
// person, and which are never applied. It is data only; package
// internal/controller/policies reads it.
//
// Start reading at PolicySpec.
//
// +kubebuilder:object:generate=true
// +groupName=policy.terrier.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is what manifests write as apiVersion.
var GroupVersion = schema.GroupVersion{Group: "policy.terrier.dev", Version: "v1alpha1"}

// Kinds of this group.
const (
	ClusterPolicyKind = "ClusterPolicy"
	PolicyKind        = "Policy"
)

// GuardPrefix begins the annotations by which a stack has guards of its own. The rest of
// the name is that of a field of Guards.
const GuardPrefix = "guard.terrier.dev/"

// TolerateDrift is the annotation by which a stack has rules of its own for attributes that may
// drift: a list in YAML with the fields of Tolerance.
const TolerateDrift = "terrier.dev/tolerate-drift"

// EnvironmentLabel is the label of a namespace, or else of a stack, whose value is its
// environment.
const EnvironmentLabel = "terrier.dev/environment"

// AddToScheme makes the types of this package known to s.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &ClusterPolicy{}, &ClusterPolicyList{}, &Policy{}, &PolicyList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
