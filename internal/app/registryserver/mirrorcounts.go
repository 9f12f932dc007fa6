package registryserver

import (
	"errors"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/terrier-iac/terrier/internal/query/catalog"
	"github.com/terrier-iac/terrier/internal/registry/mirror"
)

// mirrorCounts are the metrics of the mirror. Hosts are those of its settings.
type mirrorCounts struct {
	bytes     *prometheus.CounterVec
	downloads *prometheus.CounterVec
	failures  *prometheus.CounterVec
	alarms    prometheus.Counter
	log       *slog.Logger
	*tenants

	sums  sync.Mutex
	hosts map[string]*catalog.Figures
}

func newMirrorCounts(to prometheus.Registerer, t *tenants, log *slog.Logger) (*mirrorCounts, error) {
	c := &mirrorCounts{
		bytes:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "terrier_mirror_bytes_total", Help: "Bytes of archives of the mirror, by tenant and upstream: fetched from it, served to clients, and saved, which were stored before a client asked."}, []string{"kind", "tenant", "host"}),
		downloads: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "terrier_mirror_downloads_total", Help: "Archives that the mirror downloaded, by tenant and upstream."}, []string{"tenant", "host"}),
		failures:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "terrier_mirror_failures_total", Help: "Requests to the mirror that failed, by tenant, upstream and reason."}, []string{"tenant", "host", "reason"}),
		alarms:    prometheus.NewCounter(prometheus.CounterOpts{Name: "terrier_mirror_alarms_total", Help: "Releases of which an upstream or the storage has other bytes than those that were verified first."}),
		log:       log, tenants: t, hosts: map[string]*catalog.Figures{},
	}
	return c, errors.Join(to.Register(c.bytes), to.Register(c.downloads), to.Register(c.failures), to.Register(c.alarms))
}

// sum adds to the figures of an upstream, for pages.
func (c *mirrorCounts) sum(host string, fetched, served, saved int64) {
	c.sums.Lock()
	defer c.sums.Unlock()
	f := c.hosts[host]
	if f == nil {
		f = &catalog.Figures{Upstream: host}
		c.hosts[host] = f
	}
	f.Fetched, f.Served, f.Saved = f.Fetched+fetched, f.Served+served, f.Saved+saved
}

// figures are those of all upstreams since this process started.
func (c *mirrorCounts) figures() []catalog.Figures {
	c.sums.Lock()
	defer c.sums.Unlock()
	var all []catalog.Figures
	for _, f := range c.hosts {
		all = append(all, *f)
	}
	return all
}

// Fetched implements mirror.Counts.
func (c *mirrorCounts) Fetched(tenant, host string, bytes int64) {
	c.sum(host, bytes, 0, 0)
	tenant = c.label(tenant)
	c.bytes.WithLabelValues("fetched", tenant, host).Add(float64(bytes))
	c.downloads.WithLabelValues(tenant, host).Inc()
}

// Served implements mirror.Counts.
func (c *mirrorCounts) Served(tenant, host string, bytes, saved int64) {
	c.sum(host, 0, bytes, saved)
	tenant = c.label(tenant)
	c.bytes.WithLabelValues("served", tenant, host).Add(float64(bytes))
	c.bytes.WithLabelValues("saved", tenant, host).Add(float64(saved))
}

// Failed implements mirror.Counts.
func (c *mirrorCounts) Failed(tenant, host, reason string) {
	c.failures.WithLabelValues(c.label(tenant), host, reason).Inc()
}

// Alarmed implements mirror.Counts.
func (c *mirrorCounts) Alarmed(a mirror.Alarm) {
	c.alarms.Inc()
	c.log.Error("release differs from the one that was verified first, which stays", "provider", a.Provider.String(), "version", string(a.Version), "what", a.Text)
}
