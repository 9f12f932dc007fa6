package main

import (
	"context"
	"log/slog"
	"runtime/debug"

	"github.com/terrier-iac/terrier/internal/app"
	"github.com/terrier-iac/terrier/standalone/kubeapi"
)

// plane is the embedded control plane as the application wants it.
type plane struct{}

// Start implements app.ControlPlane.
func (plane) Start(ctx context.Context, dir, address string, log *slog.Logger) (app.Running, error) {
	saveMemory()
	server, err := kubeapi.Start(ctx, kubeapi.Options{Dir: dir, Address: address, Log: log})
	if err != nil {
		return nil, err
	}
	debug.FreeOSMemory() // starting takes twice what running does
	return server, nil
}
