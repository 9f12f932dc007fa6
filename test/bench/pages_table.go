package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"
)

// times prints how long answers took.
type times struct {
	table
	server func() (time.Duration, error) // CPU that the server has used so far
}

const timesLayout = "%-58s %6s %7s %7s  %8s %8s  %s\n"

func newTimes(out io.Writer, about string) (*times, error) {
	about, err := underLoad(about)
	t := &times{table: table{out: out}}
	t.printf("\n%s\n", about)
	t.printf(timesLayout, "", "p50 ms", "p95", "max", "KiB", "CPU ms", "goal of p95")
	return t, err
}

// asked prints what it took to be answered several times, and the CPU time of
// the server for each.
func (t *times) asked(name string, took []time.Duration, bytes int64, cpu time.Duration, goal time.Duration) {
	kib, each := "", ""
	if bytes > 0 {
		kib = fmt.Sprintf("%.0f", float64(bytes)/1024)
	}
	if cpu > 0 {
		each = fmt.Sprintf("%.1f", cpu.Seconds()*1000/float64(len(took)))
	}
	slices.Sort(took)
	t.printf(timesLayout, name, ms(percentile(took, 50)), ms(percentile(took, 95)), ms(took[len(took)-1]), kib, each, judged(percentile(took, 95), goal))
}

func judged(took, goal time.Duration) string {
	switch {
	case goal == 0:
		return ""
	case took <= goal:
		return fmt.Sprintf("≤ %s ms, met", ms(goal))
	default:
		return fmt.Sprintf("≤ %s ms, MISSED", ms(goal))
	}
}

// percentile is of what is sorted: the least that so many percent do not exceed.
func percentile(sorted []time.Duration, p int) time.Duration {
	return sorted[(len(sorted)*p+99)/100-1]
}

// said prints a figure that is no time.
func (t *times) said(name, figure, goal string) {
	t.printf("%-58s %23s  %17s  %s\n", name, figure, "", goal)
}

// page opens a page over and over and prints what that took.
func (t *times) page(ctx context.Context, name string, v *visitor, path string, goal time.Duration) error {
	for range warmUps {
		if _, err := v.get(ctx, path); err != nil {
			return err
		}
	}
	before, err := t.server()
	if err != nil {
		return err
	}
	var took []time.Duration
	var last visit
	for range visits {
		if last, err = v.get(ctx, path); err != nil {
			return err
		}
		took = append(took, last.whole)
	}
	after, err := t.server()
	t.asked(name, took, last.bytes, after-before, goal)
	return err
}

// spending prints what both processes use, as parts of a core, while something
// goes on.
func (h *house) spending(while string, do func() error) error {
	processes := []struct {
		name   string
		pid    int
		before time.Duration
	}{{name: "server", pid: h.controller.Process.Pid}, {name: "control plane", pid: h.plane.Process.Pid}}
	var err error
	for i, p := range processes {
		if processes[i].before, err = cpuOf(p.pid); err != nil {
			return err
		}
	}
	began := time.Now()
	if err := do(); err != nil {
		return err
	}
	long := time.Since(began)
	h.t.said(while+":", seconds(long), "")
	for _, p := range processes {
		now, err := cpuOf(p.pid)
		if err != nil {
			return err
		}
		held, err := rssOf(p.pid)
		if err != nil {
			return err
		}
		h.t.said("… "+p.name, fmt.Sprintf("CPU %.1f %%, %s", 100*(now-p.before).Seconds()/long.Seconds(), mib(held)), "")
	}
	return nil
}
