package kube

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// What a message tells to add can be copied into a Role as it is.
func TestSecretRuleIsYAML(t *testing.T) {
	said := SecretRule(client.ObjectKey{Namespace: "terrier-system", Name: "terrier-installation"}, "get", "update")
	_, rules, _ := strings.Cut(said, ", rules: ")
	var role rbacv1.Role
	if err := yaml.UnmarshalStrict([]byte("rules: "+rules), &role); err != nil {
		t.Fatalf("%v in %s", err, said)
	}
	want := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"terrier-installation"}, Verbs: []string{"get", "update"}},
	}
	if diff := cmp.Diff(want, role.Rules); diff != "" || !strings.Contains(said, "namespace terrier-system") {
		t.Errorf("SecretRule() = %s (-want +got)\n%s", said, diff)
	}
}
