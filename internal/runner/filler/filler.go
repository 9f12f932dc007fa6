// Package filler fills a cache of providers for runs in pods: a directory in the form of a
// mirror, which the pods mount read-only. What belongs there is said by a dependency lock
// file of the operator, and nothing gets its place before its hash was compared with that.
// Runs compare it again.
//
//	lock file ── for each provider ── tofu init in a directory of its own, on the volume
//	                                        │ hash of the package = one of the lock file
//	                                        ▼ rename
//	DIR/registry.opentofu.org/hashicorp/random/3.6.1/linux_amd64/
//
// It refuses a provider of which the lock file has no hash of unpacked packages (h1:…). It
// never removes a package that has its hash: a run may be using it.
//
// Start reading at Run.
package filler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/sandbox"
)

// Options are what the filler needs.
type Options struct {
	Dir     string        // the cache; made if it is not there
	Lock    string        // path of the lock file, which is read again in each round
	Every   time.Duration // between two rounds; zero is one round
	Engine  string        // path of the program
	Environ []string      // of the engine, which fetches the providers: proxies, authorities, a CLI configuration
	Log     *slog.Logger
}

const (
	limit   = 30 * time.Minute // for one provider
	retry   = time.Minute      // after a round that failed, or Every if that is shorter
	workDir = ".fill-"         // how the directories begin in which providers arrive
	maxLock = 1 << 20
	maxSaid = 2 << 10
)

// platform is the last part of a package's path.
const platform = runtime.GOOS + "_" + runtime.GOARCH

// Run fills the cache, once or again and again until ctx ends.
func Run(ctx context.Context, o Options) error {
	for {
		err := fill(ctx, o)
		if o.Every <= 0 || ctx.Err() != nil {
			return err
		}
		pause := o.Every
		if err != nil {
			o.Log.Error("cache not filled", "err", err)
			pause = min(retry, o.Every)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}

// fill makes sure that the cache has every provider of the lock file. One that fails keeps
// no other one out.
func fill(ctx context.Context, o Options) error {
	locked, err := readLock(o.Lock)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return err
	}
	var errs []error
	for _, l := range locked {
		if err := o.provide(ctx, l); err != nil {
			errs = append(errs, fmt.Errorf("fetching %s %s: %w", l.Address, l.Version, err))
		}
	}
	return errors.Join(errs...)
}

func readLock(path string) ([]engine.Locked, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxLock {
		return nil, fmt.Errorf("%s has %d bytes, more than %d", path, info.Size(), maxLock)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return engine.ParseLockFile(data)
}

// provide makes sure that the cache has one provider.
func (o Options) provide(ctx context.Context, l engine.Locked) error {
	if !slices.ContainsFunc(l.Hashes, func(h string) bool { return strings.HasPrefix(h, "h1:") }) {
		return fmt.Errorf("the lock file has no hash of its unpacked package: make it with `tofu providers lock -platform=%s`", platform)
	}
	place := filepath.Join(o.Dir, l.Address, l.Version, platform)
	switch err := verify(place, l); {
	case err == nil:
		return nil
	case !errors.Is(err, os.ErrNotExist):
		o.Log.Warn("package in the cache is replaced", "provider", l.Address, "version", l.Version, "err", err)
	}
	work, err := os.MkdirTemp(o.Dir, workDir)
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := o.fetch(ctx, l, work); err != nil {
		return err
	}
	fresh := filepath.Join(work, engine.PackageDir(l, platform))
	if err := verify(fresh, l); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(place), 0o755); err != nil {
		return err
	}
	// A wrong package is moved away whole. Another filler may do the same at the same time.
	if err := os.Rename(place, filepath.Join(work, "wrong")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Rename(fresh, place); err != nil && verify(place, l) != nil {
		return err
	}
	o.Log.Info("provider fetched", "provider", l.Address, "version", l.Version)
	return nil
}

// verify compares a package with the lock file.
func verify(dir string, l engine.Locked) error {
	if _, err := os.Stat(dir); err != nil {
		return err
	}
	hash, err := archive.HashPackage(os.DirFS(dir))
	if err == nil && !slices.Contains(l.Hashes, hash) {
		err = fmt.Errorf("the package has the hash %s, which the lock file does not name", hash)
	}
	return err
}

// fetch lets the engine install one provider in a directory.
func (o Options) fetch(ctx context.Context, l engine.Locked, work string) error {
	module := fmt.Sprintf("terraform {\n  required_providers {\n    it = {\n      source  = %q\n      version = %q\n    }\n  }\n}\n", l.Address, l.Version)
	var lock strings.Builder
	fmt.Fprintf(&lock, "provider %q {\n  version = %q\n  hashes = [\n", l.Address, l.Version)
	for _, h := range l.Hashes {
		fmt.Fprintf(&lock, "    %s,\n", strconv.Quote(h))
	}
	lock.WriteString("  ]\n}\n")
	for name, text := range map[string]string{"main.tf": module, ".terraform.lock.hcl": lock.String()} {
		if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var said bytes.Buffer
	p, err := sandbox.Start(ctx, sandbox.Command{
		Path: o.Engine, Args: []string{"init", "-backend=false", "-input=false", "-no-color"}, Dir: work, Stdout: &said, Stderr: &said,
		Env: append(slices.Clone(o.Environ), "CHECKPOINT_DISABLE=1", "TF_IN_AUTOMATION=1", "HOME="+work, "TMPDIR="+work),
	})
	if err != nil {
		return err
	}
	exit, err := p.Wait()
	if err == nil && exit.Code != 0 {
		text := strings.TrimSpace(said.String())
		err = fmt.Errorf("init ended with %d: %s", exit.Code, text[max(0, len(text)-maxSaid):])
	}
	return err
}
