package infra

import (
	"cmp"
	"encoding/json"
	"errors"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Annotations and finalizers of the API, as tofu-controller names them.
const (
	Finalizer           = "finalizers.tf.contrib.fluxcd.io"
	DependencyFinalizer = "tf.dependency.of." // prefix; followed by the name of a dependant
	RequestedAt         = "reconcile.fluxcd.io/requestedAt"
	Backend             = "terrier.dev/backend"          // the plug-in that keeps the state
	BackendSettings     = "terrier.dev/backend-settings" // of it: a JSON object of texts
	WebhookPlan         = "terrier.dev/webhook-plan"     // masked or unmasked; what webhooks are shown of a plan
)

// Dialect speaks infra.contrib.fluxcd.io.
type Dialect struct{ Defaults Defaults }

var _ dialect.Dialect = Dialect{}

// Kind returns the kind Terraform.
func (Dialect) Kind() schema.GroupVersionKind { return v1alpha2.GroupVersion.WithKind("Terraform") }

// New returns an empty Terraform.
func (Dialect) New() client.Object { return &v1alpha2.Terraform{} }

// NewList returns an empty list of Terraforms.
func (Dialect) NewList() client.ObjectList { return &v1alpha2.TerraformList{} }

// AddToScheme adds the types of the group.
func (Dialect) AddToScheme(s *runtime.Scheme) error { return v1alpha2.AddToScheme(s) }

// Finalizer returns the finalizer that upstream uses.
func (Dialect) Finalizer() string { return Finalizer }

// DependencyFinalizer returns upstream's prefix.
func (Dialect) DependencyFinalizer() string { return DependencyFinalizer }

// OnlyProgress reports whether the two differ in nothing that lasts: neither in
// their stored status, nor in a condition except for its message.
func (Dialect) OnlyProgress(before, after client.Object) bool {
	was, err := lasting(before)
	is, err2 := lasting(after)
	return errors.Join(err, err2) == nil && equality.Semantic.DeepEqual(was, is)
}

// lasting is the status of an object without what is only progress.
func lasting(o client.Object) (*v1alpha2.TerraformStatus, error) {
	s := o.(*v1alpha2.Terraform).Status.DeepCopy()
	s.LastAttemptedRevision = ""
	for i := range s.Conditions {
		s.Conditions[i].Message, s.Conditions[i].LastTransitionTime = "", metav1.Time{}
	}
	var err error
	s.Terrier, err = dialect.Lasting(s.Terrier)
	return s, err
}

// Ready reports whether the object is ready and up to date.
func (Dialect) Ready(o client.Object) (bool, string) {
	obj := o.(*v1alpha2.Terraform)
	return conditionsOf(obj).Ready(obj.Status.ObservedGeneration)
}

// EventReason returns upstream's reason for the end of a run.
func (Dialect) EventReason(r stack.Run) string { return dialect.EventReason(r) }

// Annotations implements Dialect. The kind has fields for what users of the other kind say
// in annotations.
func (Dialect) Annotations() []dialect.Annotation {
	known := append(dialect.Common(), dialect.Annotation{Name: Backend}, dialect.Annotation{
		Name: WebhookPlan, May: WebhookPlanMasked + " or " + WebhookPlanUnmasked, Reads: dialect.OneOf(WebhookPlanMasked, WebhookPlanUnmasked),
	}, dialect.Annotation{
		Name: BackendSettings, May: "a JSON object of texts", Reads: func(v string) bool { return json.Unmarshal([]byte(v), &map[string]string{}) == nil },
	})
	for _, a := range []struct{ name, instead string }{
		{"approval", "spec.approvePlan"}, {"approved", "spec.approvePlan"}, {"suspended", "spec.suspend"}, {"unlock", "spec.tfstate"},
		{"break-glass", "the annotation " + BreakTheGlassAt}, {"drift", "spec.disableDriftDetection"}, {"interval", "spec.interval"}, {"retries", "spec.remediation.retries"},
	} {
		known = append(known, dialect.Annotation{Name: "terrier.dev/" + a.name, Instead: a.instead})
	}
	return known
}

// Decode reads a Terraform.
func (d Dialect) Decode(o client.Object) (dialect.Stack, error) {
	obj := o.(*v1alpha2.Terraform)
	spec, configuration, status, err := Decode(obj, d.Defaults)
	a, wrong := asked(obj)
	a.Into(&spec)
	spec.Words = words(obj)
	dialect.Annotated(obj, &spec)
	known := d.Annotations()
	asks, unclear := dialect.Identity(obj)
	needs, unread := dialect.Prerequisites(obj)
	after, unsaid := dialect.AfterApply(obj)
	err = cmp.Or(err, wrong, pluggedIn(obj, &configuration), unclear, unread, unsaid, dialect.CheckAnnotations(obj, known))
	configuration.Identity, configuration.Encrypted, configuration.Prerequisites = asks, dialect.Encrypted(obj), needs
	configuration.AfterApply = after
	spec.OwnBackend = configuration.Backend.Kind == stack.Declared
	configuration.Engine, configuration.Network = obj.Annotations[dialect.Engine], obj.Annotations[dialect.Network]
	configuration.SourcePaths = dialect.SelectedPaths(obj)
	legible := configuration
	if err != nil {
		legible = Legible(obj)
	}
	return dialect.Stack{
		Spec: spec, Configuration: configuration, Legible: legible, Status: status,
		Replan:  a.Replan,
		Ignored: append(notYet(&obj.Spec), dialect.Unread(obj.Annotations, known)...), OnlyPods: onlyPods(&obj.Spec),
		Listed: listed(&obj.Status),
	}, err
}

// Encode writes the status of a Terraform.
func (Dialect) Encode(o client.Object, s dialect.Summary) {
	encode(o.(*v1alpha2.Terraform), s)
}
