package v1alpha2

import (
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SourceRef names the Flux source that holds a module.
type SourceRef struct {
	// Accepted and ignored: sources are read at v1.
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`

	// +kubebuilder:validation:Enum=GitRepository;Bucket;OCIRepository
	Kind string `json:"kind"`

	Name string `json:"name"`

	// The object's own namespace if empty.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// ObjectRef names another Terraform object.
type ObjectRef struct {
	Name string `json:"name"`

	// The object's own namespace if empty.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// Remediation limits retries.
type Remediation struct {
	// Retries after a failure before giving up; no limit if absent or negative.
	// +optional
	Retries *int64 `json:"retries,omitempty"`
}

// PlanOptions are settings for plans.
type PlanOptions struct {
	// False makes plans without the state lock. An apply always holds it.
	// +optional
	Lock *bool `json:"lock,omitempty"`
}

// TfState says how to treat the lock on the state.
type TfState struct {
	// Break a foreign lock: yes (the one in lockIdentifier), auto (any) or no.
	// +kubebuilder:validation:Enum=yes;no;auto
	// +kubebuilder:default=no
	// +optional
	ForceUnlock ForceUnlock `json:"forceUnlock,omitempty"`

	// The lock to break; must be the one in status.lock.pending.
	// +optional
	LockIdentifier string `json:"lockIdentifier,omitempty"`

	// How long a run waits for the lock.
	// +kubebuilder:default="0s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="string(duration(self)) != ''",message="must be a duration such as 90s or 1h30m"
	// +optional
	LockTimeout *metav1.Duration `json:"lockTimeout,omitempty"`
}

// ForceUnlock says whether a lock may be broken.
type ForceUnlock string

// The values of forceUnlock.
const (
	UnlockYes  ForceUnlock = "yes"
	UnlockNo   ForceUnlock = "no"
	UnlockAuto ForceUnlock = "auto"
)

// Variable is one input variable.
type Variable struct {
	Name string `json:"name"`

	// Any JSON value.
	// +optional
	Value *apiextensionsv1.JSON `json:"value,omitempty"`

	// The source of the value instead.
	// +optional
	ValueFrom *corev1.EnvVarSource `json:"valueFrom,omitempty"`
}

// VarsReference names a Secret or ConfigMap whose keys are input variables.
type VarsReference struct {
	// +kubebuilder:validation:Enum=Secret;ConfigMap
	Kind string `json:"kind"`

	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// The keys to take, as key or key:variable; all if empty.
	// +optional
	VarsKeys []string `json:"varsKeys,omitempty"`

	// Continue if it does not exist.
	// +optional
	Optional bool `json:"optional,omitempty"`
}

// BackendConfigsReference names a Secret or ConfigMap that completes the
// configuration of a backend.
type BackendConfigsReference struct {
	// +kubebuilder:validation:Enum=Secret;ConfigMap
	Kind string `json:"kind"`

	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// The keys to take; all if empty.
	// +optional
	Keys []string `json:"keys,omitempty"`

	// Continue if it does not exist.
	// +optional
	Optional bool `json:"optional,omitempty"`
}

// InputSecret names a Secret that templates in values may read.
type InputSecret struct {
	Name string `json:"name"`

	// The name of its keys in templates.
	As string `json:"as"`
}

// OutputSecret says where and how outputs are published.
type OutputSecret struct {
	Name string `json:"name"`

	// Outputs to publish, as output or output:key; all if empty.
	// +optional
	Outputs []string `json:"outputs,omitempty"`

	// +optional
	Labels map[string]string `json:"labels,omitempty"`

	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// FileMapping places one key of a Secret as a file.
type FileMapping struct {
	SecretRef SecretKeyRef `json:"secretRef"`

	// +kubebuilder:validation:Enum=home;workspace
	Location string `json:"location"`

	// Relative to the location.
	// +kubebuilder:validation:Pattern=`^(.?[/_a-zA-Z0-9]{1,})*$`
	Path string `json:"path"`
}

// SecretKeyRef names one key of a Secret.
type SecretKeyRef struct {
	Name string `json:"name"`

	// +optional
	Key string `json:"key,omitempty"`
}

// BackendConfig says where the state is kept.
type BackendConfig struct {
	// No backend is configured, and no plan is saved.
	// +optional
	Disable bool `json:"disable,omitempty"`

	// Suffix of the Secret that holds the state.
	// +optional
	SecretSuffix string `json:"secretSuffix,omitempty"`

	// +optional
	InClusterConfig bool `json:"inClusterConfig,omitempty"`

	// +optional
	ConfigPath string `json:"configPath,omitempty"`

	// Labels of the Secret that holds the state.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`

	// A backend block in HCL; wins over the other fields.
	// +optional
	CustomConfiguration string `json:"customConfiguration,omitempty"`
}

// Cloud is Terraform Cloud or Enterprise.
type Cloud struct {
	Organization string `json:"organization"`

	Workspaces *CloudWorkspaces `json:"workspaces"`

	// +optional
	Hostname string `json:"hostname,omitempty"`

	// In plain text: prefer cliConfigSecretRef.
	// +optional
	Token string `json:"token,omitempty"`
}

// CloudWorkspaces selects workspaces by name or by tags.
type CloudWorkspaces struct {
	// +optional
	Name string `json:"name,omitempty"`

	// +optional
	Tags []string `json:"tags,omitempty"`
}

// HealthCheck is one endpoint that must answer after an apply.
type HealthCheck struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// +kubebuilder:validation:Enum=tcp;http
	Type string `json:"type"`

	// For http; may be a template over the outputs.
	// +optional
	URL string `json:"url,omitempty"`

	// For tcp, as host:port; may be a template over the outputs.
	// +optional
	Address string `json:"address,omitempty"`

	// +kubebuilder:default="20s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="string(duration(self)) != ''",message="must be a duration such as 90s or 1h30m"
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// Webhook reviews a plan before the plan is stored.
type Webhook struct {
	// +kubebuilder:validation:Enum=post-planning
	// +kubebuilder:default=post-planning
	Stage string `json:"stage"`

	// +kubebuilder:default=true
	// +optional
	Enabled *bool `json:"enabled,omitempty"`

	URL string `json:"url"`

	// SpecAndPlan, SpecOnly or PlanOnly.
	// +kubebuilder:default=SpecAndPlan
	// +optional
	PayloadType string `json:"payloadType,omitempty"`

	// Template over the reply: the message of a refusal.
	// +optional
	ErrorMessageTemplate string `json:"errorMessageTemplate,omitempty"`

	// Template over the reply that must yield true or yes.
	TestExpression string `json:"testExpression"`
}

// BranchPlanner has settings for plans of pull requests.
type BranchPlanner struct {
	// Only for pull requests that touch spec.path.
	// +optional
	EnablePathScope bool `json:"enablePathScope,omitempty"`
}

// RunnerPodTemplate has the settings of the runner pod.
type RunnerPodTemplate struct {
	// +optional
	Metadata RunnerPodMetadata `json:"metadata,omitzero"`

	// +optional
	Spec RunnerPodSpec `json:"spec,omitzero"`
}

// RunnerPodMetadata is merged into the metadata of runner pods.
type RunnerPodMetadata struct {
	// +optional
	Labels map[string]string `json:"labels,omitempty"`

	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// RunnerPodSpec is the configurable part of a pod.
type RunnerPodSpec struct {
	// +optional
	Image string `json:"image,omitempty"`

	// +optional
	Env []corev1.EnvVar `json:"env,omitempty"`

	// +optional
	EnvFrom []corev1.EnvFromSource `json:"envFrom,omitempty"`

	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// +optional
	Volumes []corev1.Volume `json:"volumes,omitempty"`

	// +optional
	VolumeMounts []corev1.VolumeMount `json:"volumeMounts,omitempty"`

	// +optional
	InitContainers []corev1.Container `json:"initContainers,omitempty"`

	// +optional
	HostAliases []corev1.HostAlias `json:"hostAliases,omitempty"`

	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// Replaces the security context of the runner's container.
	// +optional
	SecurityContext *corev1.SecurityContext `json:"securityContext,omitempty"`

	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
}
