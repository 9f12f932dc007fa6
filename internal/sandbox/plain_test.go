package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAPlainProgramHasOnlyTheEnvironmentItIsGiven(t *testing.T) {
	for name, env := range map[string][]string{"none": nil, "one": {"A=1"}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			got := runJSON[selfReport](t, Command{Path: probe, Args: []string{"print"}, Env: env, Dir: dir})
			if diff := cmp.Diff(env, got.Env); diff != "" && len(got.Env)+len(env) > 0 {
				t.Errorf("environment (-want +got):\n%s", diff)
			}
			if got.Dir != dir {
				t.Errorf("directory: got %s, want %s", got.Dir, dir)
			}
		})
	}
}

func TestAPlainProgramTakesItsGroupWithIt(t *testing.T) {
	t.Run("killed", func(t *testing.T) {
		ours, theirs := alarm(t)
		out, in := alarm(t)
		p, err := Start(soon(t), Command{Path: probe, Args: []string{"group"}, Stdout: in, ExtraFiles: []*os.File{theirs}})
		if err != nil {
			t.Fatal(err)
		}
		_ = theirs.Close()
		readLine(t, out)
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
		if exit, err := p.Wait(); err != nil || exit.Signal != syscall.SIGKILL {
			t.Errorf("Wait() = %v, %v", exit, err)
		}
		ends(t, ours)
	})
	t.Run("ended", func(t *testing.T) {
		// The child keeps the output; it is read to its end all the same.
		stdout, _, exit := run(t, Command{Path: probe, Args: []string{"leave"}})
		if stdout != "held\n" || !exit.OK() {
			t.Errorf("got %q, %v", stdout, exit)
		}
	})
}

func TestADetachedProgramOutlivesItsStarter(t *testing.T) {
	ours, theirs := alarm(t)
	cmd := exec.Command(probe, "detach")
	cmd.ExtraFiles = []*os.File{theirs}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	_ = theirs.Close()
	if rung(t, ours) {
		t.Fatal("the detached program is gone")
	}
	var pid int
	if _, err := fmt.Sscan(string(out), &pid); err != nil {
		t.Fatal(err)
	}
	if sid, err := syscall.Getpgid(pid); err != nil || sid != pid {
		t.Errorf("its group is %d, %v, want its own", sid, err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ends(t, ours)
}

func TestCommandsThatMakeNoSense(t *testing.T) {
	sandbox := func(change func(*Config)) *Config {
		b := &Config{Level: Full, Work: "/srv/work", Network: NoNetwork}
		change(b)
		return b
	}
	for name, c := range map[string]Command{
		"a relative path":                {Path: "tofu"},
		"a relative directory":           {Path: "/x", Dir: "y"},
		"detached with a pipe":           {Path: "/x", Detached: true, Stdout: &strings.Builder{}},
		"detached in a sandbox":          {Path: "/x", Detached: true, Sandbox: sandbox(func(*Config) {})},
		"two directories":                {Path: "/x", Dir: "/y", Sandbox: sandbox(func(*Config) {})},
		"no level":                       {Path: "/x", Sandbox: sandbox(func(b *Config) { b.Level = None })},
		"a level beyond":                 {Path: "/x", Sandbox: sandbox(func(b *Config) { b.Level = Full + 1 })},
		"no network named":               {Path: "/x", Sandbox: sandbox(func(b *Config) { b.Network = "" })},
		"no network at basic":            {Path: "/x", Sandbox: sandbox(func(b *Config) { b.Level = Basic })},
		"out of the work directory":      {Path: "/x", Sandbox: sandbox(func(b *Config) { b.Dir = "../y" })},
		"an unclean work directory":      {Path: "/x", Sandbox: sandbox(func(b *Config) { b.Work = "/srv/../etc" })},
		"the root as the work directory": {Path: "/x", Sandbox: sandbox(func(b *Config) { b.Work = "/" })},
		"a bind into the work directory": {Path: "/x", Sandbox: sandbox(func(b *Config) { b.ReadOnly = []Bind{{"/etc", "/work/etc"}} })},
		"a bind over /proc":              {Path: "/x", Sandbox: sandbox(func(b *Config) { b.ReadOnly = []Bind{{"/etc", "/proc"}} })},
		"a relative bind":                {Path: "/x", Sandbox: sandbox(func(b *Config) { b.ReadOnly = []Bind{{"etc", "/etc"}} })},
		"a writable device directory":    {Path: "/x", Sandbox: sandbox(func(b *Config) { b.Writable = []string{"/dev"} })},
		"a negative limit":               {Path: "/x", Sandbox: sandbox(func(b *Config) { b.Limits.Processes = -1 })},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.check(); err == nil {
				t.Error("check() = nil, want an error")
			}
		})
	}
}

// A binary that forgot Main would start itself for ever.
func TestASandboxNeedsMain(t *testing.T) {
	b := sandboxed(t)
	armed.Store(false)
	defer armed.Store(true)
	if p, err := Start(soon(t), act(b, "exit", "0")); err == nil {
		_, _ = p.Wait()
		t.Error("Start() = nil, want an error")
	}
}

