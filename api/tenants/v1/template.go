package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TenantTemplate is what each tenant of a registry gets.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=tenanttemplates,singular=tenanttemplate
// +kubebuilder:printcolumn:name="Registry",type="string",JSONPath=".spec.registryId"
// +kubebuilder:printcolumn:name="Total",type="integer",JSONPath=".status.totalTenants"
// +kubebuilder:printcolumn:name="Ready",type="integer",JSONPath=".status.readyTenants"
// +kubebuilder:printcolumn:name="Applied",type="string",JSONPath=".status.conditions[?(@.type==\"Applied\")].status"
// +kubebuilder:printcolumn:name="Rollout",type="string",JSONPath=".status.rollout.phase",priority=1
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type TenantTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   TenantTemplateSpec   `json:"spec,omitempty"`
	Status TenantTemplateStatus `json:"status,omitzero"`
}

// TenantTemplateList is a list of TenantTemplate objects.
//
// +kubebuilder:object:root=true
type TenantTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TenantTemplate `json:"items"`
}

// TenantTemplateSpec is the objects of one tenant, with templates in their texts.
type TenantTemplateSpec struct {
	// The TenantRegistry, in the template's namespace, whose rows become tenants.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="registryId cannot change; create another template"
	RegistryID string `json:"registryId"`

	Resources `json:",inline"`

	// How a change of the template reaches existing tenants; all at once if absent.
	// +optional
	Rollout *Rollout `json:"rollout,omitempty"`

	// The ServiceAccount, in the template's namespace, that writes the objects; the
	// controller itself if empty.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// True protects all tenants of the template against deletion.
	// +optional
	DeletionProtection bool `json:"deletionProtection,omitempty"`
}

// Rollout limits how many tenants change at once. Tenants of new rows are always
// created at once.
type Rollout struct {
	// How many changed tenants may not be ready yet; 0 is no limit.
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +optional
	MaxSkew int32 `json:"maxSkew,omitempty"`

	// How long a changed tenant may take to become ready before the rollout stops.
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=3600
	// +optional
	ProgressDeadlineSeconds int32 `json:"progressDeadlineSeconds,omitempty"`

	// Tenants that may fail before the rollout stops.
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +optional
	MaxFailures int32 `json:"maxFailures,omitempty"`

	// One after another; each begins when all tenants of the one before are
	// ready. The rest of the tenants come after the last.
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Waves []Wave `json:"waves,omitempty"`
}

// Wave is a part of the tenants: those that match, up to a percentage.
type Wave struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// Labels of the Tenant objects.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// Share of all tenants that are changed at the end of this wave.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +optional
	Percent *int32 `json:"percent,omitempty"`
}

// TenantTemplateStatus is the status of a template.
type TenantTemplateStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// +optional
	TotalTenants int32 `json:"totalTenants,omitempty"`
	// +optional
	ReadyTenants int32 `json:"readyTenants,omitempty"`
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// +optional
	Rollout *RolloutStatus `json:"rollout,omitempty"`
}

// Phases of a rollout.
const (
	RolloutIdle       = "Idle"
	RolloutInProgress = "InProgress"
	RolloutFailed     = "Failed"
	RolloutComplete   = "Complete"
)

// RolloutStatus is the progress of a change of the template.
type RolloutStatus struct {
	// +optional
	Phase string `json:"phase,omitempty"`
	// +optional
	TargetGeneration int64 `json:"targetGeneration,omitempty"`
	// The last generation with which all tenants were ready; new tenants get it while
	// the rollout of a newer one has stopped.
	// +optional
	GoodGeneration int64 `json:"goodGeneration,omitempty"`
	// +optional
	TotalNodes int32 `json:"totalNodes,omitempty"`
	// +optional
	UpdatedNodes int32 `json:"updatedNodes,omitempty"`
	// +optional
	UpdatingNodes int32 `json:"updatingNodes,omitempty"`
	// +optional
	ReadyUpdatedNodes int32 `json:"readyUpdatedNodes,omitempty"`
	// +optional
	FailedNodes int32 `json:"failedNodes,omitempty"`
	// The running wave; empty for the tenants after the last wave.
	// +optional
	Wave string `json:"wave,omitempty"`
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`
}
