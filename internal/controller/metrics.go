package controller

import (
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/stack"
)

// metrics count what happens to stacks while it happens. How stacks stand is
// not counted here but looked up when it is asked for (package app).
//
// No label ever holds the name of a stack, unless an operator asked for it:
// whatever number of stacks there is, the number of series is the same.
type metrics struct {
	reconciles *prometheus.HistogramVec // kind, name, namespace: as Flux has it
	runs       *prometheus.CounterVec   // kind, outcome
	seconds    *prometheus.HistogramVec // kind
	steps      *prometheus.HistogramVec // kind, step
	cpu        *prometheus.CounterVec   // kind, program
	memory     *prometheus.HistogramVec // kind
	failures   *prometheus.CounterVec   // reason
	changes    *prometheus.CounterVec   // action
	drifts     prometheus.Counter
	pauses     prometheus.Histogram
	answers    *prometheus.CounterVec   // answer
	waits      *prometheus.HistogramVec // class
	providers  *prometheus.CounterVec   // source
	findings   *prometheus.CounterVec   // policy, effect

	names      bool // of stacks, in reconciles
	namespaces few
}

// Buckets of what can take from a second to an hour, and of memory from 32 MiB
// to 8 GiB.
var (
	secondsBuckets = []float64{0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600}
	memoryBuckets  = prometheus.ExponentialBuckets(32<<20, 2, 9)
)

// upstreamKind is the kind of our objects in metrics that Flux named.
const upstreamKind = "Terraform"

// newMetrics registers the metrics with r, if it is not nil. The stacks that wait for budgets are
// counted when they are asked for.
func newMetrics(r prometheus.Registerer, names bool, budgets *schedule.Budgets) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}
	m := &metrics{
		reconciles: histogram("gotk_reconcile_duration_seconds", "How long a run took from its start to its end; name is empty unless --metrics-stack-names is set.",
			prometheus.ExponentialBucketsRange(10e-3, 1800, 10), "kind", "name", "namespace"),
		runs:      counter("terrier_runs_total", "Runs that ended, by kind and outcome.", "kind", "outcome"),
		seconds:   histogram("terrier_run_seconds", "How long runs took from their start to their end.", secondsBuckets, "kind"),
		steps:     histogram("terrier_run_step_seconds", "How long one program of a run took: a command of the engine, or a provider that was kept for the run.", secondsBuckets, "kind", "step"),
		cpu:       counter("terrier_run_cpu_seconds_total", "Processor time that programs of runs used.", "kind", "program"),
		memory:    histogram("terrier_run_memory_bytes", "Most memory that the programs of a run held at once.", memoryBuckets, "kind"),
		failures:  counter("terrier_run_failures_total", "Runs that failed, by the reason that the Ready condition gives.", "reason"),
		changes:   counter("terrier_resources_changed_total", "Resources that applies changed, by what was done to them.", "action"),
		drifts:    prometheus.NewCounter(prometheus.CounterOpts{Name: "terrier_drifts_total", Help: "Drift checks that found drifted resources."}),
		pauses:    prometheus.NewHistogram(prometheus.HistogramOpts{Name: "terrier_drift_check_pause_seconds", Help: "Pauses that followed drift checks, as policies and the intervals of stacks have them.", Buckets: prometheus.ExponentialBuckets(60, 4, 8)}),
		answers:   counter("terrier_approvals_total", "What people answered to plans: given, stale (it names a plan that does not wait) or rejected.", "answer"),
		waits:     histogram("terrier_queue_wait_seconds", "How long runs waited for their turn.", secondsBuckets, "class"),
		providers: counter("terrier_provider_bytes_total", "Bytes of unpacked providers that runs were given, by where they came from: registry, mirror, or cache for those that an earlier run left in the work directory.", "source"),
		findings:  counter("terrier_policy_findings_total", "Findings of policies in plans, by policy and effect: allow, warn, hold, deny, error (the policy could not be evaluated, and holds the plan) or dry-run. Policies of namespaces are counted together, as Policy.", "policy", "effect"),
		names:     names,
	}
	m.begin()
	small := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "terrier_drift_budgets_too_small", Help: "Budgets of drift checks that have fewer checks than one for each of their stacks in their maxDelay, and count as larger ones, of this controller."}, func() float64 { return float64(budgets.Raised()) })
	held := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "terrier_drift_checks_waiting", Help: "Stacks whose drift check is due and waits for a budget of a policy, of this controller."}, func() float64 { return float64(budgets.Waiting()) })
	if r == nil {
		return m, nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.reconciles, m.runs, m.seconds, m.steps, m.cpu, m.memory, m.failures, m.changes, m.drifts, m.pauses, held, small, m.answers, m.waits, m.providers, m.findings} {
		errs = append(errs, r.Register(c))
	}
	return m, errors.Join(errs...)
}

