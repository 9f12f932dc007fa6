package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterPolicy judges the plans of stacks in any namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=clusterpolicies,singular=clusterpolicy,scope=Cluster,shortName=tfcpol
// +kubebuilder:printcolumn:name="Mode",type="string",JSONPath=".spec.mode"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status"
// +kubebuilder:printcolumn:name="Stacks",type="integer",JSONPath=".status.selected"
// +kubebuilder:printcolumn:name="Held",type="integer",JSONPath=".status.findings.hold"
// +kubebuilder:printcolumn:name="Denied",type="integer",JSONPath=".status.findings.deny"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].message",priority=1
type ClusterPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec PolicySpec `json:"spec"`

	// Until the controller has read the policy, it is not known whether it is ready.
	// +kubebuilder:default={conditions: {{type: "Ready", status: "Unknown", reason: "Pending", message: "The controller has not read the policy yet", lastTransitionTime: "1970-01-01T00:00:00Z"}}}
	Status PolicyStatus `json:"status,omitzero"`
}

// ClusterPolicyList is a list of ClusterPolicy objects.
//
// +kubebuilder:object:root=true
type ClusterPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterPolicy `json:"items"`
}

// Policy judges the plans of stacks in its own namespace. It can only be stricter than
// what a ClusterPolicy says: what it allows without an approval has no effect.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=policies,singular=policy,shortName=tfpol
// +kubebuilder:printcolumn:name="Mode",type="string",JSONPath=".spec.mode"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status"
// +kubebuilder:printcolumn:name="Stacks",type="integer",JSONPath=".status.selected"
// +kubebuilder:printcolumn:name="Held",type="integer",JSONPath=".status.findings.hold"
// +kubebuilder:printcolumn:name="Denied",type="integer",JSONPath=".status.findings.deny"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].message",priority=1
// +kubebuilder:validation:XValidation:rule="!has(self.spec.selector) || !(has(self.spec.selector.namespaces) || has(self.spec.selector.namespaceSelector) || has(self.spec.selector.tenants))",message="a Policy selects stacks of its own namespace: remove spec.selector.namespaces, spec.selector.namespaceSelector and spec.selector.tenants, or write a ClusterPolicy"
type Policy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec PolicySpec `json:"spec"`

	// Until the controller has read the policy, it is not known whether it is ready.
	// +kubebuilder:default={conditions: {{type: "Ready", status: "Unknown", reason: "Pending", message: "The controller has not read the policy yet", lastTransitionTime: "1970-01-01T00:00:00Z"}}}
	Status PolicyStatus `json:"status,omitzero"`
}

// PolicyList is a list of Policy objects.
//
// +kubebuilder:object:root=true
type PolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Policy `json:"items"`
}

// The values of spec.mode.
const (
	Enforce = "Enforce"
	DryRun  = "DryRun"
)

// The values of spec.onError and spec.guards.effect.
const (
	Hold = "Hold"
	Deny = "Deny"
)

// PolicySpec says which stacks a policy is for, and what it says of their plans.
//
// +kubebuilder:validation:XValidation:rule="has(self.guards) || has(self.rego) || has(self.drift)",message="the policy says nothing: set spec.guards, spec.rego or spec.drift"
type PolicySpec struct {
	// What the policy is for. Users see it beside its findings.
	// +kubebuilder:validation:MaxLength=1000
	// +optional
	Description string `json:"description,omitempty"`

	// Enforce, or DryRun to show and count what the policy finds without any other effect.
	// +kubebuilder:validation:Enum=Enforce;DryRun
	// +kubebuilder:default=Enforce
	// +optional
	Mode string `json:"mode,omitempty"`

	// The stacks that the policy is for. All of its fields have to match; all stacks if it
	// is empty.
	// +optional
	Selector Selector `json:"selector,omitzero"`

	// Limits that need no program.
	// +optional
	Guards *Guards `json:"guards,omitempty"`

	// What follows if the policy cannot be evaluated: Hold, until a user approves the plan, or
	// Deny. A policy that only denies says Deny: a failure of it then lets no plan pass.
	// +kubebuilder:validation:Enum=Hold;Deny
	// +kubebuilder:default=Hold
	// +optional
	OnError string `json:"onError,omitempty"`

	// Who approves the plans that the policy holds; by default any user who may approve.
	// +optional
	Approval *Approval `json:"approval,omitempty"`

	// A program that judges plans.
	// +optional
	Rego *Rego `json:"rego,omitempty"`

	// What counts as drift, and how often drift is checked.
	// +optional
	Drift *Drift `json:"drift,omitempty"`
}

