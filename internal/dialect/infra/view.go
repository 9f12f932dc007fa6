package infra

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/stack"
)

// View reads what a Terraform shows of its stack.
func (Dialect) View(o client.Object) dialect.View {
	obj := o.(*v1alpha2.Terraform)
	spec, st := &obj.Spec, &obj.Status
	v := dialect.View{
		Conditions: st.Conditions, Source: "inline", Path: spec.Path, Outputs: st.AvailableOutputs,
		Pending: st.Plan.Pending, Lock: st.Lock.Pending, Handled: st.LastHandledReconcileAt,
		Revision: cmp.Or(st.LastAppliedRevision, st.LastPlannedRevision), Failures: int(st.ReconciliationFailures),
	}
	v.Asked, _ = asked(obj)
	if r := spec.SourceRef; r != nil {
		v.Source = r.Kind + "/" + r.Name
		if r.Namespace != "" && r.Namespace != obj.Namespace {
			v.Source = r.Kind + "/" + r.Namespace + "/" + r.Name
		}
	}
	if w := spec.WriteOutputsToSecret; w != nil {
		v.OutputsIn = w.Name
	}
	if c := meta.FindStatusCondition(st.Conditions, ConditionGlass); c != nil {
		v.BreakGlassDenied = c.Reason == reasonNotAllowed
	}
	if t := st.Terrier; t != nil {
		ours(&v, t)
	}
	return v
}

// ours is what the part of the status shows that upstream does not have.
func ours(v *dialect.View, t *v1alpha2.TerrierStatus) {
	v.Phase, v.Rule, v.WaitingFor = string(stack.ParseReason(t.Phase)), t.Rule, t.WaitingFor
	v.Since, v.Next = timeOf(t.Since), timeOf(t.NextAttempt)
	if t.RecheckEvery != nil {
		v.Every = t.RecheckEvery.Duration
	}
	v.Isolation, v.Environment = t.Isolation, t.Environment
	if r := t.Run; r != nil {
		v.Run = &dialect.Running{ID: r.ID, Kind: r.Kind, Phase: r.Phase, Started: timeOf(r.StartedAt), Until: timeOf(r.Deadline)}
	}
}

func timeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}
