package machine

import (
	"testing"
	"testing/fstest"
)

func TestMemory(t *testing.T) {
	const meminfo = "MemTotal:        1000000 kB\nMemFree:          500000 kB\n"
	for name, tt := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"the machine":                           {map[string]string{"proc/meminfo": meminfo}, 1_000_000 << 10},
		"a machine that says nothing":           {nil, 0},
		"a group of version 2":                  {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/pod/box\n", "sys/fs/cgroup/pod/memory.max": "104857600\n", "sys/fs/cgroup/pod/box/memory.max": "max\n"}, 100 << 20},
		"the group of a container is its root":  {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/../pod\n", "sys/fs/cgroup/memory.max": "104857600\n"}, 100 << 20},
		"a group of version 1":                  {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "5:cpu:/x\n4:memory:/x\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "104857600\n"}, 100 << 20},
		"a group of version 1 without a limit":  {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "4:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 1_000_000 << 10},
		"a group larger than the machine":       {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "10000000000\n"}, 1_000_000 << 10},
		"a group whose limit cannot be read":    {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "much\n"}, 1_000_000 << 10},
		"a list of groups that cannot be read":  {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "?\n"}, 1_000_000 << 10},
		"the least of the groups around counts": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": "209715200\n", "sys/fs/cgroup/a/b/memory.max": "104857600\n"}, 100 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			root := fstest.MapFS{}
			for path, content := range tt.files {
				root[path] = &fstest.MapFile{Data: []byte(content)}
			}
			if got := Memory(root); got != tt.want {
				t.Errorf("Memory() = %d, want %d", got, tt.want)
			}
		})
	}
}
