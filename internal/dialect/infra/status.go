package infra

import (
	"encoding/json"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/stack"
)

// encode fills the status. It keeps every field that the report is silent about,
// so that the same report always gives the same status.
func encode(obj *v1alpha2.Terraform, s dialect.Summary) {
	if s.Unreadable != nil {
		setter{obj}.set(ConditionReady, metav1.ConditionFalse, StatusUnreadable, s.Unreadable.Error()+
			". Terrier does nothing with this stack until the status is readable: restore it, or remove status.terrier to have the stack adopted again from the rest of its status")
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
		st.LastPlanAt = at(m.PlannedAt)
	}
	st.Plan = v1alpha2.PlanStatus{LastApplied: st.Plan.LastApplied}
	if p := m.Pending; p != nil {
		st.Plan.Pending, st.Plan.IsDestroyPlan, st.Plan.IsDriftDetectionPlan = p.Name, p.Destroy, p.Drift
		st.LastPlannedGeneration = obj.Generation
	}
	if p := m.Applied; p != nil {
		st.Plan.LastApplied, st.LastAppliedRevision = p.Name, p.PlanInputs.Revision
		if p.Drift {
			st.LastAppliedByDriftDetectionAt = at(m.AppliedAt)
		}
	}
	if good := at(later(m.PlannedAt, m.AppliedAt)); good != nil && m.Failures == 0 {
		st.LastSuccessfulReconcileAt = good // nil of one that upstream reconciled before, and nothing has run since
	}
	if m.Drift != nil {
		st.LastDriftDetectedAt = at(m.Drift.At)
	}
	st.Lock = v1alpha2.LockStatus{LastApplied: m.BrokenLock}
	if m.Lock != nil {
		st.Lock.Pending = m.Lock.ID
	}
	st.AvailableOutputs = m.Outputs
	st.ReconciliationFailures = int64(m.Failures)
	conditions(obj, s)
	st.Terrier = terrier(st.Terrier, s)
	list(obj, s.Inventory)
}

// terrier is the part of the status that upstream does not have.
func terrier(old *v1alpha2.TerrierStatus, s dialect.Summary) *v1alpha2.TerrierStatus {
	raw, err := json.Marshal(s.Status)
	if err != nil {
		panic("infra: encoding the status: " + err.Error()) // a plain struct always encodes
	}
	t := &v1alpha2.TerrierStatus{
		Phase:       string(s.Decision.Reason),
		Rule:        s.Decision.Rule,
		Isolation:   s.Isolation,
		Environment: s.Environment,
		Memory:      &apiextensionsv1.JSON{Raw: raw},
		NextAttempt: at(s.Next),
	}
	if s.Every > 0 && s.Every < never {
		t.RecheckEvery = &metav1.Duration{Duration: s.Every}
	}
	if !s.Decision.Reason.Settled() {
		t.WaitingFor = s.Decision.Message
	}
	t.Since = at(s.Now)
	if old != nil {
		keepOld(t, *old, s)
	}
	if r := s.Run; r != nil && !r.Done && r.Kind != stack.CheckRun {
		t.Run = &v1alpha2.RunStatus{ID: r.ID, Kind: string(r.Kind), Phase: r.Step, StartedAt: at(r.Since), Deadline: at(r.Until)}
	}
	return t
}

// keepOld keeps what did not change, and what this pass did not observe.
func keepOld(t *v1alpha2.TerrierStatus, old v1alpha2.TerrierStatus, s dialect.Summary) {
	t.Inventory = old.Inventory
	if old.Phase == t.Phase && old.Since != nil {
		t.Since = old.Since
	}
	if old.Phase == t.Phase && old.WaitingFor == t.WaitingFor && old.Rule != t.Rule && slices.Contains(stack.Rules(), old.Rule) {
		t.Rule = old.Rule // the rule that led here, if it still has that name; the rule that keeps it here is not worth a write
	}
	if t.Isolation == "" {
		t.Isolation = old.Isolation
	}
	if s.Environment == nil {
		t.Environment = old.Environment
	}
}

// at is a time as the API keeps it: whole seconds, nil for none.
func at(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t.Truncate(time.Second)}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
