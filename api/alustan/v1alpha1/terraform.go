package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
)

// Terraform is a stack that is applied and destroyed by scripts.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=terraforms,singular=terraform
// +kubebuilder:printcolumn:name="State",type="string",JSONPath=".status.state"
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.message"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Plan",type="string",JSONPath=".status.plan",priority=1
// +kubebuilder:printcolumn:name="Revision",type="string",JSONPath=".status.revision",priority=1
// +kubebuilder:printcolumn:name="Phase",type="string",JSONPath=".status.terrier.phase",priority=1
type Terraform struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec TerraformSpec `json:"spec,omitempty"`

	// +optional
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

// TerraformSpec is the desired stack: code in a git repository, and the scripts by which
// it is applied and destroyed.
type TerraformSpec struct {
	// Variables of the module: a script has each as an environment variable of the same
	// name, and as TF_VAR_<name>. What is no text is given as JSON.
	// +optional
	Variables map[string]apiextensionsv1.JSON `json:"variables,omitempty"`

	// Where the state is: provider names a backend plug-in, and the other keys are its
	// settings. Without it Terrier keeps the state.
	// +optional
	Backend map[string]apiextensionsv1.JSON `json:"backend,omitempty"`

	// The scripts of the stack.
	// +optional
	Scripts Scripts `json:"scripts,omitzero"`

	// The git repository with the code.
	// +optional
	GitRepo *GitRepo `json:"gitRepo,omitempty"`

	// Runs after each script that applied and succeeded.
	// +optional
	PostDeploy *PostDeploy `json:"postDeploy,omitempty"`

	// The image that is built of the code; with semanticVersion the image that holds the code.
	// +optional
	ContainerRegistry *ContainerRegistry `json:"containerRegistry,omitempty"`

	// A plug-in of the former controller. It has no effect.
	// +optional
	Provider string `json:"provider,omitempty"`

	// The name of an environment. It has no effect.
	// +optional
	Environment string `json:"environment,omitempty"`
}

// Scripts are what applies and destroys a stack. Each is an object with inline or
// configMapRef; or a text, which is the script itself beside apply, and the name of a
// file in the repository beside deploy.
type Scripts struct {
	// An object with inline or configMapRef, or the text of a script.
	// +optional
	Apply *apiextensionsv1.JSON `json:"apply,omitempty"`

	// As apply. Beside deploy a text is the name of a file in the repository.
	// +optional
	Destroy *apiextensionsv1.JSON `json:"destroy,omitempty"`

	// The name of a file in the repository; takes the place of apply.
	// +optional
	Deploy *apiextensionsv1.JSON `json:"deploy,omitempty"`
}

// Script is the object that apply and destroy hold. Inline wins if both are set.
type Script struct {
	Inline       string        `json:"inline,omitempty"`
	ConfigMapRef *KeyReference `json:"configMapRef,omitempty"`
}

// KeyReference names one key of an object of the same namespace.
type KeyReference struct {
	// +optional
	Name string `json:"name,omitempty"`
	// +optional
	Key string `json:"key,omitempty"`
}

// GitRepo is where the code is.
type GitRepo struct {
	// Of https, http or ssh, or user@host:path. The directory of the module may follow
	// the repository.
	// +optional
	URL string `json:"url,omitempty"`

	// +optional
	Branch string `json:"branch,omitempty"`

	// The directory of the module in the repository.
	// +optional
	Path string `json:"path,omitempty"`

	// A Secret with a private key for ssh. Without it the repository is read without
	// credentials.
	// +optional
	SSHKeySecret *KeyReference `json:"sshKeySecret,omitempty"`

	// A private key. Every reader of the object sees it, so Terrier refuses it: use
	// sshKeySecret.
	// +optional
	SSHKey string `json:"sshKey,omitempty"`
}

// ContainerRegistry is where the image of the code is.
type ContainerRegistry struct {
	// +optional
	ImageName string `json:"imageName,omitempty"`

	// +optional
	SecretRef *KeyReference `json:"secretRef,omitempty"`

	// The registry of an imageName without one: docker or ghcr.
	// +optional
	Provider string `json:"provider,omitempty"`

	// A range of versions, such as ~1.0.0: the code is in the image with the newest tag in
	// it, below the working directory. There must be no gitRepo.
	// +optional
	SemanticVersion string `json:"semanticVersion,omitempty"`
}

// PostDeploy is a script that runs after the one that applies.
type PostDeploy struct {
	// The name of a file in the repository, relative to the module.
	// +optional
	Script string `json:"script,omitempty"`

	// Its arguments: from the name of a flag to the name of a variable. The script gets
	// -flag=value.
	// +optional
	Args *apiextensionsv1.JSON `json:"args,omitempty"`
}

// TerraformStatus is the status of a stack. Only state, message and the fields that
// later releases added are upstream's.
type TerraformStatus struct {
	// Pending, Success or Failed.
	// +optional
	State string `json:"state,omitempty"`

	// +optional
	Message string `json:"message,omitempty"`

	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// +optional
	Output *apiextensionsv1.JSON `json:"output,omitempty"`

	// What spec.postDeploy printed as its outputs, each under value.
	// +optional
	PostDeployOutput *apiextensionsv1.JSON `json:"postDeployOutput,omitempty"`

	// +optional
	IngressURLs *apiextensionsv1.JSON `json:"ingressURLs,omitempty"`

	// +optional
	Credentials *apiextensionsv1.JSON `json:"credentials,omitempty"`

	// +optional
	CloudResources *apiextensionsv1.JSON `json:"cloudResources,omitempty"`

	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// The revision that was applied last, else planned last.
	// +optional
	Revision string `json:"revision,omitempty"`

	// The pending plan, which terrier approve approves.
	// +optional
	Plan string `json:"plan,omitempty"`

	// The foreign lock on the state that blocks runs.
	// +optional
	Lock string `json:"lock,omitempty"`

	// Names of the outputs, sorted.
	// +optional
	AvailableOutputs []string `json:"availableOutputs,omitempty"`

	// Failures since the last success or change.
	// +optional
	Failures int64 `json:"failures,omitempty"`

	// The newest request that Terrier has answered.
	// +optional
	LastHandledReconcileAt string `json:"lastHandledReconcileAt,omitempty"`

	// The status in Terrier's own terms.
	// +optional
	Terrier *v1alpha2.TerrierStatus `json:"terrier,omitempty"`
}
