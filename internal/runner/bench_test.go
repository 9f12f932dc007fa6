package runner_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

const quiet = `
resource "terraform_data" "a" {
  count = 3
  input = count.index
}
output "a" {
  value = terraform_data.a[*].output
}
`

// children returns the CPU time of all our children that have ended.
func children(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func perRun(b *testing.B, run func()) {
	b.Helper()
	before := children(b)
	for b.Loop() {
		run()
	}
	b.ReportMetric(float64((children(b)-before).Milliseconds())/float64(b.N), "cpu-ms/op")
}

// The stacks whose quiet check is measured.
const random = `
resource "random_pet" "a" {
}
resource "random_id" "a" {
  byte_length = 8
}
resource "random_integer" "a" {
  min = 1
  max = 9
}
`

// BenchmarkCheck compares our quiet check, supervisor and sandbox included, with
// the engine alone in a prepared directory.
func BenchmarkCheck(b *testing.B) {
	binary := built(b)
	for name, module := range map[string]string{"builtin": quiet, "providers": random} {
		b.Run(name+"/bare", func(b *testing.B) { bare(b, module) })
		b.Run(name+"/supervised", func(b *testing.B) {
			s := prepared(b, binary, module)
			perRun(b, func() { s.Must(stack.CheckRun) })
		})
		if module != random {
			continue
		}
		b.Run(name+"/supervised, providers by the engine", func(b *testing.B) {
			s := prepared(b, binary, module)
			s.Job.Options.NoReattach = true
			perRun(b, func() { s.Must(stack.CheckRun) })
		})
	}
}

func bare(b *testing.B, module string) {
	b.Helper()
	dir, engine := b.TempDir(), tofu(b)
	config := workdir.CLIConfig(workdir.Mirror{Dir: mirror(b), Providers: listed(b)})
	for name, content := range map[string][]byte{"main.tf": []byte(module), "config": config.Content} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	tofu := func(args ...string) {
		cmd := exec.CommandContext(b.Context(), engine.Path, args...)
		cmd.Dir = dir
		cmd.Env = []string{"HOME=" + dir, "PATH=/usr/bin:/bin", "TF_CLI_CONFIG_FILE=" + filepath.Join(dir, "config"), "CHECKPOINT_DISABLE=1"}
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
	}
	tofu("init")
	tofu("apply", "-auto-approve")
	perRun(b, func() { tofu("plan", "-input=false", "-json", "-detailed-exitcode", "-lock=false", "-out=plan") })
}

func listed(b *testing.B) []string {
	b.Helper()
	list, err := workdir.MirrorProviders(os.DirFS(mirror(b)))
	if err != nil {
		b.Fatal(err)
	}
	return list
}

// built builds the supervisor as it is released.
func built(b *testing.B) string {
	b.Helper()
	binary := filepath.Join(b.TempDir(), "terrier-runner")
	build := exec.CommandContext(b.Context(), "go", "build", "-ldflags", "-s -w", "-o", binary, "../../cmd/terrier-runner")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("building the supervisor: %v: %s", err, out)
	}
	return binary
}

func prepared(b *testing.B, binary, module string) *runnertest.Stack {
	b.Helper()
	p, err := runnertest.NewLocal(runner.Config{Dir: filepath.Join(b.TempDir(), "data"), Binary: binary, Log: discard})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = p.Close() })
	s := runnertest.NewStack(b, p, tofu(b), module)
	config := workdir.CLIConfig(workdir.Mirror{Dir: runner.MirrorInside, Providers: listed(b)})
	config.Path = runner.CLIConfig
	s.Job.Files = append(s.Job.Files, config)
	p.Host().UseMirror(mirror(b))
	s.Must(stack.ApplyRun, runnertest.Saved(s.Must(stack.PlanRun)))
	return s
}
