package controller

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/kube"
)

// A status that the API server gave back is not written again because its
// memory has another order of keys, or a list was empty and is now absent: a
// thousand stacks that wait for a person would keep a core busy.
func TestStatusThatSaysTheSameIsNotWritten(t *testing.T) {
	with := func(memory string, environment []string) *v1alpha2.Terraform {
		return &v1alpha2.Terraform{Status: v1alpha2.TerraformStatus{Terrier: &v1alpha2.TerrierStatus{
			Environment: environment, Memory: &apiextensionsv1.JSON{Raw: []byte(memory)},
		}}}
	}
	stored := with(`{"applied":{"b":2,"a":1},"planned":null}`, nil)
	for _, c := range []struct {
		name  string
		after *v1alpha2.Terraform
		want  bool
	}{
		{"the same", stored.DeepCopy(), false},
		{"another order and an empty list", with(`{"planned":null,"applied":{"a":1,"b":2}}`, []string{}), false},
		{"another value", with(`{"applied":{"b":3,"a":1},"planned":null}`, nil), true},
		{"one more", with(`{"applied":{"b":2,"a":1},"planned":null}`, []string{"AWS_REGION"}), true},
	} {
		got, err := kube.Differ(stored, c.after)
		if err != nil || got != c.want {
			t.Errorf("%s: Differ() = %v, %v, want %v", c.name, got, err, c.want)
		}
	}
}
