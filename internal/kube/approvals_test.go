package kube

import (
	"reflect"
	"testing"
)

func TestApprovals(t *testing.T) {
	if got := Approvals(""); got != nil {
		t.Errorf("Approvals() of no stamp = %v", got)
	}
	const stamp = "plan-1\tann\tdev\tsystem:authenticated\nno line\nplan-1\ta\\tb\\\\n\tg\\n\nplan-1\teve"
	want := []Approval{
		{"plan-1", "ann", []string{"dev", "system:authenticated"}},
		{"plan-1", "a\tb\\n", []string{"g\n"}},
		{"plan-1", "eve", []string{}},
	}
	if got := Approvals(stamp); !reflect.DeepEqual(got, want) {
		t.Errorf("Approvals() = %q, want %q", got, want)
	}
}
