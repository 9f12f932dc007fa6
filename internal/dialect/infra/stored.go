package infra

import (
	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/stack"
)

// stored reads the status that earlier reconciles wrote. An object that upstream
// reconciled before has none, and is adopted.
func stored(s *v1alpha2.TerraformStatus) (stack.Status, error) {
	m, found, err := dialect.Stored(s.Terrier)
	if !found {
		return adopted(s), nil
	}
	return m, err
}

// adopted keeps of upstream's status what must not be lost: that resources may
// exist, which request was answered, a lock that was met, and the names of
// outputs. A pending plan is not kept, since its inputs are unknown.
func adopted(s *v1alpha2.TerraformStatus) stack.Status {
	m := stack.Status{
		Resources:   stack.Resources{Created: s.LastAppliedRevision != "" || s.Plan.LastApplied != ""},
		Answers:     stack.Answers{HandledReplan: s.LastHandledReconcileAt},
		StoredState: stack.StoredState{BrokenLock: s.Lock.LastApplied, Outputs: s.AvailableOutputs},
	}
	if s.Lock.Pending != "" {
		m.Lock = &stack.Lock{ID: s.Lock.Pending}
		if s.LastPlanAt != nil {
			m.Lock.Seen = s.LastPlanAt.Time
		}
	}
	return m
}
