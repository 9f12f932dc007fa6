package app

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/sandbox"
)

// findEngine finds an engine by its name; an empty name is the default.
type findEngine = func(ctx context.Context, name string) (engine.Engine, error)

// findEngines returns a function that finds the engine for every run: the engine may
// be replaced meanwhile.
func findEngines(o Options, log *slog.Logger) (findEngine, error) {
	if c := o.asPods(); c != nil {
		return c.find()
	}
	known, err := namedEngines(o.Config.Engines)
	if err != nil {
		return nil, err
	}
	finder := &engine.Finder{Chosen: o.Config.Engine, Path: o.Environ("PATH"), Run: sandbox.Output, Known: known}
	if exe, err := os.Executable(); err == nil {
		finder.Beside = filepath.Dir(exe)
	}
	var warned sync.Map
	return func(ctx context.Context, name string) (engine.Engine, error) {
		e, err := finder.Named(ctx, name)
		if err != nil {
			return e, err
		}
		if _, said := warned.LoadOrStore(e.String(), true); !said {
			if advice := engine.Advisory(e.Version); advice != "" {
				log.Warn("engine version", "engine", e.String(), "advice", advice)
			}
		}
		return e, nil
	}, nil
}
