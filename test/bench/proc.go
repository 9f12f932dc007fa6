package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
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
