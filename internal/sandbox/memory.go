package sandbox

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Memory is what a sandbox used of what it was given, where a control group
// counts it; else it is zero.
type Memory struct {
	Limit int64 // bytes
	Peak  int64 // bytes; 0 where the kernel does not keep it
	Kills int   // processes of the sandbox that were killed because the limit was reached
}

// memory reads the group's figures. It is for the end of a sandbox; those of a
// session grow with each program.
func (g *cgroup) memory() Memory {
	var m Memory
	if !g.has("memory") {
		return m
	}
	for _, dir := range g.dirs {
		for _, files := range []struct{ limit, peak, kills string }{
			{v1Files["memory"], "memory.max_usage_in_bytes", "memory.oom_control"},
			{v2Files["memory"], "memory.peak", "memory.events"},
		} {
			limit, ok := readNumber(filepath.Join(dir, files.limit))
			if !ok {
				continue
			}
			m.Limit = limit
			m.Peak, _ = readNumber(filepath.Join(dir, files.peak))
			m.Kills = oomKills(filepath.Join(dir, files.kills))
		}
	}
	return m
}

func readNumber(path string) (int64, bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}

// oomKills finds the counter in a list of them.
func oomKills(path string) int {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if count, ok := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); ok {
			n, _ := strconv.Atoi(count)
			return n
		}
	}
	return 0
}
