package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// cgroup bounds the memory of a whole box, where we may make control groups.
// Below our own group, so that a box never escapes what bounds us. At levels
// without a user namespace it also bounds processes, which the kernel would
// else count over all boxes. A nil cgroup bounds nothing.
type cgroup struct {
	dirs []string // one; with version 1 one for each controller
	v2   *os.File // the directory of version 2
}

// groupPrefix and our process id begin the name of each group, so that the
// leftovers of a killed starter can be told and removed.
const groupPrefix = "terrier-"

var groupCount atomic.Int64

// newCgroup makes the group that a box's limits ask for, or nil where they ask
// for none or none can be made.
func newCgroup(b *Box) *cgroup {
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

func (h groupHome) make(name string, wanted map[string]int64) *cgroup {
	g := &cgroup{}
	if h.v2 != "" {
		dir := filepath.Join(h.v2, name)
		g.dirs = []string{dir}
		if os.Mkdir(dir, 0o755) != nil {
			return nil
		}
		file := map[string]string{"memory": "memory.max", "pids": "pids.max"}
		for controller, limit := range wanted {
			if !writeNumber(filepath.Join(dir, file[controller]), limit) {
				g.remove()
				return nil
			}
		}
		writeNumber(filepath.Join(dir, "memory.swap.max"), 0)
		opened, err := os.Open(dir)
		if err != nil {
			g.remove()
			return nil
		}
		g.v2 = opened
		return g
	}
	file := map[string]string{"memory": "memory.limit_in_bytes", "pids": "pids.max"}
	for controller, limit := range wanted {
		dir := filepath.Join(h.byV1[controller], name)
		if h.byV1[controller] == "" || os.Mkdir(dir, 0o755) != nil {
			g.remove()
			return nil
		}
		g.dirs = append(g.dirs, dir)
		if !writeNumber(filepath.Join(dir, file[controller]), limit) {
			g.remove()
			return nil
		}
		if controller == "memory" {
			writeNumber(filepath.Join(dir, "memory.memsw.limit_in_bytes"), limit)
		}
	}
	return g
}

// startIn makes the process start in the group, which version 2 can.
func (g *cgroup) startIn(attr *syscall.SysProcAttr) {
	if g != nil && g.v2 != nil {
		attr.UseCgroupFD = true
		attr.CgroupFD = int(g.v2.Fd())
	}
}

// add moves a process into the group, which version 1 needs.
func (g *cgroup) add(pid int) error {
	if g == nil || g.v2 != nil {
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
	if g.v2 != nil {
		_ = g.v2.Close()
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
