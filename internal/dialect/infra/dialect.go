package infra

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect"
)

// Annotations and finalizers of the API (tofu-controller.md §1.5).
const (
	Finalizer           = "finalizers.tf.contrib.fluxcd.io"
	DependencyFinalizer = "tf.dependency.of." // prefix; followed by the name of a dependant
	RequestedAt         = "reconcile.fluxcd.io/requestedAt"
)

// Dialect speaks infra.contrib.fluxcd.io.
type Dialect struct{ Defaults Defaults }

var _ dialect.Dialect = Dialect{}

// New returns an empty Terraform.
func (Dialect) New() client.Object { return &v1alpha2.Terraform{} }

// Finalizer returns the finalizer that upstream uses.
func (Dialect) Finalizer() string { return Finalizer }

// Decode reads a Terraform.
func (d Dialect) Decode(o client.Object) (dialect.Stack, error) {
	obj := o.(*v1alpha2.Terraform)
	spec, program, memory, err := Decode(obj, d.Defaults)
	return dialect.Stack{
		Spec: spec, Program: program, Memory: memory,
		Request: obj.Annotations[RequestedAt],
		Ignored: NotYet(&obj.Spec),
	}, err
}

// Encode writes the status of a Terraform.
func (Dialect) Encode(o client.Object, s dialect.Status) {
	encode(o.(*v1alpha2.Terraform), s)
}
