package controller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/stack"
)

// gathered are the families of a registry by name.
func gathered(t *testing.T, r prometheus.Gatherer) map[string]*dto.MetricFamily {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*dto.MetricFamily{}
	for _, f := range families {
		out[f.GetName()] = f
	}
	return out
}

// value is that of the series with these label values, or the number of what a
// histogram has seen.
func value(f *dto.MetricFamily, labels ...string) float64 {
	for _, m := range f.GetMetric() {
		var has []string
		for _, l := range m.GetLabel() {
			has = append(has, l.GetValue())
		}
		if slices.Equal(has, labels) {
			return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return -1
}

var began = time.Unix(1e9, 0)

// ranFor is the report of a run with one engine and one provider.
func ranFor(kind stack.RunKind, o stack.Outcome, long time.Duration) *runner.Report {
	return &runner.Report{Kind: kind, Outcome: o, Started: began, Finished: began.Add(long), Steps: []runner.Step{
		{Name: "init", Wall: time.Second, CPU: time.Second, MaxRSS: 64 << 20},
		{Name: "provider registry.opentofu.org/hashicorp/random", Wall: 2 * time.Second, CPU: 3 * time.Second, MaxRSS: 32 << 20},
	}}
}

func TestRunsAreCounted(t *testing.T) {
	r := prometheus.NewRegistry()
	m, err := newMetrics(r, false, &schedule.Budgets{})
	if err != nil {
		t.Fatal(err)
	}
	applied := stack.Run{Cause: stack.Cause{Plan: &stack.Plan{Changes: stack.Changes{Add: 2, Destroy: 1}}}}
	m.ended("team", "web", ranFor(stack.ApplyRun, stack.Succeeded, 30*time.Second), applied, "TerraformAppliedSucceed")
	m.ended("team", "web", ranFor(stack.PlanRun, stack.Failed, time.Second), stack.Run{}, "TFExecPlanFailed")
	m.ended("team", "web", ranFor(stack.PlanRun, stack.Interrupted, time.Second), stack.Run{}, "TFExecPlanFailed")
	m.waited(schedule.Apply, time.Minute)
	got := gathered(t, r)
	for _, want := range []struct {
		family string
		labels []string
		value  float64
	}{
		{"terrier_runs_total", []string{"apply", "Succeeded"}, 1},
		{"terrier_runs_total", []string{"plan", "Failed"}, 1},
		{"terrier_runs_total", []string{"plan", "Interrupted"}, 1},
		{"terrier_runs_total", []string{"check", "Succeeded"}, 0}, // before there was one
		{"terrier_run_seconds", []string{"apply"}, 1},
		{"terrier_run_step_seconds", []string{"apply", "init"}, 1},
		{"terrier_run_step_seconds", []string{"apply", "provider"}, 1},
		{"terrier_run_cpu_seconds_total", []string{"apply", "engine"}, 1},
		{"terrier_run_cpu_seconds_total", []string{"apply", "provider"}, 3},
		{"terrier_run_memory_bytes", []string{"apply"}, 1},
		{"terrier_run_failures_total", []string{"TFExecPlanFailed"}, 1},
		{"terrier_resources_changed_total", []string{"add"}, 2},
		{"terrier_resources_changed_total", []string{"destroy"}, 1},
		{"terrier_queue_wait_seconds", []string{"apply"}, 1},
		{"gotk_reconcile_duration_seconds", []string{"Terraform", "", "team"}, 3},
	} {
		if got := value(got[want.family], want.labels...); got != want.value {
			t.Errorf("%s%q = %v, want %v", want.family, want.labels, got, want.value)
		}
	}
}

// Bytes of providers are counted by where they came from, and by nothing that a
// report makes up.
func TestProviderBytesAreCounted(t *testing.T) {
	r := prometheus.NewRegistry()
	m, err := newMetrics(r, false, &schedule.Budgets{})
	if err != nil {
		t.Fatal(err)
	}
	given := ranFor(stack.PlanRun, stack.Succeeded, time.Second)
	given.Providers = map[runner.ProviderSource]int64{runner.FromMirror: 5 << 20, runner.FromRegistry: -7, "unheard of": 9}
	m.ended("team", "web", given, stack.Run{}, "")
	m.ended("team", "web", given, stack.Run{}, "")
	f := gathered(t, r)["terrier_provider_bytes_total"]
	for source, want := range map[string]float64{"mirror": 10 << 20, "registry": 0, "cache": 0, "unheard of": -1} {
		if got := value(f, source); got != want {
			t.Errorf("%v bytes from %s, want %v", got, source, want)
		}
	}
}

// Whatever there is, it makes a bounded number of series: stacks, namespaces,
// providers and steps are made by people.
func TestSeriesAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		names bool
		most  map[string]int
	}{
		"by default":           {false, map[string]int{"gotk_reconcile_duration_seconds": mostValues + 1}},
		"with names of stacks": {true, map[string]int{"gotk_reconcile_duration_seconds": 2000}},
	} {
		t.Run(name, func(t *testing.T) {
			r := prometheus.NewRegistry()
			m, err := newMetrics(r, c.names, &schedule.Budgets{})
			if err != nil {
				t.Fatal(err)
			}
			for i := range 2000 {
				for _, kind := range []stack.RunKind{stack.PlanRun, stack.ApplyRun} {
					report := ranFor(kind, stack.Succeeded, time.Second)
					report.Steps = append(report.Steps, runner.Step{Name: fmt.Sprint("provider p", i)}, runner.Step{Name: fmt.Sprint("step", i)})
					m.ended(fmt.Sprint("n", i), fmt.Sprint("stack", i), report, stack.Run{}, "")
				}
			}
			for family, f := range gathered(t, r) {
				most := 30
				if n, ok := c.most[family]; ok {
					most = n
				}
				if n := len(f.GetMetric()); n > most {
					t.Errorf("%s has %d series, want at most %d", family, n, most)
				}
			}
		})
	}
}

