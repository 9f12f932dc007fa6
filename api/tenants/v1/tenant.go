package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Tenant is one row with one template: the objects of one tenant.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=tenants,singular=tenant
// +kubebuilder:printcolumn:name="UID",type="string",JSONPath=".spec.uid"
// +kubebuilder:printcolumn:name="Template",type="string",JSONPath=".spec.templateRef"
// +kubebuilder:printcolumn:name="Ready",type="integer",JSONPath=".status.readyResources"
// +kubebuilder:printcolumn:name="Desired",type="integer",JSONPath=".status.desiredResources"
// +kubebuilder:printcolumn:name="Skipped",type="integer",JSONPath=".status.skippedResources",priority=1
// +kubebuilder:printcolumn:name="Conflicted",type="string",JSONPath=".status.conditions[?(@.type==\"Conflicted\")].status"
// +kubebuilder:printcolumn:name="Conditions",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].reason"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type Tenant struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   TenantSpec   `json:"spec,omitempty"`
	Status TenantStatus `json:"status,omitzero"`
}

// TenantList is a list of Tenant objects.
//
// +kubebuilder:object:root=true
type TenantList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Tenant `json:"items"`
}

// TenantSpec is a copy of this tenant's generation of the template, without values
// of the row.
type TenantSpec struct {
	// The uid of the row.
	// +kubebuilder:validation:MinLength=1
	UID string `json:"uid"`

	// The TenantTemplate in the same namespace.
	// +kubebuilder:validation:MinLength=1
	TemplateRef string `json:"templateRef"`

	Resources `json:",inline"`

	// As in the template.
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
}

// TenantStatus is the status of the tenant's objects.
type TenantStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// +optional
	ReadyResources int32 `json:"readyResources,omitempty"`
	// +optional
	DesiredResources int32 `json:"desiredResources,omitempty"`
	// +optional
	FailedResources int32 `json:"failedResources,omitempty"`
	// +optional
	SkippedResources int32 `json:"skippedResources,omitempty"`
	// +optional
	SkippedResourceIDs []string `json:"skippedResourceIds,omitempty"`

	// Kind/namespace/name@id of each object, as Tenant Operator writes it.
	// +optional
	AppliedResources []string `json:"appliedResources,omitempty"`

	// The objects that this tenant has to clean up.
	// +optional
	Inventory []InventoryItem `json:"inventory,omitempty"`

	// The resources that are not ready.
	// +optional
	Resources []ResourceStatus `json:"resources,omitempty"`

	// What this status would have besides, if the Tenant were not too large for it.
	// +optional
	LeftOut *LeftOut `json:"leftOut,omitempty"`

	// The keyed digest of the row that the objects were rendered from.
	// +optional
	Row string `json:"row,omitempty"`

	// The generation of the template that the objects were rendered from.
	// +optional
	TemplateGeneration int64 `json:"templateGeneration,omitempty"`

	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// LeftOut counts what a status has no room for: an object is at most as large as the API
// server stores. The inventory and the conditions are never left out.
type LeftOut struct {
	// Entries of resources: those of failures are left out last.
	// +optional
	Resources int32 `json:"resources,omitempty"`
	// Entries of skippedResourceIds.
	// +optional
	SkippedResourceIDs int32 `json:"skippedResourceIds,omitempty"`
	// Entries of appliedResources; the inventory has them.
	// +optional
	AppliedResources int32 `json:"appliedResources,omitempty"`
}

// InventoryItem is one object that the tenant has, or had and must still clean up.
type InventoryItem struct {
	ID string `json:"id"`
	// +optional
	Group   string `json:"group,omitempty"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
	// +optional
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Empty until the object is known to exist.
	// +optional
	UID string `json:"uid,omitempty"`
	// The policy at the last write, since the template may be gone.
	// +optional
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`
	// Its place in the order of creation; deletions are in the reverse order.
	// +optional
	Order int32 `json:"order,omitempty"`
}

// ResourceStatus is one resource and why it is not ready.
type ResourceStatus struct {
	ID      string      `json:"id"`
	State   string      `json:"state"`
	Reason  string      `json:"reason,omitempty"`
	Message string      `json:"message,omitempty"`
	Since   metav1.Time `json:"since"`

	// The time of the next attempt after a failure. A change of the row, of the
	// template or of the object causes an attempt at once.
	// +optional
	NextAttempt *metav1.Time `json:"nextAttempt,omitempty"`
}
