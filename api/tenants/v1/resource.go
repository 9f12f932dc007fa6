package v1

import "k8s.io/apimachinery/pkg/runtime"

// CreationPolicy says how often a resource is written.
// +kubebuilder:validation:Enum=Once;WhenNeeded
type CreationPolicy string

// DeletionPolicy says whether a resource that is not wanted any more is deleted.
// +kubebuilder:validation:Enum=Delete;Retain
type DeletionPolicy string

// ConflictPolicy says what happens to fields of another manager.
// +kubebuilder:validation:Enum=Stuck;Force
type ConflictPolicy string

// PatchStrategy says how a resource is written.
// +kubebuilder:validation:Enum=apply;merge;replace
type PatchStrategy string

// Values of the policies.
const (
	CreateOnce       CreationPolicy = "Once"
	CreateWhenNeeded CreationPolicy = "WhenNeeded"
	DeletionDelete   DeletionPolicy = "Delete"
	DeletionRetain   DeletionPolicy = "Retain"
	ConflictStuck    ConflictPolicy = "Stuck"
	ConflictForce    ConflictPolicy = "Force"
	PatchApply       PatchStrategy  = "apply"
	PatchMerge       PatchStrategy  = "merge"
	PatchReplace     PatchStrategy  = "replace"
)

// TResource is one object that each tenant gets. Texts in it are Go templates
// over the values of the tenant's row.
type TResource struct {
	// Name within the template; dependIds refer to it.
	// +kubebuilder:validation:MinLength=1
	ID string `json:"id"`

	// The whole object: apiVersion, kind, metadata and everything else. Each
	// text in it is a template, never a name of a field.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Spec runtime.RawExtension `json:"spec"`

	// Resources that must be ready before this one is created.
	// +optional
	DependIDs []string `json:"dependIds,omitempty"`

	// +kubebuilder:default=WhenNeeded
	// +optional
	CreationPolicy CreationPolicy `json:"creationPolicy,omitempty"`

	// +kubebuilder:default=Delete
	// +optional
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// +kubebuilder:default=Stuck
	// +optional
	ConflictPolicy ConflictPolicy `json:"conflictPolicy,omitempty"`

	// The object's name; metadata.name of spec if empty.
	// +optional
	NameTemplate string `json:"nameTemplate,omitempty"`

	// The object's namespace; the Tenant's if empty.
	// +optional
	TargetNamespace string `json:"targetNamespace,omitempty"`

	// Overrides metadata.labels of spec.
	// +optional
	LabelsTemplate map[string]string `json:"labelsTemplate,omitempty"`

	// Overrides metadata.annotations of spec.
	// +optional
	AnnotationsTemplate map[string]string `json:"annotationsTemplate,omitempty"`

	// False: the tenant does not wait for this resource to become ready.
	// +kubebuilder:default=true
	// +optional
	WaitForReady *bool `json:"waitForReady,omitempty"`

	// Seconds until a resource that is not ready counts as failed.
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	// +optional
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`

	// +kubebuilder:default=apply
	// +optional
	PatchStrategy PatchStrategy `json:"patchStrategy,omitempty"`

	// JSONPaths of fields that are set at creation and then left to other managers.
	// +optional
	IgnoreFields []string `json:"ignoreFields,omitempty"`

	// False: the resource is created although a dependency has failed.
	// +kubebuilder:default=true
	// +optional
	SkipOnDependencyFailure *bool `json:"skipOnDependencyFailure,omitempty"`

	// CEL over object: true when the object is ready. Replaces the built-in rule of its kind.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	ReadyWhen string `json:"readyWhen,omitempty"`

	// CEL over row, a map of the row's values: false leaves the resource out for this tenant.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	IncludeWhen string `json:"includeWhen,omitempty"`
}

// Resources are the sixteen groups. A group is a place in the order and a hint to
// the reader: the spec of an object gives its kind.
type Resources struct {
	// +listType=map
	// +listMapKey=id
	// +optional
	ServiceAccounts []TResource `json:"serviceAccounts,omitempty"`
	// +listType=map
	// +listMapKey=id
	// +optional
	Deployments []TResource `json:"deployments,omitempty"`
	// +listType=map
	// +listMapKey=id
	// +optional
	StatefulSets []TResource `json:"statefulSets,omitempty"`
	// +listType=map
	// +listMapKey=id
	// +optional
	DaemonSets []TResource `json:"daemonSets,omitempty"`
	// +listType=map
	// +listMapKey=id
	// +optional
	Services []TResource `json:"services,omitempty"`
	// +listType=map
	// +listMapKey=id
	// +optional
	Ingresses []TResource `json:"ingresses,omitempty"`
	// +listType=map
	// +listMapKey=id
	// +optional
	ConfigMaps []TResource `json:"configMaps,omitempty"`
	// +listType=map
	// +listMapKey=id
	// +optional
	Secrets []TResource `json:"secrets,omitempty"`
	// +listType=map
	// +listMapKey=id
	// +optional
	PersistentVolumeClaims []TResource `json:"persistentVolumeClaims,omitempty"`
	// +listType=map
	// +listMapKey=id
	// +optional
	Jobs []TResource `json:"jobs,omitempty"`
	// +listType=map
	// +listMapKey=id
	// +optional
	CronJobs []TResource `json:"cronJobs,omitempty"`
	// +listType=map
	// +listMapKey=id
	// +optional
	PodDisruptionBudgets []TResource `json:"podDisruptionBudgets,omitempty"`
	// +listType=map
	// +listMapKey=id
	// +optional
	NetworkPolicies []TResource `json:"networkPolicies,omitempty"`
	// +listType=map
	// +listMapKey=id
	// +optional
	HorizontalPodAutoscalers []TResource `json:"horizontalPodAutoscalers,omitempty"`
	// +listType=map
	// +listMapKey=id
	// +optional
	Namespaces []TResource `json:"namespaces,omitempty"`
	// +listType=map
	// +listMapKey=id
	// +optional
	Manifests []TResource `json:"manifests,omitempty"`
}

// Group is one of the sixteen.
type Group struct {
	Name      string
	Resources []TResource
}

// Groups returns all groups in their order, which is the order of resources without
// dependencies.
func (r *Resources) Groups() []Group {
	return []Group{
		{"serviceAccounts", r.ServiceAccounts},
		{"deployments", r.Deployments},
		{"statefulSets", r.StatefulSets},
		{"daemonSets", r.DaemonSets},
		{"services", r.Services},
		{"ingresses", r.Ingresses},
		{"configMaps", r.ConfigMaps},
		{"secrets", r.Secrets},
		{"persistentVolumeClaims", r.PersistentVolumeClaims},
		{"jobs", r.Jobs},
		{"cronJobs", r.CronJobs},
		{"podDisruptionBudgets", r.PodDisruptionBudgets},
		{"networkPolicies", r.NetworkPolicies},
		{"horizontalPodAutoscalers", r.HorizontalPodAutoscalers},
		{"namespaces", r.Namespaces},
		{"manifests", r.Manifests},
	}
}
