package testkit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Process is one process of this machine.
type Process struct {
	PID, Parent int
	Args        []string
}

// Supervisors lists the supervisors of the platform's runs. They outlive it.
func (p *Platform) Supervisors() []Process {
	dir := filepath.Join(p.Dir, "runner")
	return slices.DeleteFunc(processes(), func(q Process) bool {
		return len(q.Args) < 3 || filepath.Base(q.Args[0]) != "terrier-runner" || q.Args[1] != "supervise" || q.Args[2] != dir
	})
}

// Engines lists the engine processes in the sandboxes of the platform's runs.
func (p *Platform) Engines() []Process {
	all := processes()
	parent := map[int]int{}
	for _, q := range all {
		parent[q.PID] = q.Parent
	}
	supervisors := map[int]bool{}
	for _, s := range p.Supervisors() {
		supervisors[s.PID] = true
	}
	return slices.DeleteFunc(all, func(q Process) bool {
		if len(q.Args) == 0 || filepath.Base(q.Args[0]) != "tofu" {
			return true
		}
		for pid := q.Parent; pid > 1; pid = parent[pid] {
			if supervisors[pid] {
				return false
			}
		}
		return true
	})
}

// EnginesAtOnce lists the engine processes of a platform that are there at one moment. Processes are
// read one after the other, and meanwhile one ends and the next one begins: those of two
// readings were there between them.
func EnginesAtOnce(p *Platform) []Process {
	first := p.Engines()
	return slices.DeleteFunc(p.Engines(), func(q Process) bool {
		return !slices.ContainsFunc(first, func(f Process) bool { return f.PID == q.PID })
	})
}

// KillSupervisors kills every supervisor of the platform's runs, as a lack of
// memory might, and waits until they are gone. Runs may have ended by themselves.
func (p *Platform) KillSupervisors(tb testing.TB) {
	tb.Helper()
	if err := p.killRuns(); err != nil {
		tb.Fatal(err)
	}
}

// KillEngines kills every engine process of the platform's runs.
func (p *Platform) KillEngines(tb testing.TB) {
	tb.Helper()
	engines := p.Engines()
	if len(engines) == 0 {
		tb.Fatal("there is no engine to kill")
	}
	for _, e := range engines {
		if err := syscall.Kill(e.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			tb.Fatalf("killing engine %d: %v", e.PID, err)
		}
	}
}

// killRuns kills the runs of the platform. Their sandboxes die with their
// supervisors.
func (p *Platform) killRuns() error {
	for deadline := time.Now().Add(startWithin); ; {
		left := p.Supervisors()
		if len(left) == 0 {
			return nil
		}
		for _, s := range left {
			if err := syscall.Kill(s.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("killing supervisor %d: %w", s.PID, err)
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("supervisors %v do not die", left)
		}
	}
}

// processes lists all processes but zombies. One that ends meanwhile may be
// there or not.
func processes() []Process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var all []Process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		dir := filepath.Join("/proc", e.Name())
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err != nil {
			continue
		}
		// 12 (name, which may hold anything) S 1 …
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 2 || fields[0] == "Z" {
			continue
		}
		parent, err := strconv.Atoi(fields[1])
		if err != nil {
			continue
		}
		q := Process{PID: pid, Parent: parent}
		if line, err := os.ReadFile(filepath.Join(dir, "cmdline")); err == nil && len(line) > 0 {
			q.Args = strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
		}
		all = append(all, q)
	}
	return all
}
