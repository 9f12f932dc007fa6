package registryserver

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/terrier-iac/terrier/internal/registry/rights"
)

// meters are the metrics of the registry.
type meters struct {
	*prometheus.Registry
	requests *prometheus.CounterVec
	took     *prometheus.HistogramVec
	sent     *prometheus.CounterVec
}

func newMeters(version string) *meters {
	m := &meters{
		Registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "terrier_registry_requests_total", Help: "Requests to the registry by route, method and status."}, []string{"route", "method", "code"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "terrier_registry_request_seconds", Help: "Time from a request to the end of its answer by route.",
			Buckets: []float64{.001, .005, .025, .1, .5, 2.5, 10, 60, 600}}, []string{"route"}),
		sent: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "terrier_registry_sent_bytes_total", Help: "Bytes of answers by route."}, []string{"route"}),
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: "terrier_build_info", Help: "The version of this program; always 1.", ConstLabels: prometheus.Labels{"version": version, "go": runtime.Version()}})
	info.Set(1)
	m.MustRegister(m.requests, m.took, m.sent, info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// rights shows whether the file of rights is in force as it is now.
func (m *meters) rights(b *rights.Book) {
	m.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "terrier_registry_rights_valid", Help: "1 if the file of rights is in force as it is now, 0 if a change made it invalid and the rights before it are in force."}, func() float64 {
		if b.Invalid() != nil {
			return 0
		}
		return 1
	}))
}

// request counts one request. Its route is the pattern that matched, so that no name of a
// module becomes a label.
func (m *meters) request(r *http.Request, status int, bytes int64, took time.Duration) {
	route := r.Pattern
	if _, path, ok := strings.Cut(route, " "); ok {
		route = path
	}
	if route == "" {
		route = "other"
	}
	method := r.Method
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost, http.MethodDelete:
	default:
		method = "other"
	}
	m.requests.WithLabelValues(route, method, strconv.Itoa(status)).Inc()
	m.took.WithLabelValues(route).Observe(took.Seconds())
	m.sent.WithLabelValues(route).Add(float64(bytes))
}

// serve serves the metrics at an address of their own until the returned function is
// called.
func (m *meters) serve(address string) (stop func() error, at string, err error) {
	if address == "" {
		return func() error { return nil }, "", nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, "", usage("--metrics-address: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.Registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 30 * time.Second}))
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 5 * time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	return func() error {
		err := srv.Close()
		if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, fmt.Errorf("serving metrics: %w", served))
		}
		return err
	}, "http://" + l.Addr().String() + "/metrics", nil
}
