package registryserver

import (
	"errors"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/terrier-iac/terrier/internal/registry"
)

// mostTenants are counted by name. The others are one.
const (
	mostTenants  = 500
	otherTenants = "other"
)

// tenants are labels of metrics, a bounded number of them.
type tenants struct {
	mu  sync.Mutex
	all map[string]bool
}

func newTenants() *tenants { return &tenants{all: map[string]bool{}} }

// label is that of a tenant.
func (t *tenants) label(name string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.all[name] {
		if len(t.all) >= mostTenants {
			return otherTenants
		}
		t.all[name] = true
	}
	return name
}

// The protocols by which archives are served.
const (
	overHTTP = "registry"
	overOCI  = "oci"
)

// packageCounts are the metrics of archives that users published. Those of the mirror have their own.
type packageCounts struct {
	bytes, downloads *prometheus.CounterVec
	tenants          *tenants
}

func newPackageCounts(to prometheus.Registerer, t *tenants) (*packageCounts, error) {
	labels := []string{"kind", "protocol", "tenant"}
	s := &packageCounts{
		bytes:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "terrier_packages_sent_bytes_total", Help: "Bytes of published modules and providers that clients got, by protocol and tenant."}, labels),
		downloads: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "terrier_packages_downloads_total", Help: "Downloads of published modules and providers, whole or in part, by protocol and tenant."}, labels),
		tenants:   t,
	}
	return s, errors.Join(to.Register(s.bytes), to.Register(s.downloads))
}

// over counts what a protocol serves.
func (s *packageCounts) over(protocol string) func(tenant, key string, bytes int64) {
	return func(tenant, key string, bytes int64) {
		kind := ""
		switch key = strings.TrimPrefix(key, "oci/"); {
		case strings.HasPrefix(key, string(registry.Modules)+"/"):
			kind = "module"
		case strings.HasPrefix(key, string(registry.Providers)+"/"):
			kind = "provider"
		default:
			return
		}
		tenant = s.tenants.label(tenant)
		s.bytes.WithLabelValues(kind, protocol, tenant).Add(float64(bytes))
		s.downloads.WithLabelValues(kind, protocol, tenant).Inc()
	}
}
