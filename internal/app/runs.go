package app

import (
	"context"
	"errors"
	"path/filepath"
	"slices"

	"github.com/terrier-iac/terrier/internal/controller"
	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner"
)

// openRuns opens the runner, which finds the runs of an earlier process.
func (p *parts) openRuns() error {
	binary := p.Config.Runner
	if binary == "" {
		binary = beside("terrier-runner")
	}
	if binary == "" {
		return fault.New(fault.Missing, "RunnerMissing", errors.New("terrier-runner is not beside this program: build both with `make build`, or set --runner"))
	}
	var err error
	p.runs, err = runner.New(runner.Config{Dir: p.dir("runner"), Binary: binary, Contents: contents{p}, MinLevel: p.Config.Isolation, Now: p.Now, Log: p.log})
	return err
}

// mirror is the directory of providers that runs can read; empty without one.
func (p *parts) mirror() (string, error) {
	dir := p.Config.Mirror
	if dir == "" {
		dir = beside("mirror")
	}
	if dir == "" {
		return "", nil
	}
	return filepath.Abs(dir)
}

// writable are the directories of this machine that every run may write.
func (p *parts) writable() []string {
	if p.Config.Quickstart {
		return append(slices.Clone(p.Config.Writable), p.dir(estateDir))
	}
	return p.Config.Writable
}

// modules reads root modules, and holds archives that were restored from their
// records.
func (p *parts) modules() *controller.Modules {
	return controller.NewModules(p.dir("scratch"))
}

// contents implements runner.Contents with the cache of artifacts and the
// engines of this machine.
type contents struct{ p *parts }

// Archive returns the path of an artifact that the controller fetched, or of one
// that it restored from the record of an apply.
func (c contents) Archive(_ context.Context, digest string) (string, error) {
	if path, err := c.p.cache.Path(digest); err == nil {
		return path, nil
	}
	return c.p.modules().Restored(digest)
}

// Directories are the same for every run.
func (c contents) Directories() (mirror string, writable []string, err error) {
	if mirror, err = c.p.mirror(); err != nil {
		return "", nil, err
	}
	return mirror, c.p.writable(), nil
}

// Engine finds an engine, which may have been replaced since the last run.
func (c contents) Engine(ctx context.Context, asked string) (engine.Engine, error) {
	find, err := c.p.engines()
	if err != nil {
		return engine.Engine{}, err
	}
	return find(ctx, asked)
}