// Selector selects stacks.
type Selector struct {
	// Patterns of names of namespaces; * stands for any text.
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +optional
	Namespaces []string `json:"namespaces,omitempty"`

	// Labels of the namespaces.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// Labels of the stacks. Owners of stacks can change these.
	// +optional
	StackSelector *metav1.LabelSelector `json:"stackSelector,omitempty"`

	// Tenants: the label terrier.dev/tenant of the namespace, or else of the stack, or else
	// the name of the namespace. Patterns, as in namespaces.
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +optional
	Tenants []string `json:"tenants,omitempty"`

	// Environments: the label terrier.dev/environment of the namespace, or else of the
	// stack. Patterns, as in namespaces.
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +optional
	Environments []string `json:"environments,omitempty"`

	// API groups of the kinds of stacks; all kinds if empty.
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:Enum=infra.contrib.fluxcd.io;alustan.io
	// +optional
	Kinds []string `json:"kinds,omitempty"`
}

// Guards are limits. What is not set has no limit.
//
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.windowOverride) || has(self.windows) || has(self.freezes)",message="windowOverride says who may pass windows and freezes: set windows or freezes as well, or remove it"
type Guards struct {
	// How many resources a plan may destroy. Replacements count, unless maxReplaces is set.
	// +kubebuilder:validation:Minimum=0
	// +optional
	MaxDestroys *int32 `json:"maxDestroys,omitempty"`

	// How many resources a plan may replace.
	// +kubebuilder:validation:Minimum=0
	// +optional
	MaxReplaces *int32 `json:"maxReplaces,omitempty"`

	// Which share of the resources of a stack a plan may destroy, as 20%.
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:XValidation:rule="self.matches('^(100|[1-9]?[0-9])%$')",message="maxDestroyedShare is a share from 0% to 100%, as 20%"
	// +optional
	MaxDestroyedShare string `json:"maxDestroyedShare,omitempty"`

	// How many resources the stacks of one tenant may destroy in an hour, together. An apply
	// or a destroy that would exceed it waits.
	// +kubebuilder:validation:Minimum=0
	// +optional
	MaxDestroysPerHour *int32 `json:"maxDestroysPerHour,omitempty"`

	// Resources that no plan destroys, replaces or forgets.
	// +kubebuilder:validation:MaxItems=100
	// +optional
	Protected []Protected `json:"protected,omitempty"`

	// The source of a plan has to have a signature that was verified. An inline module and a
	// Bucket have none.
	// +optional
	RequireSignedSource *SignedSource `json:"requireSignedSource,omitempty"`

	// The only times at which plans are applied: any of these.
	// +kubebuilder:validation:MaxItems=50
	// +optional
	Windows []Window `json:"windows,omitempty"`

	// Times at which no plan is applied.
	// +kubebuilder:validation:MaxItems=50
	// +optional
	Freezes []Freeze `json:"freezes,omitempty"`

	// Who may have one plan applied outside of these windows, and in these freezes. Each user
	// needs update on terraforms/windows in the namespace of the stack as well. No user may, if
	// it is not set; any user with this right, if it is {}.
	// +optional
	WindowOverride *Approval `json:"windowOverride,omitempty"`

	// How long a source has to exist before it is applied, as 24h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(ms|s|m|h))+$')",message="minSourceAge is a duration, as 24h or 90m"
	// +optional
	MinSourceAge *metav1.Duration `json:"minSourceAge,omitempty"`

	// How old a plan may be when it is applied. An older one is made again before.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(ms|s|m|h))+$')",message="maxPlanAge is a duration, as 24h or 90m"
	// +optional
	MaxPlanAge *metav1.Duration `json:"maxPlanAge,omitempty"`

	// What follows from the other limits: Hold, until a user approves the plan, or Deny.
	// +kubebuilder:validation:Enum=Hold;Deny
	// +kubebuilder:default=Hold
	// +optional
	Effect string `json:"effect,omitempty"`
}

