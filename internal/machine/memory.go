// Package machine knows how large the machine is, or the part of it that this
// program may take. It refuses to guess: what cannot be read is 0.
package machine

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// Memory is the memory of this machine, or of the control group around this process,
// in bytes, by the file system of the machine; 0 if that does not say. It is not the
// free memory.
func Memory(root fs.FS) int64 {
	total := machineMemory(root)
	if group := Group(root); group > 0 && (total == 0 || group < total) {
		total = group
	}
	return total
}

func machineMemory(root fs.FS) int64 {
	b, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return 0 // not Linux
	}
	for line := range bytes.Lines(b) {
		var kib int64
		if n, _ := fmt.Sscanf(string(line), "MemTotal: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	return 0
}

// Group is the least limit of the control groups around this process, of either version,
// in bytes; 0 if there is none. That of a container is the limit of the container.
func Group(root fs.FS) (least int64) {
	b, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // 4:memory:/a/b, or 0::/a/b
		if len(parts) != 3 {
			continue
		}
		mount, file := "sys/fs/cgroup", "memory.max"
		if parts[1] == "memory" {
			mount, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		} else if parts[1] != "" {
			continue
		}
		for dir := path.Clean("/" + parts[2]); ; dir = path.Dir(dir) {
			if limit := readLimit(root, path.Join(mount, dir, file)); limit > 0 && (least == 0 || limit < least) {
				least = limit
			}
			if dir == "/" {
				break
			}
		}
	}
	return least
}

// noLimit is where version 1 begins to mean that there is none.
const noLimit = 1 << 60

func readLimit(root fs.FS, name string) int64 {
	b, err := fs.ReadFile(root, name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0 // a container does not see the groups around it by their names
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil || n >= noLimit {
		return 0 // "max"
	}
	return n
}
