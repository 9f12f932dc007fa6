package sandbox

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestProcessesAreBounded(t *testing.T) {
	for _, level := range everyLevel {
		t.Run(level.String(), func(t *testing.T) {
			const limit = 60
			b := sandboxed(t, at(level), func(b *Config) { b.Limits.Processes = limit })
			if g := newCgroup(b); level < Full && !g.has("pids") {
				t.Skip("below full this takes a control group, and none can be made here")
			} else {
				g.remove()
			}
			// Threads count, and each of these children has several.
			if got := runJSON[int](t, act(b, "fork")); got < 1 || got > limit {
				t.Errorf("started %d children, want at most %d", got, limit)
			}
		})
	}
}

// Sandboxes do not count each other's processes.
func TestProcessesAreCountedBySandbox(t *testing.T) {
	limited := func(b *Config) { b.Limits.Processes = 40 }
	first := sandboxed(t, limited)
	in, out := alarm(t)
	for range 5 {
		c := act(first, "hold")
		c.Stdout = out
		p, err := Start(soon(t), c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Kill(); _, _ = p.Wait() })
		readLine(t, in)
	}
	if got := runJSON[int](t, act(sandboxed(t, limited), "fork")); got < 3 {
		t.Errorf("started %d children beside other sandboxes, want some", got)
	}
}

func TestFilesAreBounded(t *testing.T) {
	const limit = 1 << 20
	for _, level := range everyLevel {
		t.Run(level.String(), func(t *testing.T) {
			b := sandboxed(t, at(level), func(b *Config) { b.Limits.FileBytes = limit })
			got := runJSON[int64](t, act(b, "fill", b.PathInside("/work/big"), strconv.Itoa(10*limit)))
			if got != limit {
				t.Errorf("wrote %d bytes, want %d", got, limit)
			}
		})
	}
}

func TestMemoryIsBounded(t *testing.T) {
	for _, level := range everyLevel {
		t.Run(level.String(), func(t *testing.T) {
			b := sandboxed(t, at(level), func(b *Config) { b.Limits.Memory = 256 << 20 })
			if _, stderr, exit := run(t, act(b, "allocate", strconv.Itoa(64<<20))); !exit.OK() {
				t.Errorf("64 MiB of 256: %v %s", exit, stderr)
			}
			_, stderr, exit := run(t, act(b, "allocate", strconv.Itoa(4<<30)))
			killed := exit.Signal == syscall.SIGKILL
			refused := strings.Contains(stderr, "cannot allocate memory")
			if !killed && !refused {
				t.Errorf("4 GiB of 256 MiB: %v %s", exit, stderr)
			}
			if g := newCgroup(b); g != nil {
				g.remove()
				if !killed {
					t.Errorf("4 GiB of 256 MiB: %v %s, want it killed by its control group", exit, stderr)
				}
			}
		})
	}
}

// Without a control group each process is bounded.
func TestMemoryWithoutAControlGroup(t *testing.T) {
	c := act(sandboxed(t, func(b *Config) { b.Limits.Memory = 1 << 30 }), "print")
	if got := c.spec(&cgroup{bounds: map[string]bool{"memory": true}}).Limits.Data; got != 0 {
		t.Errorf("with a control group: got %d, want no limit", got)
	}
	if got := c.spec(nil).Limits.Data; got != 1<<30 {
		t.Errorf("without one: got %d, want %d", got, 1<<30)
	}
}

func TestControlGroupsAreRemoved(t *testing.T) {
	b := sandboxed(t, func(b *Config) { b.Limits.Memory = 256 << 20 })
	g := newCgroup(b)
	if g == nil {
		t.Skip("no control group can be made here")
	}
	g.remove()
	run(t, act(b, "exit", "0"))
	left, err := filepath.Glob(filepath.Join(filepath.Dir(g.dirs[0]), groupPrefix+strconv.Itoa(os.Getpid())+"-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestWhereControlGroupsAreMade(t *testing.T) {
	for name, c := range map[string]struct {
		mounts, groups string
		want           []groupHome
	}{
		"version 2, delegated by systemd": {
			mounts: "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
			groups: "0::/user.slice/app.slice/run.scope\n",
			want: []groupHome{
				{v2: "/sys/fs/cgroup/user.slice/app.slice/run.scope"}, {v2: "/sys/fs/cgroup/user.slice/app.slice"},
			},
		},
		"version 2, in a cgroup namespace": {
			mounts: "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
			groups: "0::/\n",
			want:   []groupHome{{v2: "/sys/fs/cgroup"}},
		},
		"version 1 beside version 2": {
			mounts: "30 23 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n" +
				"31 23 0:27 /docker/x /sys/fs/cgroup/pids rw shared:9 - cgroup cgroup rw,pids\n" +
				"32 23 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
			groups: "8:pids:/docker/x/y\n4:memory:/m\n0::/\n",
			want: []groupHome{
				{byV1: map[string]string{"memory": "/sys/fs/cgroup/memory/m", "pids": "/sys/fs/cgroup/pids/y"}},
				{v2: "/sys/fs/cgroup/unified"},
			},
		},
		"tables that cannot be read": {mounts: "x\n - \n1 2 3 4 5 - cgroup\n", groups: "nothing\n::\n"},
	} {
		t.Run(name, func(t *testing.T) {
			got := homesOf(c.mounts, c.groups)
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(groupHome{})); diff != "" {
				t.Errorf("homesOf() (-want +got):\n%s", diff)
			}
		})
	}
}
