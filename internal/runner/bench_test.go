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

// BenchmarkCheck compares our quiet check, supervisor and box included, with
// the engine alone in a prepared directory.
func BenchmarkCheck(b *testing.B) {
	b.Run("bare", func(b *testing.B) {
		dir, engine := b.TempDir(), tofu(b)
		if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(quiet), 0o600); err != nil {
			b.Fatal(err)
		}
		tofu := func(args ...string) {
			cmd := exec.CommandContext(b.Context(), engine.Path, args...)
			cmd.Dir = dir
			cmd.Env = []string{"HOME=" + dir, "PATH=/usr/bin:/bin", "TF_CLI_CONFIG_FILE=/dev/null", "CHECKPOINT_DISABLE=1"}
			if out, err := cmd.CombinedOutput(); err != nil {
				b.Fatalf("%v: %s", err, out)
			}
		}
		tofu("init")
		tofu("apply", "-auto-approve")
		perRun(b, func() { tofu("plan", "-input=false", "-json", "-detailed-exitcode", "-lock=false", "-out=plan") })
	})
	b.Run("supervised", func(b *testing.B) {
		s := prepared(b)
		perRun(b, func() { s.Must(stack.CheckRun) })
	})
}

func prepared(b *testing.B) *runnertest.Stack {
	b.Helper()
	dir := b.TempDir()
	binary := filepath.Join(dir, "terrier-runner")
	build := exec.CommandContext(b.Context(), "go", "build", "-o", binary, "../../cmd/terrier-runner")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("building the supervisor: %v: %s", err, out)
	}
	p, err := runner.New(runner.Config{Dir: filepath.Join(dir, "data"), Binary: binary, Log: discard})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = p.Close() })
	s := runnertest.NewStack(b, p, tofu(b), quiet)
	s.Must(stack.ApplyRun, runnertest.Saved(s.Must(stack.PlanRun)))
	return s
}
