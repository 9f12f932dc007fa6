package policies

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/policy/v1alpha1"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// A policy that no controller has read says at once that it is not known whether it is ready.
func TestAPolicyThatIsNotReadYet(t *testing.T) {
	c := testkit.Kube(t, v1alpha1.AddToScheme)
	p := &v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "new"}, Spec: v1alpha1.PolicySpec{Guards: noDestroys()}}
	if err := c.Client.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	var got v1alpha1.Policy
	if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(p), &got); err != nil {
		t.Fatal(err)
	}
	if ready := meta.FindStatusCondition(got.Status.Conditions, "Ready"); ready == nil || ready.Status != metav1.ConditionUnknown || ready.Reason != "Pending" {
		t.Errorf("the condition is %+v, want that it is not known", ready)
	}
}
