package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// newMetrics returns the metrics of one platform: several may be in one process,
// so none are the process's own.
func newMetrics() (*prometheus.Registry, error) {
	r := prometheus.NewRegistry()
	return r, errors.Join(r.Register(collectors.NewGoCollector()), r.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})))
}

// serveMetrics serves /metrics where --metrics-address says, plainly and to
// whoever can reach it, as scrapers expect; nowhere if it says nothing.
func (p *parts) serveMetrics(mgr ctrl.Manager) error {
	if p.Config.MetricsAddress == "" {
		return nil
	}
	l, err := net.Listen("tcp", p.Config.MetricsAddress)
	if err != nil {
		return fmt.Errorf("listening on --metrics-address: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(p.metrics, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 30 * time.Second}))
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	serve := manager.RunnableFunc(func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() { _ = srv.Close() }) // a scrape that is cut is made again
		defer stop()
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serving metrics: %w", err)
		}
		return nil
	})
	if err := mgr.Add(serve); err != nil {
		return errors.Join(err, l.Close())
	}
	return nil
}
