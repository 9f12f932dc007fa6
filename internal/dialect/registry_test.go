package dialect_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/dialecttest"
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

// Two kinds are called Terraform: an object that names one without its group means its
// own, whichever is registered first.
func TestAKindWithoutAGroupIsTheObjectsOwn(t *testing.T) {
	first, second := infra.Dialect{}, dialecttest.Second{}
	for _, r := range []dialect.Registry{dialect.NewRegistry(first, second), dialect.NewRegistry(second, first)} {
		for _, by := range []dialect.Dialect{first, second} {
			for kind, want := range map[string]dialect.Dialect{
				"": by, "Terraform": by, "Widget": by, dialect.KindOf(first): first, dialect.KindOf(second): second,
			} {
				if got := r.Meant(kind, by); got != want {
					t.Errorf("%q by %s means %s, want %s", kind, dialect.KindOf(by), dialect.KindOf(got), dialect.KindOf(want))
				}
			}
		}
	}
}