// begin makes series that alerts look at exist before the first thing happens:
// an increase from nothing is no increase to Prometheus.
func (m *metrics) begin() {
	for _, kind := range []stack.RunKind{stack.PlanRun, stack.CheckRun, stack.ApplyRun, stack.ScriptRun, stack.DestroyRun} {
		m.runs.WithLabelValues(string(kind), string(stack.Succeeded))
		m.runs.WithLabelValues(string(kind), string(stack.Failed))
		m.seconds.WithLabelValues(string(kind))
	}
	for _, answer := range []answer{answerGiven, answerStale, answerRejected} {
		m.answers.WithLabelValues(string(answer))
	}
	for _, source := range runner.ProviderSources() {
		m.providers.WithLabelValues(string(source))
	}
	for _, c := range schedule.Classes() {
		m.waits.WithLabelValues(c.String())
	}
	for _, effect := range []policy.Effect{policy.Hold, policy.Deny} {
		m.findings.WithLabelValues("Policy", string(effect))
	}
	for _, action := range []string{"add", "change", "destroy"} {
		m.changes.WithLabelValues(action)
	}
}

// ended counts a run that ended, once: reason is what its events are called.
func (m *metrics) ended(namespace, name string, r *runner.Report, run stack.Run, reason string) {
	kind, took := string(r.Kind), max(0, r.Finished.Sub(r.Started).Seconds())
	m.runs.WithLabelValues(kind, string(r.Outcome)).Inc()
	m.seconds.WithLabelValues(kind).Observe(took)
	if !m.names {
		name = ""
	}
	m.reconciles.WithLabelValues(upstreamKind, name, m.namespaces.label(namespace)).Observe(took)
	for _, s := range r.Steps {
		step, program := stepLabel(s.Name)
		m.steps.WithLabelValues(kind, step).Observe(s.Wall.Seconds())
		m.cpu.WithLabelValues(kind, program).Add(max(0, s.CPU.Seconds()))
	}
	for _, source := range runner.ProviderSources() {
		m.providers.WithLabelValues(string(source)).Add(float64(max(0, r.Providers[source])))
	}
	if took := memoryOf(r.Steps); took > 0 {
		m.memory.WithLabelValues(kind).Observe(float64(took))
	}
	switch {
	case failed(r.Outcome):
		m.failures.WithLabelValues(reason).Inc()
	case r.Outcome != stack.Succeeded:
	case r.Kind == stack.ApplyRun && run.Cause.Plan != nil, r.Kind == stack.ScriptRun:
		c := run.Changes
		if r.Kind == stack.ApplyRun {
			c = run.Cause.Plan.Changes
		}
		for action, n := range map[string]int{"add": c.Add, "change": c.Change, "destroy": c.Destroy, "import": c.Import, "forget": c.Forget, "move": c.Move} {
			m.changes.WithLabelValues(action).Add(float64(n))
		}
	}
}

// waited counts how long a run waited for its turn.
func (m *metrics) waited(c schedule.Class, long time.Duration) {
	m.waits.WithLabelValues(c.String()).Observe(long.Seconds())
}

// failed reports whether an outcome is one that a person has to deal with.
func failed(o stack.Outcome) bool {
	switch o {
	case stack.Failed, stack.Locked, stack.TimedOut, stack.Killed:
		return true
	case stack.Succeeded, stack.Stale, stack.Interrupted:
		return false
	default:
		return true
	}
}

// stepLabel is the label of a step, and whether the engine or a provider did it.
// Providers are many, so they are one.
func stepLabel(name string) (step, program string) {
	if strings.HasPrefix(name, "provider ") {
		return "provider", "provider"
	}
	switch name {
	case "version", "init", "workspace", "plan", "show", "apply", "script", "destroy", "output", "health", "force-unlock", "state", "import":
		return name, "engine"
	default:
		return "other", "engine"
	}
}

// few are the label values that came first. All others share one, so that who
// makes namespaces does not make series.
type few struct {
	mu   sync.Mutex
	seen map[string]bool
}

// mostValues of one label are told apart.
const mostValues = 500

// otherValue stands for all that came later.
const otherValue = "other"

func (f *few) label(v string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen[v] {
		return v
	}
	if len(f.seen) >= mostValues {
		return otherValue
	}
	if f.seen == nil {
		f.seen = map[string]bool{}
	}
	f.seen[v] = true
	return v
}
