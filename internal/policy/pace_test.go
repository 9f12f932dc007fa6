package policy

import (
	"testing"
	"time"
)

// Of two policies the one that checks oftener counts, for each bound, and users read the names of
// both.
func TestPaceOfTwoPolicies(t *testing.T) {
	a := Pace{Policy: "ClusterPolicy/a", Min: 10 * time.Minute, Max: 24 * time.Hour}
	b := Pace{Policy: "Policy/x/b", Max: 6 * time.Hour}
	want := Pace{Policy: "ClusterPolicy/a and Policy/x/b", Min: 10 * time.Minute, Max: 6 * time.Hour}
	if got := a.And(b); got != want {
		t.Errorf("And() = %+v, want %+v", got, want)
	}
	if got := (Pace{}).And(b); got != b {
		t.Errorf("nothing and a policy are %+v, want the policy", got)
	}
	if got := a.And(Pace{}); got != a {
		t.Errorf("a policy and nothing are %+v, want the policy", got)
	}
}
