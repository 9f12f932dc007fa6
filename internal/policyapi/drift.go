package policyapi

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	if out.Pace, err = pace(name, d.Interval); err != nil {
		return policy.Drift{}, fmt.Errorf("spec.drift.interval.%w", err)
	}
	if out.Budgets, err = budgets(name, d.Budgets); err != nil {
		return policy.Drift{}, err
	}
	return out, nil
}

// shortestPause is the shortest that a policy may have stacks checked in.
const shortestPause = time.Second

func pace(name string, i *v1alpha1.DriftInterval) (policy.Pace, error) {
	if i == nil {
		return policy.Pace{}, nil
	}
	out := policy.Pace{Policy: name}
	for _, bound := range []struct {
		field string
		is    *metav1.Duration
		to    *time.Duration
	}{{"min", i.Min, &out.Min}, {"max", i.Max, &out.Max}} {
		if bound.is == nil {
			continue
		}
		if *bound.to = bound.is.Duration; *bound.to < shortestPause {
			return policy.Pace{}, fmt.Errorf("%s: is %s, and may be %s or more", bound.field, bound.is.Duration, shortestPause)
		}
	}
	if out.Min > 0 && out.Max > 0 && out.Min > out.Max {
		return policy.Pace{}, fmt.Errorf("min: is %s, which is longer than max, %s", out.Min, out.Max)
	}
	return out, nil
}

func budgets(name string, list []v1alpha1.DriftBudget) ([]policy.Budget, error) {
	var out []policy.Budget
	for i, b := range list {
		one := policy.Budget{Policy: name, Field: fmt.Sprintf("spec.drift.budgets[%d]", i), Per: policy.BudgetPer(b.Per), Provider: b.Provider, MaxDelay: policy.MaxDelay}
		switch {
		case one.Per != policy.PerTenant && one.Per != policy.PerProvider:
			return nil, fmt.Errorf("%s.per: is %.40q, and may be Tenant or Provider", one.Field, b.Per)
		case b.Provider != "" && one.Per != policy.PerProvider:
			return nil, fmt.Errorf("%s.provider: is for per: Provider: set that, or remove provider", one.Field)
		case b.ChecksPerHour == nil && b.CPUPerHour == nil:
			return nil, fmt.Errorf("%s: bounds nothing: set checksPerHour, cpuPerHour or both", one.Field)
		case b.ChecksPerHour != nil && *b.ChecksPerHour < 1:
			return nil, fmt.Errorf("%s.checksPerHour: is %d, and may be 1 or more", one.Field, *b.ChecksPerHour)
		case b.CPUPerHour != nil && b.CPUPerHour.Duration < leastCPU:
			return nil, fmt.Errorf("%s.cpuPerHour: is %s, and may be %s or more", one.Field, b.CPUPerHour.Duration, leastCPU)
		case b.MaxDelay != nil && (b.MaxDelay.Duration < leastDelay || b.MaxDelay.Duration > mostDelay):
			return nil, fmt.Errorf("%s.maxDelay: is %s, and may be from %s to %s", one.Field, b.MaxDelay.Duration, leastDelay, policy.Plainly(mostDelay))
		}
		if b.ChecksPerHour != nil {
			one.Checks = int(*b.ChecksPerHour)
		}
		if b.CPUPerHour != nil {
			one.CPU = b.CPUPerHour.Duration
		}
		if b.MaxDelay != nil {
			one.MaxDelay = b.MaxDelay.Duration
		}
		out = append(out, one)
	}
	return out, nil
}

// leastCPU is the least that a budget may have: one check takes about a second.
const leastCPU = time.Second

// leastDelay and mostDelay bound how long a budget may delay a check at most.
const (
	leastDelay = time.Second
	mostDelay  = 30 * 24 * time.Hour
)

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
