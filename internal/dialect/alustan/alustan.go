// Package alustan reads objects of alustan.io, the API of the Alustan controller, as
// stacks that are applied by scripts. It is pure: it looks at the object it is given, and
// resolves nothing that the object refers to.
//
// It accepts what the kind had in any of its four lives. What cannot mean anything is
// Invalid, and fields without effect are named. What each field means is in
// docs/alustan.md.
//
// Start reading at Dialect.Decode.
package alustan

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/alustan/v1alpha1"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Finalizers of the kind.
const (
	Finalizer           = "terrier.dev/alustan"
	DependencyFinalizer = "terrier.dev/dependency.of."
)

// Annotations for what the kind has no fields for.
const (
	Approval    = "terrier.dev/approval"    // manual or auto
	Approved    = "terrier.dev/approved"    // the name of a plan, or its digest
	Suspended   = "terrier.dev/suspended"   // true or false
	Unlock      = "terrier.dev/unlock"      // the foreign lock that may be broken
	BreakGlass  = "terrier.dev/break-glass" // begins a session
	Drift       = "terrier.dev/drift"       // repair or report
	Interval    = "terrier.dev/interval"    // between two checks
	Retries     = "terrier.dev/retries"     // of what failed
	RequestedAt = "reconcile.fluxcd.io/requestedAt"
)

// DefaultInterval is the time between two drift checks where neither the object nor the
// operator says another.
const DefaultInterval = 6 * time.Hour

// What objects without such annotations get.
const (
	defaultRetries = 10
	retryEvery     = 15 * time.Second
	retryMax       = time.Hour
)

// Dialect speaks alustan.io.
type Dialect struct {
	Interval time.Duration // between two checks of objects that say nothing about it; zero means six hours
}

var _ dialect.Dialect = Dialect{}

// Kind returns the kind Terraform.
func (Dialect) Kind() schema.GroupVersionKind {
	return v1alpha1.GroupVersion.WithKind(v1alpha1.Kind)
}

// New returns an empty Terraform.
func (Dialect) New() client.Object { return &v1alpha1.Terraform{} }

// NewList returns an empty list of Terraforms.
func (Dialect) NewList() client.ObjectList { return &v1alpha1.TerraformList{} }

// AddToScheme adds the types of the group.
func (Dialect) AddToScheme(s *runtime.Scheme) error { return v1alpha1.AddToScheme(s) }

// Finalizer returns ours: upstream has none that another controller could keep.
func (Dialect) Finalizer() string { return Finalizer }

// DependencyFinalizer returns a prefix that no object has: upstream knows no
// dependencies.
func (Dialect) DependencyFinalizer() string { return DependencyFinalizer }

// Decode reads a Terraform.
func (d Dialect) Decode(o client.Object) (dialect.Stack, error) {
	obj := o.(*v1alpha1.Terraform)
	m, found, err := dialect.Stored(obj.Status.Terrier)
	if err != nil {
		return dialect.Stack{Spec: stack.Spec{Words: words(obj)}}, err
	}
	if !found {
		m = adopted(&obj.Status)
	}
	s := d.spec(obj)
	a, wrong := asked(obj)
	a.Into(&s)
	s.Suspended, s.Unlock, s.Words = a.Suspended, stack.Unlock{ID: a.Unlock}, words(obj)
	legible, why := configuration(obj)
	if s.NoDestroyScript = legible.Script.Destroy.IsZero(); why != nil && obj.Spec.Scripts.Destroy != nil {
		s.NoDestroyScript = false // it may be there, and cannot be read: the error says so
	}
	dialect.Annotated(obj, &s)
	known := d.Annotations()
	err = cmp.Or(why, wrong, dialect.CheckAnnotations(obj, known))
	if s.ApproveDestroy && !obj.DeletionTimestamp.IsZero() {
		s.Mode = stack.Manual // the destroy waits for a user, whatever an apply does
	}
	s.Approved = a.Approved
	st := dialect.Stack{Spec: s, Status: m, Legible: legible, Replan: a.Replan, Ignored: append(ignored(&obj.Spec), dialect.Unread(obj.Annotations, known)...)}
	if err == nil {
		st.Configuration, st.Owned, st.OwnedFields = legible, sourceFor(obj, s.Interval), ownedFields(obj)
	} else {
		st.Configuration.Script = legible.Script
	}
	return st, err
}

