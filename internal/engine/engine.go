// Package engine knows the tofu and terraform command lines: where the program
// is, which versions are safe, how each step is spelled, which names a
// user may choose, and what a few of its errors mean.
// Its functions are pure, or ask the caller to run a program for them: it
// starts no process itself.
//
// Start reading at Finder, then Plan and its neighbours in args.go.
package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
)

// Engine is one tofu or terraform program.
type Engine struct {
	Path    string // absolute
	Name    string // tofu or terraform
	Version string // 1.12.6
}

// String names the engine as the inputs of a plan do: "tofu 1.12.6".
func (e Engine) String() string { return e.Name + " " + e.Version }

// The programs, in order of preference.
var names = []string{"tofu", "terraform"}

// Output runs a program and returns what it wrote to its standard output.
type Output func(ctx context.Context, path string, args ...string) ([]byte, error)

// Finder finds engines and remembers their versions for as long as the file
// stays the same. It is safe for concurrent use.
type Finder struct {
	Run    Output
	Chosen string            // the value of TERRIER_ENGINE, or of the flag that stands for it
	Beside string            // the directory of our own executable
	Path   string            // the value of PATH
	Known  map[string]string // engines that the operator named: name → path

	mu    sync.Mutex
	known map[stamp]Engine
}

// stamp identifies the content of a program without reading it.
type stamp struct {
	path  string
	mtime time.Time
	size  int64
}

// Find returns the engine at the path explicit, or if that is empty the chosen
// one, the one beside our executable, or the first one on the PATH.
func (f *Finder) Find(ctx context.Context, explicit string) (Engine, error) {
	for _, path := range []string{explicit, f.Chosen} {
		if path != "" {
			return f.at(ctx, path)
		}
	}
	for _, dir := range append([]string{f.Beside}, filepath.SplitList(f.Path)...) {
		// A relative PATH entry would make the engine depend on where we were
		// started.
		if !filepath.IsAbs(dir) {
			continue
		}
		for _, name := range names {
			if path := filepath.Join(dir, name); Runs(path) {
				return f.at(ctx, path)
			}
		}
	}
	return Engine{}, fault.New(fault.Missing, "EngineMissing", errors.New(
		"no tofu or terraform program found beside this program or on the PATH: `make build` makes bin/tofu, or install OpenTofu "+
			"and set --engine to its path"))
}

// Named returns an engine that a stack asks for by name: tofu or terraform,
// wherever that is found, or one of those that the operator named. A stack
// never chooses a program by its path.
func (f *Finder) Named(ctx context.Context, name string) (Engine, error) {
	if name == "" {
		return f.Find(ctx, "")
	}
	if path, ok := f.Known[name]; ok {
		return f.at(ctx, path)
	}
	for _, dir := range append([]string{f.Beside}, filepath.SplitList(f.Path)...) {
		if path := filepath.Join(dir, name); slices.Contains(names, name) && filepath.IsAbs(dir) && Runs(path) {
			return f.at(ctx, path)
		}
	}
	return Engine{}, fault.New(fault.Missing, "EngineMissing", fmt.Errorf(
		"there is no engine %q here: choose one that is, or ask for it to be added with --engine-named", name))
}

// at returns the engine at path, asking it for its version if need be.
func (f *Finder) at(ctx context.Context, path string) (Engine, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return Engine{}, err
	}
	info, err := os.Stat(path)
	if err != nil || !Runs(path) {
		return Engine{}, fault.New(fault.Missing, "EngineMissing",
			fmt.Errorf("no engine at %s: it is not there or cannot be executed", path))
	}
	key := stamp{path, info.ModTime(), info.Size()}
	f.mu.Lock()
	e, ok := f.known[key]
	f.mu.Unlock()
	if ok {
		return e, nil
	}
	out, err := f.Run(ctx, path, "version", "-json")
	if err != nil {
		return Engine{}, fmt.Errorf("asking %s for its version: %w", path, err)
	}
	if e, err = parseVersion(path, out); err != nil {
		return Engine{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known == nil {
		f.known = map[stamp]Engine{}
	}
	f.known[key] = e
	return e, nil
}

// Runs reports whether there is a program at a path.
func Runs(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

// parseVersion reads the answer to `version -json`. Both programs call the key
// terraform_version; only the file's name tells them apart.
func parseVersion(path string, out []byte) (Engine, error) {
	var answer struct {
		Version string `json:"terraform_version"`
	}
	if err := json.Unmarshal(out, &answer); err != nil || answer.Version == "" {
		return Engine{}, fault.New(fault.Invalid, "EngineUnknown",
			fmt.Errorf("%s does not answer `version -json` like an engine", path))
	}
	name := "tofu"
	if base := filepath.Base(path); slices.Contains(names, base) {
		name = base
	} else if strings.HasPrefix(base, "terraform") {
		name = "terraform"
	}
	return Engine{Path: path, Name: name, Version: answer.Version}, nil
}
