package kube

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestApprovals(t *testing.T) {
	o := &corev1.ConfigMap{}
	if got := Approvals(o); got != nil {
		t.Errorf("Approvals() of an object without any = %v", got)
	}
	o.Annotations = map[string]string{ApprovedBy: "plan-1\tann\tdev\tsystem:authenticated\nno line\nplan-1\ta\\tb\\\\n\tg\\n\nplan-1\teve"}
	want := []Approval{
		{"plan-1", "ann", []string{"dev", "system:authenticated"}},
		{"plan-1", "a\tb\\n", []string{"g\n"}},
		{"plan-1", "eve", []string{}},
	}
	if got := Approvals(o); !reflect.DeepEqual(got, want) {
		t.Errorf("Approvals() = %q, want %q", got, want)
	}
}
