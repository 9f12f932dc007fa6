package dialecttest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Word is what users call the kind of Second.
const Word = "terraform.second.example.com"

// Definition is the definition of that kind, whose resource has the name of the first
// kind's.
const Definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: terraforms.second.example.com}
spec:
  group: second.example.com
  scope: Namespaced
  names: {kind: Terraform, plural: terraforms}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, x-kubernetes-preserve-unknown-fields: true}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

// Second is a dialect for tests of what serves several kinds of stack. Its objects
// have no Go type.
type Second struct{}

var _ dialect.Dialect = Second{}

// secondSpec is the spec of its objects.
type secondSpec struct {
	Code    string      `json:"code,omitempty"`
	Needs   []stack.Ref `json:"needs,omitempty"`
	Approve string      `json:"approve,omitempty"`
	Suspend bool        `json:"suspend,omitempty"`
	Unlock  string      `json:"unlock,omitempty"`
	Session string      `json:"session,omitempty"`
	Replan  string      `json:"replan,omitempty"`
}

// secondStatus is their status.
type secondStatus struct {
	Conditions  []metav1.Condition
	Shown       dialect.View
	Stored      stack.Status
	Environment []string
}

// Kind implements Dialect.
func (Second) Kind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "second.example.com", Version: "v1", Kind: "Terraform"}
}

// New implements Dialect.
func (d Second) New() client.Object {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(d.Kind())
	return u
}

// NewList implements Dialect.
func (d Second) NewList() client.ObjectList {
	l := &unstructured.UnstructuredList{}
	l.SetGroupVersionKind(d.Kind().GroupVersion().WithKind("TerraformList"))
	return l
}

// AddToScheme implements Dialect.
func (Second) AddToScheme(*runtime.Scheme) error { return nil }

// Finalizer implements Dialect.
func (Second) Finalizer() string { return "second.example.com/stack" }

// DependencyFinalizer implements Dialect.
func (Second) DependencyFinalizer() string { return "second.example.com/needed-by." }

// Terrier implements Dialect.
func (Second) Terrier(client.Object) *v1alpha2.TerrierStatus { return nil }

// Annotations implements Dialect.
func (Second) Annotations() []dialect.Annotation { return dialect.Common() }

// part reads a part of an object into v.
func part(o client.Object, name string, v any) error {
	raw, err := json.Marshal(o.(*unstructured.Unstructured).Object[name])
	if err == nil && string(raw) != "null" {
		err = json.Unmarshal(raw, v)
	}
	return err
}

// setPart writes v into a part of an object.
func setPart(o client.Object, name string, v any) {
	raw, err := json.Marshal(v)
	var content map[string]any
	if err == nil {
		err = json.Unmarshal(raw, &content)
	}
	if err != nil {
		panic(fmt.Sprintf("dialecttest: writing %s: %v", name, err)) // plain structs always encode
	}
	o.(*unstructured.Unstructured).Object[name] = content
}

// secondWords are what texts call its fields.
var secondWords = stack.Words{
	Argument: Word + "/NAME",
	Approved: "approve", Automatic: "approve is always", Resume: "set suspend to false", Source: "read code", Retries: "no limit", Pause: "The pause is short.", Interval: "the hour",
	Outputs: "It publishes none.", Variables: "no variables", Environment: "no environment", Credentials: "It takes none", Account: "ask the operator", Priority: "ask the operator", PodTemplate: "Nothing does.", StateName: "name", StatePlace: "name", StateBack: "name",
}

func (Second) asked(o client.Object) (dialect.Asked, error) {
	var spec secondSpec
	if err := part(o, "spec", &spec); err != nil {
		return dialect.Asked{}, err
	}
	return dialect.Asked{Approved: spec.Approve, Suspended: spec.Suspend, Unlock: spec.Unlock, Session: spec.Session, Replan: spec.Replan}.Annotated(o)
}

