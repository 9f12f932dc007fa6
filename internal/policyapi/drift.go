package policyapi

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/api/policy/v1alpha1"
	"github.com/terrier-iac/terrier/internal/plainyaml"
	"github.com/terrier-iac/terrier/internal/policy"
)

// Drift is what a policy of this name says of drift.
func Drift(name string, d *v1alpha1.Drift) (policy.Drift, error) {
	out := policy.Drift{}
	var err error
	if out.Tolerate, err = tolerances(name, d.Tolerate); err != nil {
		return policy.Drift{}, fmt.Errorf("spec.drift.tolerate%w", err)
	}
	return out, nil
}

// ownTolerances bounds how many rules an annotation has.
const ownTolerances = 100

// ParseTolerances reads the rules for drift in an annotation: a list in YAML. Its errors
// continue the name of the annotation: "[0].reason: …".
func ParseTolerances(name, text string) ([]policy.Tolerance, error) {
	var list []struct {
		v1alpha1.Tolerance
		Until string `json:"until,omitempty"` // a day is enough
	}
	if err := plainyaml.Decode(text, &list); err != nil {
		return nil, fmt.Errorf(": is no list of rules in YAML, as [{attributes: [desired_capacity], reason: autoscaling}]: %w", err)
	}
	if len(list) > ownTolerances {
		return nil, fmt.Errorf(": has %d rules, and may have %d: put the others into a Policy", len(list), ownTolerances)
	}
	var rules []v1alpha1.Tolerance
	var ends []time.Time
	for i, one := range list {
		at, err := endOf(one.Until)
		if err != nil {
			return nil, fmt.Errorf("[%d].until: %w", i, err)
		}
		rules, ends = append(rules, one.Tolerance), append(ends, at)
	}
	out, err := tolerances(name, rules)
	for i := range out {
		out[i].Until = ends[i]
	}
	return out, err
}

// endOf reads the end of a rule: a time, or a day, at whose beginning in UTC the rule ends.
func endOf(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("is %.40q, and may be a day or a time, as 2027-03-01 or 2027-03-01T12:00:00Z", text)
}

func tolerances(name string, list []v1alpha1.Tolerance) ([]policy.Tolerance, error) {
	var out []policy.Tolerance
	for i, t := range list {
		for _, field := range []struct {
			name     string
			patterns []string
		}{{"types", t.Types}, {"addresses", t.Addresses}, {"attributes", t.Attributes}} {
			if j := slices.IndexFunc(field.patterns, func(p string) bool { return strings.TrimSpace(p) == "" }); j >= 0 {
				return nil, fmt.Errorf("[%d].%s[%d]: is empty, and may be a pattern, as *", i, field.name, j)
			}
		}
		switch {
		case len(t.Attributes) == 0:
			return nil, fmt.Errorf("[%d].attributes: is missing: name the attributes that may drift, as desired_capacity", i)
		case strings.TrimSpace(t.Reason) == "":
			return nil, fmt.Errorf("[%d].reason: is missing: say why %s may drift", i, strings.Join(t.Attributes, ", "))
		}
		rule := policy.Tolerance{Policy: name, Types: t.Types, Addresses: t.Addresses, Attributes: t.Attributes, Reason: strings.TrimSpace(t.Reason)}
		if t.Until != nil {
			rule.Until = t.Until.Time
		}
		out = append(out, rule)
	}
	return out, nil
}
