package tenants

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/tenantapi"
)

// wantTied waits until exactly these tenants are tied to the registry.
func (o *office) wantTied(when string, names ...string) {
	o.t.Helper()
	o.eventually(when+" the right tenants are tied to the registry", func() error {
		reg := o.registry()
		got := []string{}
		for name, t := range o.tenants() {
			if metav1.IsControlledBy(&t, reg) {
				got = append(got, name)
			}
			if tenantapi.RegistryOf(&t) != "reg" {
				return fmt.Errorf("%s belongs to the registry %q", name, tenantapi.RegistryOf(&t))
			}
		}
		if slices.Sort(got); !slices.Equal(got, names) {
			return fmt.Errorf("they are %v, want %v", got, names)
		}
		return nil
	})
}

// Kubernetes deletes a tenant that is tied to its registry with that. It ties no tenant that
// anything protects, and each other one.
func TestProtectedTenantsAreNotTiedToTheirRegistry(t *testing.T) {
	o := newOffice(t)
	o.insert(2)
	o.open()
	o.sync()
	o.wantTied("at first", "a000-web", "a001-web")
	protected := o.tenants()["a000-web"]
	o.annotate(&protected, tenantsv1.AnnotationDeletionProtection, "true")
	o.wantTied("with an annotation", "a001-web")
	o.template("deletionProtection: true")
	o.wantTied("with a template that protects")
	o.insert(3)
	o.sync()
	o.wantTenants("after another row", "a000-web", "a001-web", "a002-web")
	o.wantTied("after another row")
	o.table.with(func() { o.table.err = errDown })
	o.template("deletionProtection: false")
	o.wantTied("once the template protects no more, while the database is away", "a001-web", "a002-web")
	o.annotate(&protected, tenantsv1.AnnotationDeletionProtection, "false")
	o.wantTied("without a protection", "a000-web", "a001-web", "a002-web")
}

// A deletion in the foreground that no policy refuses, while Terrier is away, is the worst that a
// registry may meet. Tenants that only their template protects outlive it.
func TestProtectedTenantsOutliveADeletionOfTheirRegistryInTheForeground(t *testing.T) {
	o := newOffice(t)
	o.insert(2)
	o.open()
	o.template("deletionProtection: true")
	o.sync()
	o.wantTenants("at first", "a000-web", "a001-web")
	o.wantTied("at first")
	o.stop()
	if err := o.Client.Delete(t.Context(), o.registry(), client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}
	o.eventually("the garbage collector is done with the registry", func() error {
		if slices.Contains(o.registry().Finalizers, metav1.FinalizerDeleteDependents) {
			return errors.New("it waits for dependents")
		}
		return nil
	})
	for name, tn := range o.tenants() {
		if tn.DeletionTimestamp != nil {
			t.Errorf("Kubernetes has deleted %s", name)
		}
	}
	o.metrics = prometheus.NewRegistry()
	o.start()
	o.wantCondition(o.ofRegistry, "Guarded", metav1.ConditionTrue, "DeletionProtected")
	o.wantTenants("while they are protected", "a000-web", "a001-web")
	o.template("deletionProtection: false")
	o.wantTenants("once they are not")
}
