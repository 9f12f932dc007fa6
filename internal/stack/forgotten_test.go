package stack

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A run that is taken over twice, or that repeats an earlier one, lists a resource once.
func TestMergeForgotten(t *testing.T) {
	a, again := ForgottenResource{Address: "t.a", Type: "t", ID: "1", Run: "apply-1", Unsure: true}, ForgottenResource{Address: "t.a", Type: "t", ID: "1", Run: "apply-2"}
	other, nameless := ForgottenResource{Address: "t.a", Type: "t", ID: "2", Run: "apply-2"}, ForgottenResource{Address: "t.b", Type: "t", Run: "apply-1"}
	elder := nameless
	elder.Run = "apply-0"
	got := MergeForgotten([]ForgottenResource{elder, a, nameless}, []ForgottenResource{again, other, nameless})
	if diff := cmp.Diff([]ForgottenResource{elder, again, other, nameless}, got); diff != "" {
		t.Errorf("MergeForgotten() differs (-want +got):\n%s", diff)
	}
}