// Protected are resources that plans leave alone.
//
// +kubebuilder:validation:XValidation:rule="has(self.types) || has(self.addresses)",message="set types or addresses: a protection of every resource is types: ['*']"
type Protected struct {
	// Patterns of types, as aws_db_*.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=200
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=200
	// +optional
	Types []string `json:"types,omitempty"`

	// Patterns of addresses, as module.database.*.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=200
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1000
	// +optional
	Addresses []string `json:"addresses,omitempty"`

	// Patterns of attributes that are protected from updates in place as well, as
	// versioning.enabled.
	// +kubebuilder:validation:MaxItems=200
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=500
	// +optional
	Attributes []string `json:"attributes,omitempty"`
}

// SignedSource says whose signature a source has to have. If it is empty, every signature
// counts that spec.verify of the source asks for. Owners of a source write its spec.verify.
type SignedSource struct {
	// Fingerprints of keys: sha256: and the hexadecimal SHA-256 of the DER form of a key of
	// cosign, SHA256: and its base64 form of a key of SSH, the whole fingerprint of a key of
	// OpenPGP.
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=100
	// +optional
	Keys []string `json:"keys,omitempty"`

	// Identities of certificates, besides the keys.
	// +kubebuilder:validation:MaxItems=100
	// +optional
	Identities []Signer `json:"identities,omitempty"`
}

// Signer is an identity of a certificate by which an artifact is signed.
type Signer struct {
	// The issuer of the identity, exactly.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=500
	Issuer string `json:"issuer"`

	// A pattern of the subject, as https://git.example.com/team/*; * stands for any text.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1000
	Subject string `json:"subject"`

	// sha256: and the hexadecimal SHA-256 of the file trusted_root.json that the certificate
	// has to lead to; the file of --sigstore-trusted-root if it is not set.
	// +kubebuilder:validation:MaxLength=71
	// +kubebuilder:validation:XValidation:rule="self.matches('^sha256:[0-9a-f]{64}$')",message="trustedRoot is a digest, as sha256sum prints it behind sha256:"
	// +optional
	TrustedRoot string `json:"trustedRoot,omitempty"`
}

// Day is a day of the week.
// +kubebuilder:validation:Enum=Mon;Tue;Wed;Thu;Fri;Sat;Sun
type Day string

// Window is a time of some days of the week.
//
// +kubebuilder:validation:XValidation:rule="self.from.matches('^([01][0-9]|2[0-3]):[0-5][0-9]$') && self.to.matches('^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$')",message="from and to are times of a day from 00:00 to 24:00, as 08:30"
// +kubebuilder:validation:XValidation:rule="!self.from.matches('^([01][0-9]|2[0-3]):[0-5][0-9]$') || !self.to.matches('^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$') || self.from < self.to",message="the window ends before it begins: a window is within one day, so a time over midnight is two windows, one until 24:00 and one from 00:00"
type Window struct {
	// Every day if empty.
	// +kubebuilder:validation:MaxItems=7
	// +optional
	Days []Day `json:"days,omitempty"`

	// +kubebuilder:validation:MaxLength=5
	From string `json:"from"`
	// +kubebuilder:validation:MaxLength=5
	To string `json:"to"`

	// As Europe/Berlin; UTC if empty.
	// +kubebuilder:validation:MaxLength=100
	// +optional
	TimeZone string `json:"timeZone,omitempty"`
}

