package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// health answers the probes of a kubelet, without encryption: /healthz as long as
// this process lives, also while it waits for the Lease or for runs to end, and
// /readyz while it serves.
type health struct {
	ready atomic.Pointer[func(context.Context) error] // nil while this process does not serve
}

// probeBytes and probeWithin bound one request.
const (
	probeBytes  = 8 << 10
	probeWithin = 10 * time.Second
)

var errNotServing = errors.New("this controller does not serve: it starts, ends, or waits for the Lease")

// serve answers at an address until the returned function is called.
func (h *health) serve(address string) (stop func() error, err error) {
	if address == "" {
		return func() error { return nil }, nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, usage("--health-address: %w", err)
	}
	srv := &http.Server{Handler: h.handler(), ReadTimeout: probeWithin, WriteTimeout: probeWithin, MaxHeaderBytes: probeBytes}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	return func() error {
		err := srv.Close()
		if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, fmt.Errorf("serving health: %w", served))
		}
		return err
	}, nil
}

func (h *health) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		err := errNotServing
		if ready := h.ready.Load(); ready != nil {
			err = (*ready)(r.Context())
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}