// Annotations implements Dialect.
func (Dialect) Annotations() []dialect.Annotation {
	return append(dialect.Common(),
		dialect.Annotation{Name: Approval, May: "manual or auto", Reads: dialect.OneOf("manual", "auto")},
		dialect.Annotation{Name: Drift, May: "repair or report", Reads: dialect.OneOf("repair", "report")},
		dialect.Annotation{Name: Interval, May: "a duration such as 90s or 6h", Reads: func(v string) bool { _, err := time.ParseDuration(v); return err == nil }},
		dialect.Annotation{Name: Retries, May: "a number such as 10", Reads: func(v string) bool { n, err := strconv.Atoi(v); return err == nil && n >= 0 }},
		dialect.Annotation{Name: Suspended, May: dialect.TrueOrFalse, Reads: dialect.IsBool},
		dialect.Annotation{Name: Approved}, dialect.Annotation{Name: Unlock}, dialect.Annotation{Name: BreakGlass},
		dialect.Annotation{Name: "terrier.dev/backend", Instead: "spec.backend"},
		dialect.Annotation{Name: "terrier.dev/backend-settings", Instead: "spec.backend"},
	)
}

// spec reads what the next decision depends on. What cannot be read counts as the more
// careful value, or as if it were not there.
func (d Dialect) spec(obj *v1alpha1.Terraform) stack.Spec {
	retries := defaultRetries
	s := stack.Spec{
		Mode: stack.Auto, Script: true, CheckDrift: true, DestroyLast: true,
		Interval: cmp.Or(d.Interval, DefaultInterval), RetryEvery: retryEvery, RetryMax: retryMax, Backoff: stack.Exponential, MaxRetries: &retries,
	}
	if v := obj.Annotations[Approval]; v != "" && v != "auto" {
		s.Mode = stack.Manual // a typing error must not let a script run that a user has to see first
	}
	if v := obj.Annotations[Drift]; v != "" && v != "repair" {
		s.ReportDrift = true
	}
	if every, err := time.ParseDuration(obj.Annotations[Interval]); err == nil && every <= 0 {
		s.Interval = dialect.Never
	} else if err == nil {
		s.Interval = max(every, time.Second)
	}
	if n, err := strconv.Atoi(obj.Annotations[Retries]); err == nil && n >= 0 {
		retries = n
	}
	return s
}

// adopted keeps of the status of another controller that resources may exist. They may as
// soon as that controller began: its states do not follow the exit code of the script, and
// metacontroller replaced its whole status by the generation that it had observed.
func adopted(s *v1alpha1.TerraformStatus) stack.Status {
	begun := s.State != Pending && (s.State != "" || s.ObservedGeneration > 0)
	return stack.Status{Resources: stack.Resources{Created: begun}}
}

// invalid is an error that the user fixes by editing the named field.
func invalid(field, format string, args ...any) error {
	return fault.New(fault.Invalid, string(stack.SpecInvalid), fmt.Errorf("%s %s", field, fmt.Sprintf(format, args...)))
}

// Ready reports whether the object is ready and up to date.
func (Dialect) Ready(o client.Object) (bool, string) {
	obj := o.(*v1alpha1.Terraform)
	return conditionsOf(obj).Ready(obj.Status.ObservedGeneration)
}

// EventReason returns the reason that all kinds have for the end of a run.
func (Dialect) EventReason(r stack.Run) string { return dialect.EventReason(r) }

// OnlyProgress reports whether the two differ in nothing that lasts: neither in their
// stored status, nor in a condition except for its message.
func (Dialect) OnlyProgress(before, after client.Object) bool {
	was, err := lasting(before)
	is, err2 := lasting(after)
	return errors.Join(err, err2) == nil && equality.Semantic.DeepEqual(was, is)
}

// lasting is the status of an object without what is only progress.
func lasting(o client.Object) (*v1alpha1.TerraformStatus, error) {
	s := o.(*v1alpha1.Terraform).Status.DeepCopy()
	s.Message = ""
	for i := range s.Conditions {
		s.Conditions[i].Message, s.Conditions[i].LastTransitionTime = "", metav1.Time{}
	}
	var err error
	s.Terrier, err = dialect.Lasting(s.Terrier)
	return s, err
}
