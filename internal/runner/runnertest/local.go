package runnertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/runner"
)

// Runner is a runner under test. The suite lays archives, engines and providers down in
// its Host, as paths of the machine that the test is on, and names an engine in a job by
// its path. A runner elsewhere has an engine of its own, and mounts Fixture.Shared.
type Runner interface {
	runner.Runner
	Host() *Host
}

// Host is what a runner under test has at its disposal. It implements
// runner.Contents.
type Host struct {
	mu       sync.Mutex
	archives map[string]string        // path by digest
	engines  map[string]engine.Engine // by the name in a job
	platform runner.Platform
}

func (h *Host) Archive(_ context.Context, digest string) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if path, ok := h.archives[digest]; ok {
		return path, nil
	}
	return "", errors.New("no test has put it there")
}

func (h *Host) Engine(_ context.Context, asked string) (engine.Engine, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e, ok := h.engines[asked]; ok {
		return e, nil
	}
	return engine.Engine{}, fmt.Errorf("there is no engine %q", asked)
}

func (h *Host) Platform() (runner.Platform, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.platform
	p.Writable = slices.Clone(p.Writable)
	return p, nil
}

// Provide changes what all runs have.
func (h *Host) Provide(change func(*runner.Platform)) { h.set(func() { change(&h.platform) }) }

// UseMirror lets runs read a directory of providers.
func (h *Host) UseMirror(dir string) { h.Provide(func(p *runner.Platform) { p.Mirror = dir }) }

// set changes what there is.
func (h *Host) set(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
}

// adopt takes over what another host has.
func (h *Host) adopt(o *Host) {
	if h == o {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	h.set(func() {
		maps.Copy(h.archives, o.archives)
		maps.Copy(h.engines, o.engines)
		writable := append(h.platform.Writable, o.platform.Writable...)
		h.platform = o.platform
		h.platform.Writable = writable
	})
}

// Local is a runner on this machine.
type Local struct {
	*runner.Processes
	host *Host
}

// Host is what the runner has.
func (l *Local) Host() *Host { return l.host }

// NewLocal opens a runner whose contents are those of a new Host.
func NewLocal(c runner.Config) (*Local, error) {
	h := NewHost()
	c.Contents = h
	p, err := runner.New(c)
	return &Local{p, h}, err
}

// NewHost returns a host with nothing in it.
func NewHost() *Host {
	return &Host{archives: map[string]string{}, engines: map[string]engine.Engine{}}
}