// Decode implements Dialect.
func (d Second) Decode(o client.Object) (dialect.Stack, error) {
	var spec secondSpec
	var status secondStatus
	a, err := d.asked(o)
	if err = cmp.Or(err, part(o, "spec", &spec), part(o, "status", &status), dialect.CheckAnnotations(o, d.Annotations())); err != nil {
		return dialect.Stack{}, fault.New(fault.Invalid, string(stack.SpecInvalid), err)
	}
	st := dialect.Stack{Status: status.Stored, Replan: a.Replan, Ignored: dialect.Unread(o.GetAnnotations(), d.Annotations())}
	st.Spec = stack.Spec{Mode: stack.Manual, Suspended: a.Suspended, Approved: a.Approved, Unlock: stack.Unlock{ID: a.Unlock}, Interval: time.Hour, Words: secondWords}
	a.Into(&st.Spec)
	st.Configuration = stack.Configuration{Backend: stack.Backend{Kind: stack.Managed, Suffix: "second-" + o.GetName()}, DependsOn: spec.Needs}
	var wrong error
	st.Configuration.Prerequisites, err = dialect.Prerequisites(o)
	st.Configuration.AfterApply, wrong = dialect.AfterApply(o)
	st.Legible = st.Configuration
	return st, cmp.Or(err, wrong)
}

// View implements Dialect.
func (d Second) View(o client.Object) dialect.View {
	var spec secondSpec
	var status secondStatus
	if part(o, "spec", &spec) != nil || part(o, "status", &status) != nil {
		return dialect.View{}
	}
	v := status.Shown
	v.Asked, _ = d.asked(o)
	v.Conditions, v.Source, v.Environment = status.Conditions, spec.Code, status.Environment
	return v
}

// Ask implements Dialect.
func (d Second) Ask(o client.Object, want dialect.Asked) {
	var spec secondSpec
	is, err := d.asked(o)
	if err = cmp.Or(err, part(o, "spec", &spec)); err != nil {
		return // the tests write no such object
	}
	if want != is {
		spec.Approve, spec.Suspend, spec.Unlock, spec.Session, spec.Replan = want.Approved, want.Suspended, want.Unlock, want.Session, want.Replan
		setPart(o, "spec", spec)
	}
	is.Annotate(o, want)
}

// Encode implements Dialect.
func (Second) Encode(o client.Object, r dialect.Summary) {
	m := r.Status
	v := dialect.View{
		Phase: string(r.Decision.Reason), Rule: r.Decision.Rule, WaitingFor: r.Decision.Message, Since: r.Now, Next: r.Next, Every: r.Every,
		Handled: m.HandledReplan, Failures: m.Failures, Isolation: r.Isolation, Outputs: m.Outputs, Revision: m.Planned.Revision,
	}
	if m.Applied != nil {
		v.Revision = m.Applied.PlanInputs.Revision
	}
	if m.Pending != nil {
		v.Pending = m.Pending.Name
	}
	if m.Lock != nil {
		v.Lock = m.Lock.ID
	}
	if run := r.Run; run != nil {
		v.Run = &dialect.Running{ID: run.ID, Kind: string(run.Kind), Phase: run.Step, Started: run.Since, Until: run.Until}
	}
	ready := metav1.Condition{Type: "Ready", Status: metav1.ConditionUnknown, Reason: v.Phase, Message: v.WaitingFor, LastTransitionTime: metav1.NewTime(r.Now)}
	setPart(o, "status", secondStatus{Conditions: []metav1.Condition{ready}, Shown: v, Stored: m, Environment: r.Environment})
}

// OnlyProgress implements Dialect.
func (Second) OnlyProgress(client.Object, client.Object) bool { return false }

// Ready implements Dialect.
func (Second) Ready(client.Object) (bool, string) { return false, "no test relies on it" }

// EventReason implements Dialect.
func (Second) EventReason(stack.Run) string { return "Second" }
