package sandbox

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// F08: a program that reaches the memory limit of a sandbox is known to have
// done so.
func TestMemoryThatKills(t *testing.T) {
	const limit = 128 << 20
	b := sandboxed(t, func(b *Config) { b.Limits.Memory = limit })
	if g := newCgroup(b); g == nil {
		t.Skip("no control group can be made here")
	} else {
		g.remove()
	}
	session := openSession(t, b)
	for name, run := range map[string]func(string) Exit{
		"in a sandbox": func(bytes string) Exit { _, _, exit := run(t, act(b, "allocate", bytes)); return exit },
		"in a session": func(bytes string) Exit {
			_, exit := visit(t, session, act(b, "allocate", bytes))
			return exit
		},
	} {
		t.Run(name, func(t *testing.T) {
			modest := run(strconv.Itoa(16 << 20))
			if m := modest.Memory; !modest.OK() || m.Kills != 0 || m.Limit != limit || m.Peak < 16<<20 {
				t.Errorf("16 MiB of 128: %v with %+v", modest, m)
			}
			greedy := run(strconv.Itoa(1 << 30))
			if m := greedy.Memory; greedy.Signal != syscall.SIGKILL || m.Kills == 0 || m.Limit != limit || m.Peak < limit*9/10 {
				t.Errorf("1 GiB of 128 MiB: %v with %+v", greedy, m)
			}
		})
	}
}

func TestMemoryOfEachVersion(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  Memory
	}{
		"version 1": {map[string]string{
			"memory.limit_in_bytes": "100\n", "memory.max_usage_in_bytes": "90\n",
			"memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
		}, Memory{100, 90, 2}},
		"version 2":              {map[string]string{"memory.max": "100\n", "memory.peak": "99\n", "memory.events": "max 5\noom 1\noom_kill 1\noom_group_kill 0\n"}, Memory{100, 99, 1}},
		"version 2 without peak": {map[string]string{"memory.max": "100\n", "memory.events": "oom_kill 0\n"}, Memory{Limit: 100}},
		"nothing to read":        {nil, Memory{}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range c.files {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			g := &cgroup{dirs: []string{t.TempDir(), dir}, bounds: map[string]bool{"memory": true}}
			if got := g.memory(); got != c.want {
				t.Errorf("memory() = %+v, want %+v", got, c.want)
			}
		})
	}
	if got := (*cgroup)(nil).memory(); got != (Memory{}) {
		t.Errorf("memory() without a group = %+v, want nothing", got)
	}
}