// Freeze is a time at which no plan is applied.
//
// +kubebuilder:validation:XValidation:rule="self.from < self.to",message="the freeze ends before it begins"
type Freeze struct {
	From metav1.Time `json:"from"`
	To   metav1.Time `json:"to"`

	// +kubebuilder:validation:MaxLength=500
	// +optional
	Reason string `json:"reason,omitempty"`
}

// Approval says who approves.
type Approval struct {
	// How many users.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=20
	// +kubebuilder:default=1
	// +optional
	Count int32 `json:"count,omitempty"`

	// Each of them is a member of one of these groups, or one of the users.
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=500
	// +optional
	Groups []string `json:"groups,omitempty"`

	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=500
	// +optional
	Users []string `json:"users,omitempty"`

	// The user who requested the change does not count.
	// +optional
	NotRequester bool `json:"notRequester,omitempty"`

	// How long an approval counts, as 24h; without an end if it is not set.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(ms|s|m|h))+$')",message="expires is a duration, as 24h or 90m"
	// +optional
	Expires *metav1.Duration `json:"expires,omitempty"`
}

// Rego is a program in Rego, the language of Open Policy Agent.
//
// +kubebuilder:validation:XValidation:rule="has(self.modules) != has(self.sourceRef)",message="set either modules or sourceRef"
type Rego struct {
	// Texts in Rego, by the names of their files.
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=100
	// +optional
	Modules map[string]string `json:"modules,omitempty"`

	// A source with files of Rego.
	// +optional
	SourceRef *SourceRef `json:"sourceRef,omitempty"`

	// The directory in the source that has them.
	// +kubebuilder:validation:MaxLength=1000
	// +optional
	Path string `json:"path,omitempty"`

	// The only digest of the artifact of the source that is used.
	// +kubebuilder:validation:MaxLength=200
	// +optional
	Digest string `json:"digest,omitempty"`

	// What the program reads as input.parameters.
	// +optional
	Parameters *apiextensionsv1.JSON `json:"parameters,omitempty"`

	// terrier for package terrier with deny, hold, warn and allow; conftest for directories
	// of conftest; weave for Policy objects of the Weave policy agent, in a source.
	// +kubebuilder:validation:Enum=terrier;conftest;weave
	// +kubebuilder:default=terrier
	// +optional
	Format string `json:"format,omitempty"`

	// The packages of conftest; main if empty.
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=200
	// +optional
	Namespaces []string `json:"namespaces,omitempty"`
}

// SourceRef names a source. That of a Policy is in its namespace.
type SourceRef struct {
	// +kubebuilder:validation:Enum=OCIRepository;GitRepository;Bucket
	Kind string `json:"kind"`

	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// PolicyStatus is what the controller says of a policy.
type PolicyStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Of all that the policy says. Verdicts name it.
	// +optional
	Digest string `json:"digest,omitempty"`

	// How many stacks the policy is for.
	// +optional
	Selected int32 `json:"selected,omitempty"`

	// What the policy finds in the pending plans of these stacks.
	// +optional
	Findings Findings `json:"findings,omitzero"`

	// When a plan was judged last.
	// +optional
	LastJudged *metav1.Time `json:"lastJudged,omitempty"`
}

// Findings counts findings by their effect.
type Findings struct {
	// +optional
	Allow int32 `json:"allow,omitempty"`
	// +optional
	Warn int32 `json:"warn,omitempty"`
	// +optional
	Hold int32 `json:"hold,omitempty"`
	// +optional
	Deny int32 `json:"deny,omitempty"`
	// Findings of a dry run, which have no effect.
	// +optional
	DryRun int32 `json:"dryRun,omitempty"`
	// How often the policy could not be evaluated.
	// +optional
	Errors int32 `json:"errors,omitempty"`
}