// A directory of the host that is shown at its own path below /work, as that of a clone
// there, makes room for itself: the work directory is elsewhere.
func TestTheWorkDirectoryMakesRoom(t *testing.T) {
	for name, tt := range map[string]struct {
		writable []string
		readOnly []Bind
		want     string
	}{
		"nothing is near":               {[]string{"/srv/x", "/workshop"}, []Bind{{"/srv/bin/tofu", "/engine/tofu"}}, "/work"},
		"a writable directory below":    {[]string{"/work/clone/.terrier/estate"}, nil, "/work-2"},
		"a readable directory below":    {nil, []Bind{{"/work/ca", "/work/ca"}}, "/work-2"},
		"the directory itself":          {[]string{"/work"}, nil, "/work-2"},
		"below that which is next, too": {[]string{"/work/a", "/work-2/b"}, nil, "/work-3"},
	} {
		t.Run(name, func(t *testing.T) {
			b := &Config{Level: Full, Work: "/work/clone/.terrier/runner/stacks/u/work", Dir: "tree", Home: "/work/home", Network: NoNetwork, Writable: tt.writable, ReadOnly: tt.readOnly}
			if err := b.check(); err != nil {
				t.Fatal(err)
			}
			spec := Command{Path: "/x", Sandbox: b}.spec(nil)
			mounts := spec.Tree.Mounts
			if last := mounts[len(mounts)-1]; last.Inside != tt.want || spec.Dir != tt.want+"/tree" || b.PathInside("/work/tree/a") != tt.want+"/tree/a" {
				t.Errorf("the work directory is at %s, the program begins in %s, and finds a file at %s, want all below %s", last.Inside, spec.Dir, b.PathInside("/work/tree/a"), tt.want)
			}
			if !slices.Contains(spec.Landlock.Write, tt.want) || !strings.Contains(string(spec.Tree.Texts[0].Content), tt.want+"/home") {
				t.Errorf("it may write %q, and its accounts are %s, want %s in both", spec.Landlock.Write, spec.Tree.Texts[0].Content, tt.want)
			}
			b.Level = Kernel
			if got, want := b.PathInside("/work/tree"), b.Work+"/tree"; got != want {
				t.Errorf("below full, PathInside() = %s, want %s", got, want)
			}
		})
	}
}

// Below Full /dev/shm is the machine's, and a sandbox writes it only where it has no other user.
func TestSharedMemoryOfTheMachine(t *testing.T) {
	for _, level := range []Level{Basic, Kernel} {
		for _, own := range []bool{false, true} {
			b := Config{Level: level, Work: "/srv/work", OwnShm: own}
			if got := slices.Contains(b.landlock().Write, "/dev/shm"); got != own {
				t.Errorf("level %s, its own %v: may write /dev/shm: %v", level, own, got)
			}
		}
	}
}

func TestSeen(t *testing.T) {
	b := &Config{Level: Full, Work: "/srv/work", ReadOnly: []Bind{{"/srv/bin/tofu", "/engine/tofu"}, {"/srv/mirror", "/mirror"}}}
	low := *b
	low.Level = Kernel
	for inside, host := range map[string]string{
		"/work":         "/srv/work",
		"/work/a/b":     "/srv/work/a/b",
		"/workshop":     "/workshop",
		"/engine/tofu":  "/srv/bin/tofu",
		"/mirror/x":     "/srv/mirror/x",
		"/tmp":          low.scratch(),
		"/tmp/x":        filepath.Join(low.scratch(), "x"),
		"/home":         filepath.Join(low.scratch(), "home"),
		"/usr/bin/true": "/usr/bin/true",
	} {
		if got := b.PathInside(inside); got != inside {
			t.Errorf("full: PathInside(%s) = %s", inside, got)
		}
		if got := low.PathInside(inside); got != host {
			t.Errorf("kernel: PathInside(%s) = %s, want %s", inside, got, host)
		}
	}
}

func TestWhichUsersAreMapped(t *testing.T) {
	for table, want := range map[string]bool{
		"         0          0 4294967295\n":                 true,
		"         0      54321          1\n":                 false,
		"         0     100000      65536\n":                 true,
		"         0     100000      65534\n":                 false,
		"         0 0 1\n     65534      65534          1\n": true,
		"": false,
	} {
		if got := maps(table, sandboxUser); got != want {
			t.Errorf("maps(%q) = %v, want %v", table, got, want)
		}
	}
}

func TestOwnWork(t *testing.T) {
	if !asRoot() {
		t.Skip("giving files away takes root")
	}
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "outside")
	for _, err := range []error{
		os.WriteFile(outside, nil, 0o600),
		os.MkdirAll(filepath.Join(dir, "a/b"), 0o755),
		os.WriteFile(filepath.Join(dir, "a/b/file"), nil, 0o600),
		os.Symlink(outside, filepath.Join(dir, "a/link")),
		os.Link(outside, filepath.Join(dir, "shared")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := ChownWork(dir); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]uint32{
		dir: sandboxUser, dir + "/a": sandboxUser, dir + "/a/b": sandboxUser, dir + "/a/b/file": sandboxUser, dir + "/a/link": sandboxUser,
		outside: 0, dir + "/shared": 0,
	} {
		var st syscall.Stat_t
		if err := syscall.Lstat(path, &st); err != nil {
			t.Fatal(err)
		}
		if st.Uid != want || st.Gid != want {
			t.Errorf("%s belongs to %d:%d, want %d", path, st.Uid, st.Gid, want)
		}
	}
	if err := ChownWork(filepath.Join(dir, "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("ChownWork() of nothing = %v", err)
	}
}
