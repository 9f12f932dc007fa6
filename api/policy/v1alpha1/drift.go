package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Drift says what counts as drift, and how often it is checked.
//
// +kubebuilder:validation:MinProperties=1
type Drift struct {
	// Attributes that may drift: a difference in nothing else is no drift, and starts no apply.
	// +kubebuilder:validation:MaxItems=100
	// +optional
	Tolerate []Tolerance `json:"tolerate,omitempty"`

	// Has the pauses between drift checks follow from how long nothing has happened to a stack.
	// +optional
	Interval *DriftInterval `json:"interval,omitempty"`

	// Bounds how often drift is checked in an hour. A check that a user requests, and what follows
	// from a change, never waits for a budget.
	// +kubebuilder:validation:MaxItems=20
	// +listType=atomic
	// +optional
	Budgets []DriftBudget `json:"budgets,omitempty"`
}

// DriftBudget is shared by the stacks of a tenant, or by those that use a provider.
//
// +kubebuilder:validation:XValidation:rule="has(self.checksPerHour) || has(self.cpuPerHour)",message="set checksPerHour, cpuPerHour or both"
// +kubebuilder:validation:XValidation:rule="!has(self.provider) || self.per == 'Provider'",message="provider is for per: Provider"
type DriftBudget struct {
	// Who has a budget of their own: Tenant is each tenant, Provider is each provider.
	Per DriftBudgetPer `json:"per"`

	// A pattern of the sources of providers, as */hashicorp/aws; all providers if it is not set.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=300
	// +optional
	Provider string `json:"provider,omitempty"`

	// Drift checks in an hour. They are spread over it.
	// +kubebuilder:validation:Minimum=1
	// +optional
	ChecksPerHour *int32 `json:"checksPerHour,omitempty"`

	// Processor time of drift checks in an hour, as 30m: what the engine and the providers took, as
	// runs measure it.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(ms|s|m|h))+$')",message="cpuPerHour is a duration, as 30m"
	// +optional
	CPUPerHour *metav1.Duration `json:"cpuPerHour,omitempty"`

	// How long the budget delays a check at most, as 12h; 24h if it is not set. A budget that has
	// fewer checks than one for each of its stacks in this time counts as one that has them.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(ms|s|m|h))+$')",message="maxDelay is a duration, as 24h"
	// +optional
	MaxDelay *metav1.Duration `json:"maxDelay,omitempty"`
}

// DriftBudgetPer is who has a budget.
//
// +kubebuilder:validation:Enum=Tenant;Provider
type DriftBudgetPer string

// Who has a budget.
const (
	PerTenant   DriftBudgetPer = "Tenant"
	PerProvider DriftBudgetPer = "Provider"
)

// DriftInterval bounds the pauses between drift checks: an eighth of the time since the stack
// drifted, was applied or was planned again.
//
// +kubebuilder:validation:MinProperties=1
type DriftInterval struct {
	// The shortest pause, as 5m; spec.interval of the stack if it is not set.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(ms|s|m|h))+$')",message="min is a duration, as 5m"
	// +optional
	Min *metav1.Duration `json:"min,omitempty"`

	// The longest pause, as 24h; spec.interval of the stack if it is not set.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(ms|s|m|h))+$')",message="max is a duration, as 24h"
	// +optional
	Max *metav1.Duration `json:"max,omitempty"`
}

// Tolerance names attributes that may drift. It is for updates in place alone: a resource that
// is missing, or that a plan would replace, is drift in any case.
type Tolerance struct {
	// Patterns of types, as aws_autoscaling_*; all types if empty.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=200
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=200
	// +optional
	Types []string `json:"types,omitempty"`

	// Patterns of addresses, as module.web.*; all addresses if empty.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=200
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1000
	// +optional
	Addresses []string `json:"addresses,omitempty"`

	// Patterns of attributes, as desired_capacity, tags["owner"] or rule.port. One names what is
	// in it as well.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=200
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=500
	Attributes []string `json:"attributes"`

	// Why they may drift. Users see it beside the attributes.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=500
	// +kubebuilder:validation:XValidation:rule="self.trim() != ''",message="reason says why the attributes may drift, and is empty"
	Reason string `json:"reason"`

	// When the rule ends. From then on the attributes are drift again. Without it the rule has
	// no end.
	// +optional
	Until *metav1.Time `json:"until,omitempty"`
}
