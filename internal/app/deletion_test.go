package app

import (
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The policy about deletions and its binding belong together, and the chart grants the right
// to them by their name.
func TestDeletionPolicies(t *testing.T) {
	all, err := deletionPolicies()
	if err != nil || len(all) != 2 {
		t.Fatalf("deletionPolicies() = %d, %v, want the policy and its binding", len(all), err)
	}
	role, err := os.ReadFile("../../charts/terrier/templates/rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range all {
		if !strings.Contains(string(role), "resourceNames: ["+u.GetName()+"]") {
			t.Errorf("the chart has no rights to %s %s", u.GetKind(), u.GetName())
		}
		if u.GetKind() == "ValidatingAdmissionPolicyBinding" {
			if of, _, err := unstructured.NestedString(u.Object, "spec", "policyName"); err != nil || of != all[0].GetName() && of != all[1].GetName() {
				t.Errorf("the binding is of %q, %v", of, err)
			}
		}
	}
}
