// Package v1 holds the wire types of operator.kubernetes-tenants.org/v1: every
// field of Tenant Operator 1.1.8, those that Lynq added to the same kinds later, and
// Terrier's own; all additions are optional. It is data only: no defaulting in code,
// no mapping; package internal/tenantapi maps it to rows and templates.
//
// Start reading at TenantTemplateSpec.
//
// +kubebuilder:object:generate=true
// +groupName=operator.kubernetes-tenants.org
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is what manifests write as apiVersion.
var GroupVersion = schema.GroupVersion{Group: "operator.kubernetes-tenants.org", Version: "v1"}

// Kinds of this group.
const (
	RegistryKind = "TenantRegistry"
	TemplateKind = "TenantTemplate"
	TenantKind   = "Tenant"
)

// Names of Tenant Operator, kept so that Terrier can take over its installations.
const (
	FieldManager      = "tenant-operator"
	TenantFinalizer   = "tenant.operator.kubernetes-tenants.org/finalizer"
	RegistryFinalizer = "kubernetes-tenants.org/registry-finalizer"

	LabelRegistry        = "kubernetes-tenants.org/registry"
	LabelUID             = "kubernetes-tenants.org/uid"
	LabelTenant          = "kubernetes-tenants.org/tenant"           // on children: the Tenant's name
	LabelTenantNamespace = "kubernetes-tenants.org/tenant-namespace" // on children: and its namespace
	LabelOrphaned        = "kubernetes-tenants.org/orphaned"

	AnnotationHostOrURL          = "kubernetes-tenants.org/hostOrUrl"
	AnnotationActivate           = "kubernetes-tenants.org/activate"
	AnnotationExtra              = "kubernetes-tenants.org/extra" // read from Tenants that a user or the operator created; never written
	AnnotationTemplateGeneration = "kubernetes-tenants.org/template-generation"
	AnnotationOrphanedAt         = "kubernetes-tenants.org/orphaned-at"
	AnnotationOrphanedReason     = "kubernetes-tenants.org/orphaned-reason"
	AnnotationDeletionPolicy     = "kubernetes-tenants.org/deletion-policy"
	AnnotationCreatedOnce        = "kubernetes-tenants.org/created-once"
)

// Names that Terrier adds.
const (
	FinalizerTemplate = "terrier.dev/template" // a template is deleted after its Tenants

	LabelTenantID = "terrier.dev/tenant-id" // on children, Terraform objects above all: the row's uid

	AnnotationRegistry           = "terrier.dev/registry"            // on a Tenant that no ownerReference ties to its registry: the name of that, if it is too long for LabelRegistry
	AnnotationRow                = "terrier.dev/row"                 // on a Tenant: keyed digest of its row's values
	AnnotationLeaving            = "terrier.dev/leaving"             // on a Tenant: since when and why its row asks for its deletion
	AnnotationChanged            = "terrier.dev/template-changed"    // on a Tenant: when it got its generation of the template; absent if it was created with it
	AnnotationDeletionProtection = "terrier.dev/deletion-protection" // on a Tenant or TenantTemplate; anything but a word for false
	AnnotationAllowDeletions     = "terrier.dev/allow-deletions"     // on a TenantRegistry: the token of status.blocked that a user allows
	AnnotationSyncNow            = "terrier.dev/sync"                // on a TenantRegistry: any new value reads the rows now
	AnnotationRollout            = "terrier.dev/rollout"             // on a TenantTemplate: the generation whose stopped rollout a user resumes, alone or with -N for N failures
)

// AddToScheme makes the types of this package known to s.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &TenantRegistry{}, &TenantRegistryList{}, &TenantTemplate{}, &TenantTemplateList{}, &Tenant{}, &TenantList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
