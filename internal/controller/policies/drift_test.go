package policies

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/api/policy/v1alpha1"
	"github.com/terrier-iac/terrier/internal/fault"
)

// The rules for drift of a stack are those of the policies that select it and that are not tried
// only, and its own. A policy with nothing else judges no plan.
func TestRulesForDrift(t *testing.T) {
	tolerate := func(attribute string) *v1alpha1.Drift {
		return &v1alpha1.Drift{Tolerate: []v1alpha1.Tolerance{{Attributes: []string{attribute}, Reason: "r"}}}
	}
	p := having(t, map[string]map[string]string{"a": {}},
		clusterPolicy("all", v1alpha1.PolicySpec{Drift: tolerate("one")}),
		clusterPolicy("dry", v1alpha1.PolicySpec{Drift: tolerate("two"), Mode: v1alpha1.DryRun}),
		clusterPolicy("elsewhere", v1alpha1.PolicySpec{Drift: tolerate("three"), Selector: v1alpha1.Selector{Namespaces: []string{"b"}}}),
		clusterPolicy("broken", v1alpha1.PolicySpec{Drift: &v1alpha1.Drift{Tolerate: []v1alpha1.Tolerance{{Attributes: []string{"four"}}}}}),
	)
	for _, tt := range []struct{ name, note, want, invalid string }{
		{"none of its own", "", "one by ClusterPolicy/all", ""},
		{"one of its own", "[{attributes: [own], reason: r}]", "one by ClusterPolicy/all, own by the annotation of the stack", ""},
		{"one that cannot be read", "[{attributes: [own]}]", "one by ClusterPolicy/all", "the annotation terrier.dev/tolerate-drift[0].reason: is missing"},
	} {
		notes := map[string]string{}
		if tt.note != "" {
			notes[v1alpha1.TolerateDrift] = tt.note
		}
		set, err := p.For(t.Context(), stackOf("a", "net", nil, notes))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range set.Drift.Tolerate {
			got = append(got, r.Attributes[0]+" by "+r.Policy)
		}
		if strings.Join(got, ", ") != tt.want {
			t.Errorf("%s: the rules are %v, want %s", tt.name, got, tt.want)
		}
		if (set.Invalid == nil) != (tt.invalid == "") || set.Invalid != nil && (!strings.Contains(set.Invalid.Error(), tt.invalid) || fault.Of(set.Invalid) != fault.Invalid) {
			t.Errorf("%s: it is invalid by %v, want %q", tt.name, set.Invalid, tt.invalid)
		}
		if names := judges(t, p, stackOf("a", "net", nil, nil)); len(names) != 1 || names[0] != "broken" {
			t.Errorf("plans are judged by %v, want only the policy that cannot be read", names)
		}
	}
	if wrong := OwnGuards(map[string]string{v1alpha1.TolerateDrift: "[{attributes: [own]}]"}); len(wrong) != 1 {
		t.Errorf("a user who applies the stack is told %v", wrong)
	}
}

// The condition of a policy says ahead of time that a rule ends, and that it has ended.
func TestARuleForDriftEnds(t *testing.T) {
	end := time.Unix(1e9, 0).Add(time.Hour)
	p := having(t, nil, clusterPolicy("all", v1alpha1.PolicySpec{Drift: &v1alpha1.Drift{Tolerate: []v1alpha1.Tolerance{
		{Attributes: []string{"size"}, Reason: "r", Until: &metav1.Time{Time: end}},
	}}}))
	s := p.now.Load()
	for now, want := range map[time.Time]string{
		end.Add(-30 * 24 * time.Hour): "The policy is evaluated",
		end.Add(-time.Hour):           "The policy is evaluated. spec.drift.tolerate[0] ends at 2001-09-09T02:46:40Z: from then on its attributes are drift",
		end:                           "The policy is evaluated. spec.drift.tolerate[0] ended at 2001-09-09T02:46:40Z and counts no more",
	} {
		if got := s.policies[0].condition(now).Message; got != want {
			t.Errorf("at %v the condition says %q, want %q", now, got, want)
		}
	}
	if next := s.dated(end.Add(-time.Hour)); !next.Equal(end) {
		t.Errorf("the condition says another thing at %v, want %v", next, end)
	}
}