func TestAnswersToPlansAreToldApart(t *testing.T) {
	waiting := stack.Status{Plans: stack.Plans{Pending: &stack.Plan{Name: "plan-main", Digest: "sha256:1"}}}
	spec := func(mode stack.Mode, approved, rejected string) stack.Spec {
		return stack.Spec{Mode: mode, Approved: approved, Rejected: rejected}
	}
	none := spec(stack.Manual, "", "")
	for name, c := range map[string]struct {
		before, after stack.Spec
		memory        stack.Status
		want          answer
	}{
		"by its name":                {none, spec(stack.Manual, "plan-main", ""), waiting, answerGiven},
		"by its digest":              {none, spec(stack.Manual, "sha256:1", ""), waiting, answerGiven},
		"of another plan":            {none, spec(stack.Manual, "plan-old", ""), waiting, answerStale},
		"before there is a plan":     {none, spec(stack.Manual, "plan-main", ""), stack.Status{}, answerStale},
		"said before":                {spec(stack.Manual, "plan-main", ""), spec(stack.Manual, "plan-main", ""), waiting, ""},
		"taken back":                 {spec(stack.Manual, "plan-main", ""), none, waiting, ""},
		"rejected":                   {none, spec(stack.Manual, "", "plan-main"), waiting, answerRejected},
		"approved, then rejected":    {spec(stack.Manual, "plan-main", ""), spec(stack.Manual, "", "plan-main"), waiting, answerRejected},
		"rejected, a former plan":    {none, spec(stack.Manual, "", "plan-old"), waiting, ""},
		"of one that asks nobody":    {none, spec(stack.Auto, "auto", ""), waiting, ""},
		"something else was changed": {none, none, waiting, ""},
	} {
		before, after := dialect.Stack{Spec: c.before, Status: c.memory}, dialect.Stack{Spec: c.after, Status: c.memory}
		if got := answerOf(before, after); got != c.want {
			t.Errorf("%s: it is %q, want %q", name, got, c.want)
		}
	}
}
