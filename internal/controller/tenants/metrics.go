package tenants

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/kube/children"
	"github.com/terrier-iac/terrier/internal/tenant"
)

// metrics have the names and labels of Tenant Operator. The series of a tenant are
// deleted with it.
type metrics struct {
	duration                          *prometheus.HistogramVec
	ready, desired, failed, conflicts *prometheus.GaugeVec
	condition, degraded               *prometheus.GaugeVec
	attempts, conflicted              *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, append([]string{"tenant", "namespace"}, labels...))
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tenant_reconcile_duration_seconds", Help: "Duration of one reconcile of a tenant.", Buckets: []float64{0.1, 0.5, 1, 2, 5, 10, 30, 60},
		}, []string{"result"}),
		ready:      gauge("tenant_resources_ready", "Resources of a tenant that are ready."),
		desired:    gauge("tenant_resources_desired", "Resources that a tenant has."),
		failed:     gauge("tenant_resources_failed", "Resources of a tenant that failed."),
		conflicts:  gauge("tenant_resources_conflicted", "Resources of a tenant that have another owner."),
		condition:  gauge("tenant_condition_status", "Conditions of a tenant: 0 false, 1 true, 2 unknown.", "type"),
		degraded:   gauge("tenant_degraded_status", "1 for the reason for which a tenant is degraded.", "reason"),
		attempts:   counter("apply_attempts_total", "Writes of objects of tenants.", "kind", "result", "conflict_policy"),
		conflicted: counter("tenant_conflicts_total", "Writes of objects that have another owner.", "tenant", "namespace", "resource_kind", "conflict_policy"),
	}
	if r == nil {
		return m, nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.duration, m.ready, m.desired, m.failed, m.conflicts, m.condition, m.degraded, m.attempts, m.conflicted} {
		errs = append(errs, r.Register(c))
	}
	return m, errors.Join(errs...)
}

func (m *metrics) observe(took time.Duration, out tenant.Outcome, err error) {
	result := "success"
	switch {
	case err != nil:
		result = "error"
	case out.Failed > 0:
		result = "partial_failure"
	}
	m.duration.WithLabelValues(result).Observe(took.Seconds())
}

// report sets the gauges of a tenant by its status.
func (m *metrics) report(t *tenantsv1.Tenant) {
	s := t.Status
	m.ready.WithLabelValues(t.Name, t.Namespace).Set(float64(s.ReadyResources))
	m.desired.WithLabelValues(t.Name, t.Namespace).Set(float64(s.DesiredResources))
	m.failed.WithLabelValues(t.Name, t.Namespace).Set(float64(s.FailedResources))
	n := 0
	for _, r := range s.Resources {
		if r.State == string(tenant.Conflicted) {
			n++
		}
	}
	m.conflicts.WithLabelValues(t.Name, t.Namespace).Set(float64(n))
	m.degraded.DeletePartialMatch(labels(t.Name, t.Namespace))
	for _, c := range s.Conditions {
		value := map[metav1.ConditionStatus]float64{metav1.ConditionFalse: 0, metav1.ConditionTrue: 1, metav1.ConditionUnknown: 2}[c.Status]
		m.condition.WithLabelValues(t.Name, t.Namespace, c.Type).Set(value)
		if c.Type == string(tenant.DegradedCondition) && c.Status == metav1.ConditionTrue {
			m.degraded.WithLabelValues(t.Name, t.Namespace, c.Reason).Set(1)
		}
	}
}

func (m *metrics) applied(kind, policy string, err error) {
	result := "success"
	if _, ok := errors.AsType[*children.ConflictError](err); ok {
		result = "conflict"
	} else if err != nil {
		result = "failure"
	}
	m.attempts.WithLabelValues(kind, result, policy).Inc()
}

func (m *metrics) conflict(t *tenantsv1.Tenant, kind, policy string) {
	m.conflicted.WithLabelValues(t.Name, t.Namespace, kind, policy).Inc()
}

// forget drops the series of a tenant.
func (m *metrics) forget(key types.NamespacedName) {
	of := labels(key.Name, key.Namespace)
	for _, v := range []*prometheus.GaugeVec{m.ready, m.desired, m.failed, m.conflicts, m.condition, m.degraded} {
		v.DeletePartialMatch(of)
	}
	m.conflicted.DeletePartialMatch(of)
}

func labels(tenant, namespace string) prometheus.Labels {
	return prometheus.Labels{"tenant": tenant, "namespace": namespace}
}
