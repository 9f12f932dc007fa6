package remote_test

import (
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/stack"
)

// BenchmarkCheckInAPlace is a quiet check from its start until it is forgotten, each in a
// place of its own as in a pod: with init, with what an earlier run prepared, and with providers of a
// registry on this machine. The programs of a cluster are no part of it.
func BenchmarkCheckInAPlace(b *testing.B) {
	mirror, err := filepath.Abs("../../../bin/mirror")
	if err != nil {
		b.Fatal(err)
	}
	const module = `
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
	for name, c := range map[string]struct {
		keep     int64
		registry bool
	}{
		"providers of a registry":           {registry: true},
		"providers of a mirror, init":       {},
		"providers of a mirror, prepared":   {keep: 16 << 20},
		"providers of a registry, prepared": {keep: 16 << 20, registry: true}, // nothing can be kept
	} {
		b.Run(name, func(b *testing.B) {
			c2 := newSite(b).open(b.TempDir(), keeping(c.keep))
			s := runnertest.NewStack(b, c2, tofu(b), module)
			s.UseMirror(mirror)
			if c.registry {
				reg := runnertest.NewRegistry(b)
				reg.Publish(mirror, "hashicorp/random", "3.6.1")
				last := &s.Job.Files[len(s.Job.Files)-1]
				last.Content = append([]byte("disable_checkpoint = true\n"), reg.Host("registry.opentofu.org")...)
				s.Job.Sandbox.Network = "host"
				c2.host.Provide(func(p *runner.Platform) {
					p.Mirror, p.Authority, p.Env = "", reg.Authority, map[string]string{"HTTPS_PROXY": reg.Proxy}
				})
			}
			s.Must(stack.ApplyRun, runnertest.Saved(s.Must(stack.PlanRun)))
			before, engines := children(b), time.Duration(0)
			for b.Loop() {
				for _, step := range s.Must(stack.CheckRun).Steps {
					engines += step.CPU
				}
			}
			b.ReportMetric(float64((children(b)-before).Milliseconds())/float64(b.N), "cpu-ms/op")
			b.ReportMetric(float64(engines.Milliseconds())/float64(b.N), "engine-cpu-ms/op")
		})
	}
}

// children returns the CPU time of all our children that have ended.
func children(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
