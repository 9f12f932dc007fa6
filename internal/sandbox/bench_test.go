package sandbox

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkSandbox compares a program started plainly with the same one in a
// sandbox. cpu-ms/op is what the kernel charged us and our children, the
// program's own share included.
func BenchmarkSandbox(b *testing.B) {
	for name, sandbox := range map[string]*Config{
		"plain":       nil,
		"full/none":   {Level: Full, Network: NoNetwork},
		"full/host":   {Level: Full, Network: HostNetwork},
		"full/memory": {Level: Full, Network: NoNetwork, Limits: Limits{Memory: 1 << 30, Processes: 512}},
		"kernel":      {Level: Kernel, Network: HostNetwork},
	} {
		b.Run(name, func(b *testing.B) {
			if sandbox != nil {
				sandbox.Work = workDir(b)
			}
			before := cpuTime(b)
			for b.Loop() {
				p, err := Start(b.Context(), Command{Path: "/usr/bin/true", Sandbox: sandbox})
				if err != nil {
					b.Fatal(err)
				}
				if exit, err := p.Wait(); err != nil || !exit.OK() {
					b.Fatalf("Wait() = %v, %v", exit, err)
				}
			}
			spent := cpuTime(b) - before
			b.ReportMetric(float64(spent.Microseconds())/1000/float64(b.N), "cpu-ms/op")
		})
	}
}

func cpuTime(tb testing.TB) time.Duration {
	var sum time.Duration
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if err := unix.Getrusage(who, &u); err != nil {
			tb.Fatal(err)
		}
		sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return sum
}

// BenchmarkRoom is the cost of a session with one program, to be compared with
// that of a sandbox around it.
func BenchmarkRoom(b *testing.B) {
	for name, sandbox := range map[string]Config{
		"full/none": {Level: Full, Network: NoNetwork},
		"kernel":    {Level: Kernel, Network: HostNetwork},
	} {
		b.Run(name, func(b *testing.B) {
			sandbox.Work = workDir(b)
			before := cpuTime(b)
			for b.Loop() {
				r, err := OpenSession(b.Context(), sandbox)
				if err != nil {
					b.Fatal(err)
				}
				p, err := r.Start(Command{Path: "/usr/bin/true"})
				if err != nil {
					b.Fatal(err)
				}
				if exit, err := p.Wait(); err != nil || !exit.OK() {
					b.Fatalf("Wait() = %v, %v", exit, err)
				}
				if err := r.Close(); err != nil {
					b.Fatal(err)
				}
			}
			spent := cpuTime(b) - before
			b.ReportMetric(float64(spent.Microseconds())/1000/float64(b.N), "cpu-ms/op")
		})
	}
}
