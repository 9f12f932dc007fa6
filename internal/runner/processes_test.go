package runner_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/sandbox"
)

// tofu returns the engine that `make build` makes.
func tofu(t testing.TB) engine.Engine {
	t.Helper()
	path, err := filepath.Abs("../../bin/tofu")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("no engine to test with, `make build` makes it: %v", err)
	}
	return engine.Engine{Path: path, Name: "tofu", Version: "1.12.6"}
}

// mirror returns the provider mirror that `make build` makes.
func mirror(t testing.TB) string {
	t.Helper()
	dir, err := filepath.Abs("../../bin/mirror")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func open(t testing.TB, dir string) *runnertest.Local {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := runnertest.NewLocal(runner.Config{Dir: dir, Binary: self, MinLevel: 1, Log: discard})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	return p
}

func TestConformance(t *testing.T) {
	runnertest.Run(t, runnertest.Fixture{
		New:    func(t testing.TB) runnertest.Runner { return open(t, t.TempDir()) },
		Engine: tofu(t),
		Mirror: mirror(t),
	})
}

// Without namespaces there is no tree of the sandbox's own: the engine runs at
// host paths, which its user has to reach.
func TestConformanceBelowFull(t *testing.T) {
	runnertest.Run(t, runnertest.Fixture{
		New: func(t testing.TB) runnertest.Runner {
			dir := t.TempDir()
			if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil {
				t.Fatal(err)
			}
			return open(t, dir)
		},
		Engine: tofu(t),
		Mirror: mirror(t),
		Adapt:  func(j *runner.Job) { j.Sandbox.Level = int(sandbox.Kernel) },
	})
}

var discard = slog.New(slog.DiscardHandler)
