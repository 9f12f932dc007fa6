package dialect_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
)

func TestDialectsAreFoundByTheirKind(t *testing.T) {
	r := dialect.NewRegistry(infra.Dialect{})
	for _, kind := range []string{"Terraform", "Terraform.infra.contrib.fluxcd.io"} {
		if r.Of(kind) != (infra.Dialect{}) {
			t.Errorf("%q has the dialect %v, want infra", kind, r.Of(kind))
		}
	}
	if d := r.Of("ConfigMap"); d != nil {
		t.Errorf("a kind of no stack has the dialect %v", d)
	}
	if r.For(infra.Dialect{}.New()) != (infra.Dialect{}) || r.For(&corev1.ConfigMap{}) != nil {
		t.Error("an object is taken for one of another kind")
	}
	if len(r.All()) != 1 || r.Found("") != (infra.Dialect{}) || r.Found("Widget.example.org") != (infra.Dialect{}) {
		t.Errorf("the registry holds %v", r.All())
	}
	defer func() {
		if recover() == nil {
			t.Error("two dialects have one kind")
		}
	}()
	dialect.NewRegistry(infra.Dialect{}, infra.Dialect{})
}
