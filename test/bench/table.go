package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// sample is what one run took.
type sample struct {
	wall, cpu time.Duration
	until     time.Duration            // until nothing was left of it, if that was measured
	others    map[string]time.Duration // CPU of those that serve all, until then
}

// samples are all runs of one kind.
type samples []sample

func (s samples) sorted(of func(sample) time.Duration) []time.Duration {
	var all []time.Duration
	for _, one := range s {
		all = append(all, of(one))
	}
	slices.Sort(all)
	return all
}

func (s samples) wall() []time.Duration {
	return s.sorted(func(one sample) time.Duration { return one.wall })
}

func (s samples) cpu() []time.Duration {
	return s.sorted(func(one sample) time.Duration { return one.cpu })
}

// measure does something and says what it took. Whatever it starts must have
// been waited for when it returns.
func measure(do func() error) (sample, error) {
	began, before := time.Now(), cpu()
	err := do()
	return sample{wall: time.Since(began), cpu: cpu() - before}, err
}

// cpu is what this process and all that it waited for have used.
func cpu() time.Duration {
	var total time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		total += cpuBy(who)
	}
	return total
}

func cpuBy(who int) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(who, &u); err != nil {
		panic("bench: asking for the usage: " + err.Error()) // only of an unknown who
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// cpuOwn is what this process itself has used.
func cpuOwn() time.Duration { return cpuBy(syscall.RUSAGE_SELF) }

// table prints as it goes, so that the user sees something while waiting.
type table struct {
	out io.Writer
	err error
}

const layout = "%-44s %9s %7s %7s  %9s %7s %7s  %6s  %s\n"

func (t *table) head() {
	t.printf(layout, "", "wall ms", "", "", "CPU ms", "", "", "", "")
	t.printf(layout, "", "min", "median", "max", "min", "median", "max", "×", "goal")
}

// row prints one line. The factor is of the medians of CPU time.
func (t *table) row(name string, s, against samples, goal string) {
	wall, cpu := s.wall(), s.cpu()
	factor := ""
	if len(against) > 0 {
		factor = fmt.Sprintf("%.2f", float64(median(cpu))/float64(median(against.cpu())))
	}
	t.printf(layout, name, ms(wall[0]), ms(median(wall)), ms(wall[len(wall)-1]), ms(cpu[0]), ms(median(cpu)), ms(cpu[len(cpu)-1]), factor, goal)
}

func (t *table) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(t.out, format, args...); t.err == nil {
		t.err = err
	}
}

func median(sorted []time.Duration) time.Duration { return sorted[len(sorted)/2] }

func ms(d time.Duration) string { return fmt.Sprintf("%.0f", float64(d)/float64(time.Millisecond)) }

// facts prints figures that have no other beside them but their goal. It prints
// as it goes, too.
type facts table

const factLayout = "%-64s %22s  %s\n"

// underLoad adds how busy the machine is before the work starts: that says how
// much figures in seconds are worth.
func underLoad(about string) (string, error) {
	load, err := os.ReadFile("/proc/loadavg")
	minute, _, _ := strings.Cut(string(load), " ")
	return fmt.Sprintf("%s (load %s)", about, minute), err
}

// newFacts begins a table.
func newFacts(out io.Writer, about string) *facts {
	f := &facts{out: out}
	about, f.err = underLoad(about)
	(*table)(f).printf("\n")
	f.fact(about, "", "goal")
	return f
}

func (f *facts) fact(name, figure, goal string) {
	(*table)(f).printf(factLayout, name, figure, goal)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

func mib(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }
