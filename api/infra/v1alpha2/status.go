package v1alpha2

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TerraformStatus is the status of a stack. All fields except terrier have the names
// and meanings of upstream's API.
type TerraformStatus struct {
	// The last value of the annotation reconcile.fluxcd.io/requestedAt that was
	// handled.
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

	// Fields that upstream's API does not have.
	// +optional
	Terrier *TerrierStatus `json:"terrier,omitempty"`
}

// PlanStatus names the plans of a stack.
type PlanStatus struct {
	// The newest applied plan.
	// +optional
	LastApplied string `json:"lastApplied,omitempty"`

	// The pending plan; approvePlan with this value approves it.
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

	// Its name at the provider: its arn if it has one, otherwise its id.
	Identifier string `json:"id"`
}

// LockStatus names foreign locks on the state.
type LockStatus struct {
	// The newest broken lock.
	// +optional
	LastApplied string `json:"lastApplied,omitempty"`

	// The lock that blocks runs.
	// +optional
	Pending string `json:"pending,omitempty"`
}

// TerrierStatus is the status in Terrier's own terms.
//
// +kubebuilder:validation:XValidation:rule="!has(self.writes) || !has(oldSelf.writes) || self.writes >= oldSelf.writes",message="an older status must not replace a newer one: read the object again"
type TerrierStatus struct {
	// The number of times that Terrier has written this status. The API server refuses
	// a status with a smaller number than the one that it has: another client read it
	// before.
	// +optional
	Writes int64 `json:"writes,omitempty"`

	// The phase of the stack.
	// +optional
	Phase string `json:"phase,omitempty"`

	// The beginning of the phase.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`

	// The rule that decided the phase; terrier explain shows its meaning.
	// +optional
	Rule string `json:"rule,omitempty"`

	// What the stack waits for.
	// +optional
	WaitingFor string `json:"waitingFor,omitempty"`

	// The time of the next attempt after a failure.
	// +optional
	NextAttempt *metav1.Time `json:"nextAttempt,omitempty"`

	// The check interval while nothing changes. Without it Terrier does nothing until
	// an event, or a user, changes something.
	// +optional
	RecheckEvery *metav1.Duration `json:"recheckEvery,omitempty"`

	// The current run.
	// +optional
	Run *RunStatus `json:"run,omitempty"`

	// The isolation of runs of this stack.
	// +optional
	Isolation string `json:"isolation,omitempty"`

	// Names of the environment variables of runs.
	// +optional
	Environment []string `json:"environment,omitempty"`

	// The completeness of status.inventory.
	// +optional
	Inventory *InventoryStatus `json:"inventory,omitempty"`

	// Atomic, since for each of its fields the API server would keep who wrote it.

	// Internal status of the controller, for its next reconcile only.
	// +kubebuilder:validation:Type=object
	// +structType=atomic
	// +optional
	Memory *apiextensionsv1.JSON `json:"memory,omitempty"`
}

// InventoryStatus describes an inventory.
type InventoryStatus struct {
	// The state that lists these resources.
	Of string `json:"of"`

	// The number of resources that are not listed.
	// +optional
	More int `json:"more,omitempty"`

	// Why some resources are not listed.
	// +optional
	Incomplete string `json:"incomplete,omitempty"`
}

// RunStatus is the current run.
type RunStatus struct {
	ID string `json:"id"`

	// plan, check, apply, destroy, preview or health.
	Kind string `json:"kind"`

	// +optional
	Phase string `json:"phase,omitempty"`

	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`

	// When Terrier interrupts the run.
	// +optional
	Deadline *metav1.Time `json:"deadline,omitempty"`
}
