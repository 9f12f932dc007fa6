package main

import (
	"context"
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/terrier-iac/terrier/internal/app"
	"github.com/terrier-iac/terrier/internal/machine"
	"github.com/terrier-iac/terrier/standalone/kubeapi"
	"github.com/terrier-iac/terrier/standalone/pace"
)

// plane is the embedded control plane as the application wants it.
type plane struct{}

func (plane) Start(ctx context.Context, dir, address string, log *slog.Logger) (app.Running, error) {
	pace.Keep(ctx, machine.Memory(os.DirFS("/")))
	server, err := kubeapi.Start(ctx, kubeapi.Options{Dir: dir, Address: address, Log: log})
	if err != nil {
		return nil, err
	}
	debug.FreeOSMemory() // starting takes twice what running does
	return server, nil
}
