package v1alpha2

import (
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Terraform is a stack: one root module with its inputs and one state.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
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

	Spec TerraformSpec `json:"spec,omitempty"`

	// The default makes kstatus report InProgress before the first reconcile.
	// +kubebuilder:default={"observedGeneration":-1}
	Status TerraformStatus `json:"status,omitzero"`
}

// TerraformList is a list of Terraform objects.
//
// +kubebuilder:object:root=true
type TerraformList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Terraform `json:"items"`
}

// TerraformSpec is the desired stack. A module comes from a source (sourceRef and
// path), or is inline: then there is no sourceRef, and values holds exactly the key
// hcl.
//
// Durations must be in the syntax of Go: otherwise no client written in Go could
// read the object, nor any list that contains it.
type TerraformSpec struct {
	// Pause after a successful run before the next check.
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="string(duration(self)) != ''",message="must be a duration such as 90s or 1h30m"
	// +optional
	Interval *metav1.Duration `json:"interval,omitempty"`

	// Pause after a failure before the next attempt; 15s if absent.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="string(duration(self)) != ''",message="must be a duration such as 90s or 1h30m"
	// +optional
	RetryInterval *metav1.Duration `json:"retryInterval,omitempty"`

	// How the pause grows from one failure to the next.
	// +kubebuilder:validation:Enum=StaticInterval;ExponentialBackoff
	// +kubebuilder:default=StaticInterval
	// +optional
	RetryStrategy RetryStrategy `json:"retryStrategy,omitempty"`

	// Longest pause of ExponentialBackoff; 24h if absent.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="string(duration(self)) != ''",message="must be a duration such as 90s or 1h30m"
	// +optional
	MaxRetryInterval *metav1.Duration `json:"maxRetryInterval,omitempty"`

	// Limits how often a failure is retried; no limit if absent.
	// +optional
	Remediation *Remediation `json:"remediation,omitempty"`

	// The source that holds the module. Absent only if the module is inline.
	// +optional
	SourceRef *SourceRef `json:"sourceRef,omitempty"`

	// Directory of the root module inside the source; its root if empty.
	// +optional
	Path string `json:"path,omitempty"`

	// Do nothing with the stack until this is false again.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// Apply every plan, without approval, at every interval.
	// +optional
	Force bool `json:"force,omitempty"`

	// Objects that must be ready before this one is planned.
	// +optional
	DependsOn []ObjectRef `json:"dependsOn,omitempty"`

	// Who approves plans: empty (a user, plan by plan), auto, disable (only check
	// drift), or the name of the approved plan.
	// +optional
	ApprovePlan string `json:"approvePlan,omitempty"`

	// Plan, and never apply.
	// +optional
	PlanOnly bool `json:"planOnly,omitempty"`

	// Settings for plans.
	// +optional
	Plan *PlanOptions `json:"plan,omitempty"`

	// Make plans that destroy all resources.
	// +optional
	Destroy bool `json:"destroy,omitempty"`

	// Destroy all resources when the object is deleted.
	// +optional
	DestroyResourcesOnDeletion bool `json:"destroyResourcesOnDeletion,omitempty"`

	// Plan at each interval instead of checking drift.
	// +optional
	DisableDriftDetection bool `json:"disableDriftDetection,omitempty"`

	// Accepted. A saved plan is applied as it was made, never refreshed.
	// +optional
	RefreshBeforeApply bool `json:"refreshBeforeApply,omitempty"`

	// Resource addresses to limit every plan and apply to.
	// +optional
	Targets []string `json:"targets,omitempty"`

	// How many operations an apply does at once; the engine's choice if 0.
	// +optional
	Parallelism int32 `json:"parallelism,omitempty"`

	// Publish plans in a readable form as well.
	// +kubebuilder:validation:Enum=none;json;human
	// +kubebuilder:default=none
	// +optional
	StoreReadablePlan ReadablePlan `json:"storeReadablePlan,omitempty"`

	// How to treat the lock on the state.
	// +optional
	TfState *TfState `json:"tfstate,omitempty"`

	// Let init take newer modules and providers within their constraints.
	// +kubebuilder:default=true
	// +optional
	UpgradeOnInit *bool `json:"upgradeOnInit,omitempty"`

	// Input variables.
	// +optional
	Vars []Variable `json:"vars,omitempty"`

	// Secrets and ConfigMaps whose keys are input variables.
	// +optional
	VarsFrom []VarsReference `json:"varsFrom,omitempty"`

	// The input variable called values; or, without a sourceRef, the module
	// itself under the key hcl.
	// +optional
	Values *apiextensionsv1.JSON `json:"values,omitempty"`

	// Variable files of the source to plan with.
	// +optional
	TfVarsFiles []string `json:"tfVarsFiles,omitempty"`

	// Secrets that templates in values may read.
	// +optional
	ReadInputsFromSecrets []InputSecret `json:"readInputsFromSecrets,omitempty"`

	// Secret that outputs are published to.
	// +optional
	WriteOutputsToSecret *OutputSecret `json:"writeOutputsToSecret,omitempty"`

	// Files to place beside the module or in the home directory of a run.
	// +optional
	FileMappings []FileMapping `json:"fileMappings,omitempty"`

	// Where the state is kept; in a Secret beside the object if absent.
	// +optional
	BackendConfig *BackendConfig `json:"backendConfig,omitempty"`

	// Secrets and ConfigMaps that complete the backend's configuration.
	// +optional
	BackendConfigsFrom []BackendConfigsReference `json:"backendConfigsFrom,omitempty"`

	// Workspace of the engine.
	// +kubebuilder:default=default
	// +optional
	Workspace string `json:"workspace,omitempty"`

	// Terraform Cloud or Enterprise instead of a backend.
	// +optional
	Cloud *Cloud `json:"cloud,omitempty"`

	// Secret with the engine's CLI configuration: one key ending in .tfrc.
	// +optional
	CliConfigSecretRef *corev1.SecretReference `json:"cliConfigSecretRef,omitempty"`

	// Record in status which resources exist.
	// +optional
	EnableInventory bool `json:"enableInventory,omitempty"`

	// Endpoints that must answer after an apply.
	// +optional
	HealthChecks []HealthCheck `json:"healthChecks,omitempty"`

	// Webhooks that review a plan before it is stored.
	// +optional
	Webhooks []Webhook `json:"webhooks,omitempty"`

	// Service account of the runner pod.
	// +kubebuilder:default=tf-runner
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// Remove the runner pod after each run.
	// +kubebuilder:default=true
	// +optional
	AlwaysCleanupRunnerPod *bool `json:"alwaysCleanupRunnerPod,omitempty"`

	// Seconds that a runner pod has to stop.
	// +kubebuilder:default=30
	// +optional
	RunnerTerminationGracePeriodSeconds *int64 `json:"runnerTerminationGracePeriodSeconds,omitempty"`

	// Settings of the runner pod.
	// +optional
	RunnerPodTemplate RunnerPodTemplate `json:"runnerPodTemplate,omitzero"`

	// Begin a break-glass session.
	// +optional
	BreakTheGlass bool `json:"breakTheGlass,omitempty"`

	// Settings for plans of pull requests.
	// +optional
	BranchPlanner *BranchPlanner `json:"branchPlanner,omitempty"`

	// Placeholder of another edition; any value is accepted and ignored.
	// +optional
	Enterprise *apiextensionsv1.JSON `json:"enterprise,omitempty"`
}

// RetryStrategy is how the pause between retries grows.
type RetryStrategy string

// The retry strategies.
const (
	StaticInterval     RetryStrategy = "StaticInterval"
	ExponentialBackoff RetryStrategy = "ExponentialBackoff"
)

// ReadablePlan is an additional form of a plan.
type ReadablePlan string

// The forms of a readable plan.
const (
	ReadableNone  ReadablePlan = "none"
	ReadableJSON  ReadablePlan = "json"
	ReadableHuman ReadablePlan = "human"
)

// The values of approvePlan that are not the name of a plan. Disabled is a spelling
// that the upstream API defines without a meaning.
const (
	ApproveAuto     = "auto"
	ApproveDisable  = "disable"
	ApproveDisabled = "disabled"
)
