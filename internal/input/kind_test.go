package input

import (
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

// A kind that is registered is all that a kind has to be.
func TestEveryKindIsWhole(t *testing.T) {
	for _, k := range Kinds() {
		ref := stack.Ref{Kind: k.Name, Namespace: "ns", Name: "x"}
		for _, wakes := range k.Open(ref).Wakes() {
			watched := false
			for _, w := range k.Watched {
				watched = watched || strings.HasSuffix(w, "/"+wakes.Kind)
			}
			if !watched {
				t.Errorf("%s: a change of the %s %s wakes the stack, and the controller watches only %q", k.Name, wakes.Kind, wakes.Name, k.Watched)
			}
		}
		if err := CheckKind(k.Name); err != nil {
			t.Errorf("CheckKind(%q) = %v", k.Name, err)
		}
	}
	if err := CheckKind("Pod"); fault.Of(err) != fault.Invalid || err.Error() != `is "Pod", not Secret or ConfigMap` {
		t.Errorf("CheckKind(Pod) = %v, want it to name the kinds that there are", err)
	}
	if !HoldsSecrets("Pod") || HoldsSecrets(ConfigMap) {
		t.Error("what an unknown kind holds is shown, or what a ConfigMap holds is hidden")
	}
	if _, err := Read(t.Context(), objects{}, stack.Ref{Kind: "Pod", Name: "x"}); fault.Of(err) != fault.Invalid {
		t.Errorf("Read() of a Pod = %v, want Invalid", err)
	}
}
