package infra

import (
	"cmp"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect"
)

// Terrier returns status.terrier.
func (Dialect) Terrier(o client.Object) *v1alpha2.TerrierStatus {
	return o.(*v1alpha2.Terraform).Status.Terrier
}

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
	v.BreakGlassDenied = conditionsOf(obj).BreakGlassDenied()
	v.Terrier(st.Terrier)
	return v
}
