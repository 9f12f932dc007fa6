package policyapi

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/api/policy/v1alpha1"
)

func lasting(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

// What cannot be meant is refused with its field, also where a policy does not come from an API
// server that validates it.
func TestBudgetsAndIntervalsThatCannotBeMeant(t *testing.T) {
	for want, d := range map[string]v1alpha1.Drift{
		"spec.drift.interval.min: is 1ms":                                         {Interval: &v1alpha1.DriftInterval{Min: lasting(time.Millisecond)}},
		"spec.drift.interval.max: is 0s":                                          {Interval: &v1alpha1.DriftInterval{Max: lasting(0)}},
		"spec.drift.interval.min: is 2h0m0s, which is longer":                     {Interval: &v1alpha1.DriftInterval{Min: lasting(2 * time.Hour), Max: lasting(time.Hour)}},
		"spec.drift.budgets[0].per: is \"Stack\"":                                 {Budgets: []v1alpha1.DriftBudget{{Per: "Stack", ChecksPerHour: new(int32(1))}}},
		"spec.drift.budgets[0].provider: is for per: Provider":                    {Budgets: []v1alpha1.DriftBudget{{Per: v1alpha1.PerTenant, Provider: "x", ChecksPerHour: new(int32(1))}}},
		"spec.drift.budgets[0]: bounds nothing":                                   {Budgets: []v1alpha1.DriftBudget{{Per: v1alpha1.PerTenant}}},
		"spec.drift.budgets[0].checksPerHour: is 0":                               {Budgets: []v1alpha1.DriftBudget{{Per: v1alpha1.PerTenant, ChecksPerHour: new(int32(0))}}},
		"spec.drift.budgets[0].cpuPerHour: is 1ms":                                {Budgets: []v1alpha1.DriftBudget{{Per: v1alpha1.PerTenant, CPUPerHour: lasting(time.Millisecond)}}},
		"spec.drift.budgets[0].maxDelay: is 721h0m0s, and may be from 1s to 720h": {Budgets: []v1alpha1.DriftBudget{{Per: v1alpha1.PerTenant, ChecksPerHour: new(int32(1)), MaxDelay: lasting(721 * time.Hour)}}},
	} {
		if _, err := Drift("ClusterPolicy/p", &d); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("Drift() says %v, want %s", err, want)
		}
	}
}

func TestBudgetsAndIntervals(t *testing.T) {
	got, err := Drift("ClusterPolicy/p", &v1alpha1.Drift{
		Interval: &v1alpha1.DriftInterval{Max: lasting(24 * time.Hour)},
		Budgets: []v1alpha1.DriftBudget{
			{Per: v1alpha1.PerProvider, Provider: "*/hashicorp/aws", ChecksPerHour: new(int32(100)), CPUPerHour: lasting(time.Hour)},
			{Per: v1alpha1.PerTenant, ChecksPerHour: new(int32(1)), MaxDelay: lasting(12 * time.Hour)},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if p := got.Pace; p.Policy != "ClusterPolicy/p" || p.Min != 0 || p.Max != 24*time.Hour {
		t.Errorf("the pace is %+v", p)
	}
	b := got.Budgets[0]
	if b.Checks != 100 || b.CPU != time.Hour || b.MaxDelay != 24*time.Hour || got.Budgets[1].MaxDelay != 12*time.Hour || !b.Of("registry.opentofu.org/hashicorp/aws") || b.Of("registry.opentofu.org/hashicorp/google") {
		t.Errorf("the budget is %+v", b)
	}
	if name, want := b.For("aws"), "the provider aws, which spec.drift.budgets[0] of ClusterPolicy/p has"; name != want {
		t.Errorf("the budget is called %q, want %q", name, want)
	}
}
