package app

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/sandbox"
)

// What runs need of this machine. It is checked before anything starts, since
// without it no stack could ever be planned.

// checkPrograms reports what is missing, each with the flag that names it.
func checkPrograms(ctx context.Context, o Options, engines func() (findEngine, error)) error {
	_, platform := o.platform()
	var all error
	for _, err := range []error{checkSupervisor(ctx, o), checkEngines(ctx, o, engines), platform} {
		switch {
		case all == nil:
			all = err
		case err != nil:
			all = fmt.Errorf("%w; %w", all, err) // one line
		}
	}
	return all
}

// supervisor is the path of terrier-runner.
func (o Options) supervisor() (string, error) {
	binary := o.Config.Runner
	if binary == "" {
		binary = beside("terrier-runner")
	}
	if binary == "" {
		return "", fault.New(fault.Missing, "RunnerMissing", errors.New("--runner: terrier-runner is not beside this program: build both with `make build`, or set --runner to its path"))
	}
	if !engine.Runs(binary) {
		return "", fault.New(fault.Missing, "RunnerMissing", fmt.Errorf("--runner: %s does not exist or cannot be executed", binary))
	}
	return binary, nil
}

// checkSupervisor asks terrier-runner for its version: another program would fail each
// run, or do nothing and end well.
func checkSupervisor(ctx context.Context, o Options) error {
	if o.asPods() != nil {
		return nil // it is in the image
	}
	binary, err := o.supervisor()
	if err != nil {
		return err
	}
	path, err := filepath.Abs(binary)
	var said []byte
	if err == nil {
		said, err = sandbox.Output(ctx, path, "version")
	}
	if err == nil && !strings.HasPrefix(string(said), "terrier-runner ") {
		err = errors.New("it does not answer the argument version as terrier-runner does")
	}
	if err != nil {
		return fault.New(fault.Invalid, "RunnerUnknown", fmt.Errorf("--runner: %s is not terrier-runner: %w: build it with `make build`, and set --runner to its path", binary, err))
	}
	return nil
}

// checkEngines finds the engine of all stacks, and those that stacks may ask for.
func checkEngines(ctx context.Context, o Options, engines func() (findEngine, error)) error {
	find, err := engines()
	if err != nil {
		return err
	}
	if _, err := find(ctx, ""); err != nil {
		return fmt.Errorf("--engine: %w", err)
	}
	named, err := namedEngines(o.Config.Engines)
	if err != nil {
		return err
	}
	for name, path := range named {
		if !engine.Runs(path) {
			return fault.New(fault.Missing, "EngineMissing", fmt.Errorf("--engine-named %s: %s does not exist or cannot be executed", name, path))
		}
	}
	return nil
}

// platform is what all runs have.
func (o Options) platform() (runner.Platform, error) {
	var out runner.Platform
	var err error
	if out.Mirror, err = o.mirror(); err != nil {
		return out, err
	}
	if info, err := os.Stat(out.Mirror); out.Mirror != "" && (err != nil || !info.IsDir()) {
		return out, fault.New(fault.Missing, "MirrorMissing", fmt.Errorf("--provider-mirror: there is no directory %s", out.Mirror))
	}
	if !o.Config.Registries && out.Mirror == "" && !o.Config.mirrorsRuns() && o.asPods() == nil { // the image of pods may have one
		return out, usage("--provider-registries=false: there is no mirror that providers could come from: set --provider-mirror, or say with --registry-config what the mirror of the registry may have")
	}
	if out.Backends, err = namedBackends(o.Config.Backends); err != nil {
		return out, err
	}
	for name, path := range out.Backends {
		if o.asPods() == nil && !engine.Runs(path) {
			return out, fault.New(fault.Missing, "BackendMissing", fmt.Errorf("--backend-plugin %s: %s does not exist or cannot be executed", name, path))
		}
	}
	out.MirrorOnly, out.Writable, out.Settable = !o.Config.Registries, o.writable(), o.Config.StackEnv
	if out.Env, err = o.Config.runEnv(o.Environ); err != nil {
		return out, err
	}
	if c := o.asPods(); c != nil {
		if out.ProviderLock, err = c.lock(); err != nil {
			return out, err
		}
	}
	if name := o.Config.RunCA; name != "" {
		out.Authority, err = authorities(name)
	}
	return out, err
}

// maxAuthorities bounds the file of certificate authorities.
const maxAuthorities = 4 << 20

// authorities reads a file of certificates.
func authorities(name string) ([]byte, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fault.New(fault.Missing, "AuthorityMissing", fmt.Errorf("--run-ca-file: %w", err))
	}
	if len(data) > maxAuthorities {
		return nil, usage("--run-ca-file: %s has %d bytes, more than %d", name, len(data), maxAuthorities)
	}
	var blocks [][]byte
	for rest := data; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if _, err := x509.ParseCertificate(block.Bytes); block.Type != "CERTIFICATE" || err != nil {
			return nil, usage("--run-ca-file: %s holds a block %q that is no certificate", name, block.Type)
		}
		blocks = append(blocks, pem.EncodeToMemory(block))
	}
	if len(blocks) == 0 {
		return nil, usage("--run-ca-file: %s holds no certificate in PEM", name)
	}
	return slices.Concat(blocks...), nil
}

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
