package registryserver

import (
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/registry"
	"github.com/terrier-iac/terrier/internal/registry/protocol"
)

// Wiring is what a registry is made of, alone or below the HTTP API of a controller.
type Wiring struct {
	Store      blob.Versions
	Rights     protocol.Rights
	Signer     protocol.Signer // of the addresses of archives
	Settings   string          // the file of the mirror; its defaults if empty
	Scratch    string          // a directory
	Allow      []string        // --allow-host
	Registerer prometheus.Registerer
	Stall      time.Duration // one minute if zero
	Log        *slog.Logger
	Now        func() time.Time
}

// Registry is the handler of a registry.
type Registry struct {
	http.Handler
}

// Wire makes a registry.
func Wire(w Wiring) (*Registry, error) {
	r := registry.New(w.Store, registry.Options{Scratch: w.Scratch, Now: w.Now, Log: w.Log})
	h, err := protocol.New(protocol.Options{Registry: r, Rights: w.Rights, Signer: w.Signer, Stall: w.Stall, Now: w.Now, Log: w.Log})
	if err != nil {
		return nil, fmt.Errorf("making the registry: %w", err)
	}
	return &Registry{h}, nil
}

// Close ends what the registry has open.
func (r *Registry) Close() {}
