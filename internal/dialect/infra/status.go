package infra

import (
	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect"
)

// encode fills the status. It keeps every field that the report is silent about,
// so that the same report always gives the same status.
func encode(obj *v1alpha2.Terraform, s dialect.Summary) {
	if s.Unreadable != nil {
		conditionsOf(obj).Unreadable(s.Unreadable)
		return
	}
	if s.Failing != nil {
		conditionsOf(obj).Failing(s.Failing)
		return
	}
	st, m := &obj.Status, s.Status
	st.ObservedGeneration = obj.Generation
	st.LastHandledReconcileAt = m.HandledReplan
	if s.PlanInputs.Revision != "" {
		st.LastAttemptedRevision = s.PlanInputs.Revision
	}
	if m.Planned.Revision != "" {
		st.LastPlannedRevision = m.Planned.Revision
		st.LastPlanAt = dialect.At(m.PlannedAt)
	}
	st.Plan = v1alpha2.PlanStatus{LastApplied: st.Plan.LastApplied}
	if p := m.Pending; p != nil {
		st.Plan.Pending, st.Plan.IsDestroyPlan, st.Plan.IsDriftDetectionPlan = p.Name, p.Destroy, p.Drift
		st.LastPlannedGeneration = obj.Generation
	}
	if p := m.Applied; p != nil {
		st.Plan.LastApplied, st.LastAppliedRevision = p.Name, p.PlanInputs.Revision
		if p.Drift {
			st.LastAppliedByDriftDetectionAt = dialect.At(m.AppliedAt)
		}
	}
	if good := dialect.At(dialect.Later(m.PlannedAt, m.AppliedAt)); good != nil && m.Failures == 0 {
		st.LastSuccessfulReconcileAt = good // nil of one that upstream reconciled before, and nothing has run since
	}
	if m.Drift != nil {
		st.LastDriftDetectedAt = dialect.At(m.Drift.At)
	}
	st.Lock = v1alpha2.LockStatus{LastApplied: m.BrokenLock}
	if m.Lock != nil {
		st.Lock.Pending = m.Lock.ID
	}
	st.AvailableOutputs = m.Outputs
	st.ReconciliationFailures = int64(m.Failures)
	conditions(obj, s)
	st.Terrier = dialect.Terrier(st.Terrier, s)
	list(obj, s.Inventory)
}
