// Package metrics has the metrics of the platform itself: its records, its requests to
// other systems, its streams, and gauges of the board, the queue and the data directory
// that are computed for each scrape. The controllers have the metrics of stacks and
// tenants.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	kubemetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/vault/monitor"
)

// Platform has the metrics of one platform.
type Platform struct {
	Registry *prometheus.Registry

	writes   *prometheus.CounterVec // of records, by result
	answers  *prometheus.CounterVec // of others, by class of status
	received prometheus.Counter     // bytes of those answers
	streams  prometheus.Gauge       // that are open
}

// New returns the metrics of one platform: several may be in one process,
// so none are the process's own. Those are controller-runtime's, and served
// beside them.
func New(version string, leads func() error) (*Platform, error) {
	m := &Platform{
		Registry: prometheus.NewRegistry(),
		writes:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "terrier_records_writes_total", Help: "Writes and deletions of records, by result: success or error."}, []string{"result"}),
		answers:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "terrier_outbound_answers_total", Help: "Responses of sources, artifact stores and webhooks, by class of status; error if there was no response."}, []string{"code"}),
		received: prometheus.NewCounter(prometheus.CounterOpts{Name: "terrier_outbound_received_bytes_total", Help: "Bytes of responses of sources, artifact stores and webhooks. Downloads of providers by the engine are not counted."}),
		streams:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "terrier_streams_open", Help: "Open event streams and followed logs."}),
	}
	for _, result := range []string{"success", "error"} {
		m.writes.WithLabelValues(result)
	}
	for _, code := range []string{"2xx", "4xx", "5xx", "error"} {
		m.answers.WithLabelValues(code)
	}
	build := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "terrier_build_info", Help: "1, with the version of this program.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	}, func() float64 { return 1 })
	leading := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "terrier_leading", Help: "1 while this controller is active, 0 once another controller may have taken over."}, func() float64 {
		if leads() != nil {
			return 0
		}
		return 1
	})
	var errs []error
	for _, c := range []prometheus.Collector{m.writes, m.answers, m.received, m.streams, build, leading} {
		errs = append(errs, m.Registry.Register(c))
	}
	return m, errors.Join(errs...)
}

// Answered counts a response from outside; status is 0 if there was none.
func (m *Platform) Answered(status int, bytes int64) {
	code := "error"
	if status > 0 {
		code = strconv.Itoa(status/100) + "xx"
	}
	m.answers.WithLabelValues(code).Inc()
	m.received.Add(float64(bytes))
}

// Following sets the number of open streams.
func (m *Platform) Following(streams int) { m.streams.Set(float64(streams)) }

// Records returns the store of records, and counts its writes.
func (m *Platform) Records(store blob.Store) blob.Store { return meteredBlobs{store, m.writes} }

// RecordsToReseal registers the gauge of the records that a rotation of their key has not reached yet.
func (m *Platform) RecordsToReseal(left func() int) error {
	return m.Registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "terrier_records_to_reseal", Help: "Records that are still to be encrypted again after a rotation of their key; 1 until it is certain that there is none.",
	}, func() float64 { return float64(left()) }))
}

// RecordsChecked registers the gauge of the check of records, whose outcome checked returns.
func (m *Platform) RecordsChecked(checked func() error) error {
	return m.Registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "terrier_records_checked",
		Help: "1 while the last check of the keys of records and of their owner succeeded, 0 after one that failed.",
	}, func() float64 {
		if checked() != nil {
			return 0
		}
		return 1
	}))
}

// meteredBlobs counts writes of records.
type meteredBlobs struct {
	blob.Store
	writes *prometheus.CounterVec
}

func (b meteredBlobs) Put(ctx context.Context, key string, r io.Reader) error {
	return b.count(ctx, b.Store.Put(ctx, key, r))
}

func (b meteredBlobs) Delete(ctx context.Context, key string) error {
	return b.count(ctx, b.Store.Delete(ctx, key))
}

// count leaves out errors that the store did not cause: a canceled call, a value
// that may not be stored.
func (b meteredBlobs) count(ctx context.Context, err error) error {
	switch {
	case err == nil:
		b.writes.WithLabelValues("success").Inc()
	case ctx.Err() == nil && fault.Of(err) != fault.Invalid:
		b.writes.WithLabelValues("error").Inc()
	}
	return err
}

// Serve serves /metrics on --metrics-address, without encryption and
// authentication, as scrapers expect, and returns where; nowhere if the flag is empty.
func (m *Platform) Serve(mgr ctrl.Manager, address string) (string, error) {
	if address == "" {
		return "", nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return "", fmt.Errorf("listening on --metrics-address: %w", err)
	}
	mux := http.NewServeMux()
	// The metrics of controller-runtime belong to the process: they are only read.
	all := prometheus.Gatherers{m.Registry, kubemetrics.Registry}
	mux.Handle("GET /metrics", promhttp.HandlerFor(all, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 30 * time.Second}))
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 5 * time.Minute}
	serve := kube.Everywhere(func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() { _ = srv.Close() }) // an interrupted scrape is retried
		defer stop()
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serving metrics: %w", err)
		}
		return nil
	})
	if err := mgr.Add(serve); err != nil {
		return "", errors.Join(err, l.Close())
	}
	return "http://" + l.Addr().String() + "/metrics", nil
}

// Sources are what the gauges are computed from.
type Sources struct {
	Board   *query.Board
	Backlog func() (schedule.Backlog, bool) // false at a replica that does not have the queue
	Dir     func(...string) string          // a path below the data directory
	Slots   query.Slots
	Vaults  func() []monitor.Status
	Now     func() time.Time
	Log     *slog.Logger
}

// Measure registers the metrics that are computed for each scrape.
func (m *Platform) Measure(mgr ctrl.Manager, from Sources) error {
	data, r := newDataGauges(from.Dir), m.Registry
	slots := &capacityLog{capacity: func() (query.CapacityInfo, error) { return from.Board.Capacity(from.Slots) }, log: from.Log}
	return errors.Join(
		r.Register(stackGauges(from.Board, from.Slots, from.Now)), r.Register(queueGauges(from.Backlog, from.Now)), r.Register(vaultGauges(from.Vaults)),
		r.Register(data), mgr.Add(kube.Everywhere(data.run)), mgr.Add(manager.RunnableFunc(slots.run)),
	)
}
