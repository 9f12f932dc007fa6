package v1alpha2

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TerraformStatus is what is known of a stack. All but terrier has the names
// and the meaning that upstream's tools read.
type TerraformStatus struct {
	// The value of the annotation reconcile.fluxcd.io/requestedAt that was
	// answered last.
	// +optional
	LastHandledReconcileAt string `json:"lastHandledReconcileAt,omitempty"`

	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// +optional
	LastAppliedRevision string `json:"lastAppliedRevision,omitempty"`

	// +optional
	LastAttemptedRevision string `json:"lastAttemptedRevision,omitempty"`

	// +optional
	LastPlannedRevision string `json:"lastPlannedRevision,omitempty"`

	// +optional
	LastPlannedGeneration int64 `json:"lastPlannedGeneration,omitempty"`

	// +optional
	LastPlanAt *metav1.Time `json:"lastPlanAt,omitempty"`

	// +optional
	LastSuccessfulReconcileAt *metav1.Time `json:"lastSuccessfulReconcileAt,omitempty"`

	// +optional
	LastDriftDetectedAt *metav1.Time `json:"lastDriftDetectedAt,omitempty"`

	// +optional
	LastAppliedByDriftDetectionAt *metav1.Time `json:"lastAppliedByDriftDetectionAt,omitempty"`

	// Names of the outputs, sorted.
	// +optional
	AvailableOutputs []string `json:"availableOutputs,omitempty"`

	// +optional
	Plan PlanStatus `json:"plan,omitzero"`

	// +optional
	Inventory *Inventory `json:"inventory,omitempty"`

	// +optional
	Lock LockStatus `json:"lock,omitzero"`

	// Failures since the last success or change.
	// +optional
	ReconciliationFailures int64 `json:"reconciliationFailures,omitempty"`

	// What upstream's API has no place for.
	// +optional
	Terrier *TerrierStatus `json:"terrier,omitempty"`
}

// PlanStatus names the plans of a stack.
type PlanStatus struct {
	// The plan that was applied last.
	// +optional
	LastApplied string `json:"lastApplied,omitempty"`

	// The plan that waits; approvePlan with this value approves it.
	// +optional
	Pending string `json:"pending,omitempty"`

	// +optional
	IsDestroyPlan bool `json:"isDestroyPlan,omitempty"`

	// +optional
	IsDriftDetectionPlan bool `json:"isDriftDetectionPlan,omitempty"`
}

// Inventory lists the resources that exist.
type Inventory struct {
	Entries []Resource `json:"entries"`
}

// Resource is one resource instance that exists.
type Resource struct {
	// Name in the module.
	Name string `json:"n"`

	// Type in the module.
	Type string `json:"t"`

	// What its provider calls it: its arn if it has one, else its id.
	Identifier string `json:"id"`
}

// LockStatus names locks on the state that somebody else held.
type LockStatus struct {
	// The lock that was broken last.
	// +optional
	LastApplied string `json:"lastApplied,omitempty"`

	// The lock that stands in the way.
	// +optional
	Pending string `json:"pending,omitempty"`
}

// TerrierStatus is how things stand, in Terrier's own words.
type TerrierStatus struct {
	// What is going on.
	// +optional
	Phase string `json:"phase,omitempty"`

	// Since when.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`

	// The rule that decided it; terrier explain says what it means.
	// +optional
	Rule string `json:"rule,omitempty"`

	// What must happen before anything else does.
	// +optional
	WaitingFor string `json:"waitingFor,omitempty"`

	// When what failed is tried again.
	// +optional
	NextAttempt *metav1.Time `json:"nextAttempt,omitempty"`

	// How often it is looked at again while nothing changes. Without it nothing
	// is done until an event, or a person, changes something.
	// +optional
	RecheckEvery *metav1.Duration `json:"recheckEvery,omitempty"`

	// The run in flight.
	// +optional
	Run *RunStatus `json:"run,omitempty"`

	// What surrounds runs of this stack.
	// +optional
	Isolation string `json:"isolation,omitempty"`

	// Names of the environment variables that runs are given.
	// +optional
	Environment []string `json:"environment,omitempty"`

	// How far status.inventory goes.
	// +optional
	Inventory *InventoryStatus `json:"inventory,omitempty"`

	// What earlier reconciles wrote down, for the next one only.
	// +optional
	Memory *apiextensionsv1.JSON `json:"memory,omitempty"`
}

// InventoryStatus is what is known of an inventory.
type InventoryStatus struct {
	// The state that it was made from.
	Of string `json:"of"`

	// Resources that exist and are not listed.
	// +optional
	More int `json:"more,omitempty"`

	// Why not everything is listed.
	// +optional
	Incomplete string `json:"incomplete,omitempty"`
}

// RunStatus is a run in flight.
type RunStatus struct {
	ID string `json:"id"`

	// plan, check, apply, destroy, preview or health.
	Kind string `json:"kind"`

	// +optional
	Phase string `json:"phase,omitempty"`

	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`

	// When it is interrupted if it has not ended by then.
	// +optional
	Deadline *metav1.Time `json:"deadline,omitempty"`
}
