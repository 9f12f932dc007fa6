package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// cpuOf is the user and system time that a process has used.
func cpuOf(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	var ticks int
	for _, f := range fields[11:13] { // utime and stime, proc_pid_stat(5)
		n, err := strconv.Atoi(f)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100, nil
}

// cpuBelow is what the processes have used that a process started, and that run still.
func cpuBelow(pid int) (time.Duration, error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	children := map[int][]int{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		var child, parent int
		fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		if _, err := fmt.Sscan(string(b), &child); err != nil {
			return 0, fmt.Errorf("reading %s: %w", file, err)
		}
		if parent, err = strconv.Atoi(fields[1]); err != nil {
			return 0, fmt.Errorf("reading %s: %w", file, err)
		}
		children[parent] = append(children[parent], child)
	}
	var sum time.Duration
	for todo := children[pid]; len(todo) > 0; todo = todo[1:] {
		if used, err := cpuOf(todo[0]); err == nil {
			sum += used
		}
		todo = append(todo, children[todo[0]]...)
	}
	return sum, nil
}

// rssOf is what a process holds in memory, in bytes.
func rssOf(pid int) (int64, error) { return memoryOf(pid, "VmRSS") }

// peakOf is the most that a process ever held in memory, in bytes.
func peakOf(pid int) (int64, error) { return memoryOf(pid, "VmHWM") }

// memoryOf is a size that the kernel knows of a process, proc_pid_status(5).
func memoryOf(pid int, what string) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if held, ok := strings.CutPrefix(line, what+":"); ok {
			var kib int64
			_, err := fmt.Sscan(held, &kib)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("the kernel does not say %s of process %d", what, pid)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
