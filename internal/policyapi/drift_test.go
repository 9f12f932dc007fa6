package policyapi

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/api/policy/v1alpha1"
	"github.com/terrier-iac/terrier/internal/policy"
)

func TestRulesOfAnAnnotation(t *testing.T) {
	got, err := ParseTolerances("a", "- {types: [aws_autoscaling_group], attributes: [desired_capacity], reason: autoscaling, until: 2027-03-01}\n- {attributes: ['tags[\"x\"]'], reason: cost report}\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []policy.Tolerance{
		{Policy: "a", Types: []string{"aws_autoscaling_group"}, Attributes: []string{"desired_capacity"}, Reason: "autoscaling", Until: time.Date(2027, 3, 1, 0, 0, 0, 0, time.UTC)},
		{Policy: "a", Attributes: []string{`tags["x"]`}, Reason: "cost report"},
	}
	if d := cmp.Diff(got, want); d != "" {
		t.Error(d)
	}
}

// A rule that cannot be read is refused by its number and its field, with the way out.
func TestRulesThatCannotBeRead(t *testing.T) {
	for text, want := range map[string]string{
		"[{attributes: [size]}]":                                         "[0].reason: is missing: say why size may drift",
		"[{attributes: [size], reason: ' '}]":                            "[0].reason: is missing",
		"[{attributes: [a], reason: r}, {reason: r}]":                    "[1].attributes: is missing",
		"[{attributes: [''], reason: r}]":                                "[0].attributes[0]: is empty",
		"[{types: [' '], attributes: [a], reason: r}]":                   "[0].types[0]: is empty",
		"[{attributes: [a], reason: r, until: tomorrow}]":                `[0].until: is "tomorrow", and may be a day or a time`,
		"[{attributes: [a], reason: r, adresses: [x]}]":                  `unknown field "adresses"`,
		"[{attributes: [&a x, *a], reason: y}]":                          "an anchor or an alias",
		"size":                                                           "is no list of rules in YAML",
		"[" + strings.Repeat("{attributes: [a], reason: r},", 101) + "]": "has 101 rules, and may have 100",
	} {
		if _, err := ParseTolerances("a", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseTolerances(%.60q) = %v, want %q", text, err, want)
		}
	}
	_, err := Drift("ClusterPolicy/p", &v1alpha1.Drift{Tolerate: []v1alpha1.Tolerance{{Attributes: []string{"a"}}}})
	if err == nil || !strings.HasPrefix(err.Error(), "spec.drift.tolerate[0].reason: is missing") {
		t.Errorf("Drift() = %v, want the field", err)
	}
}
