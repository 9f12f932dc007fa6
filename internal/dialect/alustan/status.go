package alustan

import (
	"cmp"
	"encoding/json"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/alustan/v1alpha1"
	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

// The values of status.state.
const (
	Pending = "Pending"
	Success = "Success"
	Failed  = "Failed"
)

// conditionPassedOver warns of a configMapRef that does not count.
const conditionPassedOver = "ConfigMapIgnored"

// conditionsOf are the conditions of obj.
func conditionsOf(obj *v1alpha1.Terraform) dialect.Conditions {
	return dialect.Conditions{All: &obj.Status.Conditions, Generation: obj.Generation, IgnoredAs: "NoEffect"}
}

// Encode writes the status of a Terraform.
func (Dialect) Encode(o client.Object, s dialect.Summary) {
	obj := o.(*v1alpha1.Terraform)
	c, st, m := conditionsOf(obj), &obj.Status, s.Status
	if s.Unreadable != nil {
		c.Unreadable(s.Unreadable)
		return
	}
	if s.Failing != nil {
		c.Failing(s.Failing)
		return
	}
	was := st.State
	if dialect.Corrected(c, s) {
		was = "" // it is the state of the object as it was before
	}
	st.State, st.Message = state(was, s), fault.OneLine(s.Decision.Message) // kubectl shows the first line of a column
	st.ObservedGeneration = obj.Generation
	st.LastHandledReconcileAt = m.HandledReplan
	st.Failures, st.AvailableOutputs = int64(m.Failures), m.Outputs
	st.Plan, st.Lock = "", ""
	if m.Pending != nil {
		st.Plan = m.Pending.Name
	}
	if m.Lock != nil {
		st.Lock = m.Lock.ID
	}
	st.Revision = m.Planned.Revision
	if m.Applied != nil {
		st.Revision = cmp.Or(m.Applied.PlanInputs.Revision, st.Revision)
	}
	switch {
	case obj.Spec.PostDeploy == nil:
		st.PostDeployOutput = nil
	case s.PostDeploy != nil:
		st.PostDeployOutput = postDeployOutput(s.PostDeploy.Outputs)
	}
	dialect.SetConditions(c, s)
	if over := passedOver(&obj.Spec); len(over) > 0 {
		c.Set(conditionPassedOver, metav1.ConditionTrue, "InlineWins", "The inline script counts, and Terrier ignores "+strings.Join(over, " and ")+": remove one of the two")
	} else {
		c.Drop(conditionPassedOver)
	}
	st.Terrier = dialect.Terrier(st.Terrier, s)
}

// postDeployOutput has each output under value, as the former controller wrote it.
func postDeployOutput(outputs map[string]json.RawMessage) *apiextensionsv1.JSON {
	if outputs == nil {
		return nil
	}
	type output struct {
		Value json.RawMessage `json:"value"`
	}
	wrapped := map[string]output{}
	for name, value := range outputs {
		wrapped[name] = output{value}
	}
	raw, err := json.Marshal(wrapped)
	if err != nil {
		panic("alustan: encoding outputs that were decoded: " + err.Error())
	}
	return &apiextensionsv1.JSON{Raw: raw}
}

// state puts a decision into upstream's words. A stack that failed stays so while it is
// tried again.
func state(was string, s dialect.Summary) string {
	switch d := s.Decision; {
	case d.Ready == stack.Ready:
		return Success
	case d.Reason == stack.Suspended && was != "":
		return was
	case d.Ready == stack.Stalled, s.Status.Failures > 0, fails(d.Reason):
		return Failed
	case d.Reason == stack.Suspended && s.Status.Applied != nil && s.Status.Pending == nil:
		return Success
	default:
		return Pending
	}
}

// fails reports whether a situation is a failure, although it may pass by itself.
func fails(r stack.Reason) bool {
	switch r {
	case stack.InputsFailed, stack.SourceFailed, stack.SourceDenied, stack.ModuleInvalid, stack.EngineMissing,
		stack.StateFailed, stack.StartFailed, stack.OutputsFailed, stack.LockedByOther, stack.RetryLater, stack.DestroyFailed:
		return true
	default:
		return false
	}
}

// Terrier returns status.terrier.
func (Dialect) Terrier(o client.Object) *v1alpha2.TerrierStatus {
	return o.(*v1alpha1.Terraform).Status.Terrier
}

// View reads what a Terraform shows of its stack.
func (Dialect) View(o client.Object) dialect.View {
	obj := o.(*v1alpha1.Terraform)
	st := &obj.Status
	v := dialect.View{
		Conditions: st.Conditions, Source: "GitRepository/" + ownName(obj.Name), Outputs: st.AvailableOutputs,
		Pending: st.Plan, Lock: st.Lock, Handled: st.LastHandledReconcileAt, Revision: st.Revision, Failures: int(st.Failures),
		BreakGlassDenied: conditionsOf(obj).BreakGlassDenied(),
	}
	if fromImage(obj) {
		v.Source = "OCIRepository/" + ownName(obj.Name)
	}
	if g := obj.Spec.GitRepo; g != nil {
		v.Path = within(g.Path)
	}
	v.Asked, _ = asked(obj)
	v.Terrier(st.Terrier)
	return v
}
