package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
)

// supervise runs in the namespaces: the cluster's processes, its registry, its
// storage, and the way in from the machine's loopback.
func supervise(ctx context.Context, s state) error {
	if err := os.MkdirAll("/run/tmp", 0o700); err != nil {
		return fmt.Errorf("making a directory: %w", err)
	}
	api, err := inherited(apiFD)
	if err != nil {
		return err
	}
	images, err := inherited(registryFD)
	if err != nil {
		return err
	}
	port := api.Addr().(*net.TCPAddr).Port
	inside, err := net.Listen("tcp", registryAddress)
	if err != nil {
		return fmt.Errorf("opening the registry: %w", err)
	}
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithBlobHandler(registry.NewDiskBlobHandler("/var/lib/registry")))

	run, ctx := errgroup.WithContext(ctx)
	run.Go(func() error { return http.Serve(inside, handler) })
	run.Go(func() error { return http.Serve(images, handler) })
	run.Go(func() error { return forward(api, fmt.Sprintf("127.0.0.1:%d", port)) })
	for _, p := range servers(port) {
		run.Go(func() error { return p.keep(ctx) })
	}
	run.Go(func() error {
		if err := pushOwnImages(ctx); err != nil {
			return err
		}
		config, err := connect(s)
		if err != nil {
			return err
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return fmt.Errorf("making a client: %w", err)
		}
		if err := waitServing(ctx, client); err != nil {
			return err
		}
		slog.Info("the API server is ready")
		for _, p := range clients(s) {
			run.Go(func() error { return p.keep(ctx) })
		}
		if err := applyObjects(ctx, config); err != nil {
			return err
		}
		provision(ctx, client)
		return nil
	})
	return run.Wait()
}

// inherited is a socket that up opened on the machine's loopback. Connections to
// it come from there, though this process has another one.
func inherited(fd uintptr) (net.Listener, error) {
	f := os.NewFile(fd, "listener")
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("taking over a port: %w", err)
	}
	return l, nil
}

// forward connects each connection to an address.
func forward(from net.Listener, to string) error {
	for {
		outer, err := from.Accept()
		if err != nil {
			return fmt.Errorf("accepting a connection: %w", err)
		}
		go func() {
			defer outer.Close()
			inner, err := net.DialTimeout("tcp", to, 10*time.Second)
			if err != nil {
				return // the caller's connection is closed; it tries again
			}
			defer inner.Close()
			go transfer(inner.(*net.TCPConn), outer)
			transfer(outer.(*net.TCPConn), inner)
		}()
	}
}

// transfer copies until the end, and passes the end on.
func transfer(to *net.TCPConn, from io.Reader) {
	_, err := io.Copy(to, from)
	if end := to.CloseWrite(); end != nil || err != nil {
		slog.Debug("a connection broke", "error", errors.Join(err, end))
	}
}

// waitServing waits until the API server says that it is ready.
func waitServing(ctx context.Context, client kubernetes.Interface) error {
	return poll(ctx, 100*time.Millisecond, func() error {
		if _, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err != nil {
			return fmt.Errorf("asking whether the API server is ready: %w", err)
		}
		return nil
	})
}
