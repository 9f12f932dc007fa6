package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// cgroup bounds a whole sandbox, where we may make control groups. It lies
// below our own group, so that a sandbox never escapes what bounds us. A nil
// cgroup bounds nothing.
type cgroup struct {
	dirs   []string // one; with version 1 one for each controller
	bounds map[string]bool
}

// groupPrefix and our process id begin the name of each group, so that the
// leftovers of a killed starter can be told and removed.
const groupPrefix = "terrier-"

var groupCount atomic.Int64

// newCgroup makes the group that a sandbox's limits ask for, or nil where they
// ask for none or none can be made. At Full the kernel counts processes by
// sandbox without a group, and one less is made.
func newCgroup(b *Config) *cgroup {
	wanted := map[string]int64{}
	if b.Limits.Memory > 0 {
		wanted["memory"] = b.Limits.Memory
	}
	if b.Limits.Processes > 0 && b.Level < Full {
		wanted["pids"] = int64(b.Limits.Processes)
	}
	if len(wanted) == 0 {
		return nil
	}
	name := fmt.Sprintf("%s%d-%d", groupPrefix, os.Getpid(), groupCount.Add(1))
	for _, home := range groupHomes() {
		if g := home.make(name, wanted); g != nil {
			return g
		}
	}
	return nil
}

// groupHome is where groups may be made: one directory with version 2, else one
// by controller.
type groupHome struct {
	v2   string
	byV1 map[string]string
}

// The files that limits are written to. The last ones stop a sandbox from
// evading into swap, and exist only where there is some.
var (
	v1Files = map[string]string{"memory": "memory.limit_in_bytes", "pids": "pids.max", "swap": "memory.memsw.limit_in_bytes"}
	v2Files = map[string]string{"memory": "memory.max", "pids": "pids.max", "swap": "memory.swap.max"}
)

// make returns nil if not one of the wanted limits could be set.
func (h groupHome) make(name string, wanted map[string]int64) *cgroup {
	g := &cgroup{bounds: map[string]bool{}}
	for controller, limit := range wanted {
		parent, files, swap := h.byV1[controller], v1Files, limit
		if h.v2 != "" {
			parent, files, swap = h.v2, v2Files, 0
		}
		dir := filepath.Join(parent, name)
		if parent == "" || !g.makeDir(dir) || !writeNumber(filepath.Join(dir, files[controller]), limit) {
			continue
		}
		g.bounds[controller] = true
		if controller == "memory" {
			writeNumber(filepath.Join(dir, files["swap"]), swap)
		}
	}
	if len(g.bounds) == 0 {
		g.remove()
		return nil
	}
	return g
}

func (g *cgroup) makeDir(dir string) bool {
	if slices.Contains(g.dirs, dir) {
		return true
	}
	if os.Mkdir(dir, 0o755) != nil {
		return false
	}
	g.dirs = append(g.dirs, dir)
	return true
}

// has reports whether the group bounds by a controller.
func (g *cgroup) has(controller string) bool { return g != nil && g.bounds[controller] }

// add moves a process into the group.
func (g *cgroup) add(pid int) error {
	if g == nil {
		return nil
	}
	for _, dir := range g.dirs {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			return fmt.Errorf("moving the launcher into its control group: %w", err)
		}
	}
	return nil
}

func (g *cgroup) remove() {
	if g == nil {
		return
	}
	for _, dir := range g.dirs {
		removeGroup(dir)
	}
}

// removeGroup waits a little for the last process to leave the group: the
// kernel may take it out only after it was reaped. What stays is swept later.
func removeGroup(dir string) {
	const tries, pause = 50, time.Millisecond
	for range tries {
		if err := os.Remove(dir); !errors.Is(err, syscall.EBUSY) {
			return
		}
		time.Sleep(pause)
	}
}

func writeNumber(path string, n int64) bool {
	return os.WriteFile(path, []byte(strconv.FormatInt(n, 10)), 0) == nil
}

// groupHomes are the places to try, in order: with version 2 our own group,
// which can have groups with limits only if it is a root, and its parent, which
// has them where our group was delegated to us.
var groupHomes = sync.OnceValue(func() []groupHome {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	homes := homesOf(string(mounts), string(groups))
	for _, h := range homes {
		h.sweep()
	}
	return homes
})

// homesOf reads the kernel's two tables.
func homesOf(mounts, groups string) []groupHome {
	own := map[string]string{} // our group by controller; "" is version 2
	for line := range strings.Lines(groups) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		for controller := range strings.SplitSeq(fields[1], ",") {
			own[controller] = fields[2]
		}
	}
	v1 := groupHome{byV1: map[string]string{}}
	var v2 []groupHome
	for line := range strings.Lines(mounts) {
		before, after, _ := strings.Cut(line, " - ")
		at, kind := strings.Fields(before), strings.Fields(after)
		if len(at) < 5 || len(kind) < 3 {
			continue
		}
		root, point := at[3], at[4]
		switch kind[0] {
		case "cgroup2":
			if rest, ok := under(own[""], root); ok || root == "/" {
				dir := filepath.Join(point, rest)
				v2 = append(v2, groupHome{v2: dir})
				if dir != point {
					v2 = append(v2, groupHome{v2: filepath.Dir(dir)})
				}
			}
		case "cgroup":
			for option := range strings.SplitSeq(kind[2], ",") {
				path, ours := own[option]
				if rest, ok := under(path, root); ours && ok {
					v1.byV1[option] = filepath.Join(point, rest)
				}
			}
		}
	}
	if len(v1.byV1) > 0 {
		return append([]groupHome{v1}, v2...)
	}
	return v2
}

// sweep removes the groups of starters that are gone.
func (h groupHome) sweep() {
	for _, dir := range []string{h.v2, h.byV1["memory"], h.byV1["pids"]} {
		if dir == "" {
			continue
		}
		names, _ := filepath.Glob(filepath.Join(dir, groupPrefix+"*-*"))
		for _, name := range names {
			owner, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(name), groupPrefix), "-")
			pid, err := strconv.Atoi(owner)
			if err == nil && syscall.Kill(pid, 0) == syscall.ESRCH {
				_ = os.Remove(name)
			}
		}
	}
}
