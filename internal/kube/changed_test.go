package kube

import (
	"math"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

// A status is compared once: the patch has what the comparison found, what is added to that, and
// the version of the object. Large numbers stay what they are.
func TestThePatchOfADifference(t *testing.T) {
	before := &appsv1.Deployment{}
	before.ResourceVersion, before.Status.ObservedGeneration, before.Status.Replicas = "7", 2, 1
	after := before.DeepCopy()
	after.Status.ObservedGeneration, after.Status.Replicas = 3, 0
	c, err := DifferenceOf(before, after)
	if err != nil || c.None() {
		t.Fatalf("DifferenceOf() = %v, %v, want a change", c, err)
	}
	c.Set(int64(math.MaxInt64-1), "status", "more", "writes")
	p, err := c.Patch(before.ResourceVersion)
	if err != nil {
		t.Fatal(err)
	}
	got, err := p.Data(after)
	if want := `{"metadata":{"resourceVersion":"7"},"status":{"more":{"writes":9223372036854775806},"observedGeneration":3,"replicas":null}}`; err != nil || string(got) != want {
		t.Errorf("the patch is %s, %v, want %s", got, err, want)
	}
	if same, err := DifferenceOf(after, after.DeepCopy()); err != nil || !same.None() {
		t.Errorf("DifferenceOf() of the same = %v, %v, want none", same, err)
	}
}
