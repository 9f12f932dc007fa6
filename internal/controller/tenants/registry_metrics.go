package tenants

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/tenantapi"
)

// registryMetrics are the metrics of registries: the first three as in Tenant
// Operator. The series of a registry are deleted with it.
type registryMetrics struct {
	desired, ready, failed   *prometheus.GaugeVec
	rows, rowErrors, blocked *prometheus.GaugeVec
	read, interval           *prometheus.GaugeVec

	known   sync.Map // registries that read is set of, by their keys
	queries *prometheus.CounterVec
	sync    *prometheus.HistogramVec
}

func newRegistryMetrics(r prometheus.Registerer) (*registryMetrics, error) {
	names := []string{"registry", "namespace"}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, names)
	}
	m := &registryMetrics{
		desired:   gauge("registry_desired", "Tenants of a registry that should exist: for its active rows, and those that stay without one."),
		ready:     gauge("registry_ready", "Desired tenants of a registry that are ready."),
		failed:    gauge("registry_failed", "Desired tenants of a registry with a failed resource."),
		rows:      gauge("registry_rows", "Rows of a registry at the last complete read."),
		rowErrors: gauge("registry_row_errors", "Rows of a registry that no tenant can be made of."),
		blocked:   gauge("registry_deletions_blocked", "Tenants of a registry whose deletion a guard blocks."),
		read:      gauge("terrier_registry_last_read_timestamp_seconds", "Time of the last complete read of a registry; before the first one, of the first attempt."),
		interval:  gauge("terrier_registry_interval_seconds", "Interval between reads of a registry."),
		queries:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "registry_queries_total", Help: "Reads of the rows of a registry."}, append(names, "result")),
		sync: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "registry_sync_duration_seconds", Help: "Duration of reading rows and changing tenants.", Buckets: []float64{0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60},
		}, names),
	}
	if r == nil {
		return m, nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.desired, m.ready, m.failed, m.rows, m.rowErrors, m.blocked, m.read, m.interval, m.queries, m.sync} {
		errs = append(errs, r.Register(c))
	}
	return m, errors.Join(errs...)
}

// queried counts a read of rows. The timestamp of a registry that was never read
// is that of the first attempt, so that the time without a read counts from then.
func (m *registryMetrics) queried(obj *tenantsv1.TenantRegistry, at time.Time, err error) {
	result := "success"
	if err != nil {
		result = "error"
	}
	_, known := m.known.LoadOrStore(types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name}, true)
	if err == nil || !known {
		m.read.WithLabelValues(obj.Name, obj.Namespace).Set(float64(at.UnixMilli()) / 1000)
	}
	m.interval.WithLabelValues(obj.Name, obj.Namespace).Set(tenantapi.Interval(obj).Seconds())
	m.queries.WithLabelValues(obj.Name, obj.Namespace, result).Inc()
}

// passed sets the gauges by the status.
func (m *registryMetrics) passed(l *registryPass, took time.Duration) {
	s := l.obj.Status
	set := func(g *prometheus.GaugeVec, n int32) { g.WithLabelValues(l.obj.Name, l.obj.Namespace).Set(float64(n)) }
	set(m.desired, s.Desired)
	set(m.ready, s.Ready)
	set(m.failed, s.Failed)
	set(m.rowErrors, s.RowErrorCount)
	blocked := int32(0)
	if s.Blocked != nil {
		blocked = s.Blocked.Count
	}
	set(m.blocked, blocked)
	if s.LastRead != nil {
		set(m.rows, s.LastRead.Rows)
	}
	if l.fresh {
		m.sync.WithLabelValues(l.obj.Name, l.obj.Namespace).Observe(took.Seconds())
	}
}

// forget drops the series of a registry.
func (m *registryMetrics) forget(key types.NamespacedName) {
	of := prometheus.Labels{"registry": key.Name, "namespace": key.Namespace}
	m.known.Delete(key)
	for _, g := range []*prometheus.GaugeVec{m.desired, m.ready, m.failed, m.rows, m.rowErrors, m.blocked, m.read, m.interval} {
		g.Delete(of)
	}
	m.queries.DeletePartialMatch(of)
	m.sync.Delete(of)
}
