package runner

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner/disk"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// newWork returns a prepared directory whose tree holds files.
func newWork(t *testing.T, files map[string]string) *workDir {
	t.Helper()
	p, err := newWorkDir(t.TempDir(), Tree{Path: "mod"})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		path := p.path(dirWork, dirTree, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func (p *workDir) read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(p.path(dirWork, dirTree, name))
	if errors.Is(err, fs.ErrNotExist) {
		return "(none)"
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

var generated = []workdir.File{
	{Path: "main.tf", Mode: 0o600, Content: []byte("generated")},
	{Path: "sub/vars.json", Mode: 0o600, Content: []byte("secret")},
}

func TestGeneratedFilesLastOneRun(t *testing.T) {
	p := newWork(t, map[string]string{"mod/main.tf": "original"})
	for range 2 {
		if err := p.place(placement{Run: "r"}, generated); err != nil {
			t.Fatal(err)
		}
		if got := p.read(t, "mod/main.tf") + p.read(t, "mod/sub/vars.json"); got != "generatedsecret" {
			t.Errorf("during the run the files hold %q", got)
		}
		for range 2 { // the second time there is nothing to do
			if err := p.wipe(); err != nil {
				t.Fatal(err)
			}
			if got := p.read(t, "mod/main.tf") + p.read(t, "mod/sub/vars.json"); got != "original(none)" {
				t.Errorf("after the run the files hold %q", got)
			}
		}
	}
}

// What would let a module choose its backend is not in the tree that runs.
func TestExcludedFilesAreLeftOut(t *testing.T) {
	var packed bytes.Buffer
	src := t.TempDir()
	for _, name := range []string{"mod/main.tf", "mod/backend_override.tofu", "mod/.terraform/terraform.tfstate", "backend_override.tofu"} {
		path := filepath.Join(src, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("x"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Pack(src, nil, &packed, archive.Limits{}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "tree.tar.gz")
	if err := os.WriteFile(file, packed.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	tree := Tree{Archive: "sha256:1", Path: "mod", Exclude: []string{"backend_override.tofu"}}
	p := newWork(t, nil)
	if err := p.rebuild(tree, file, nil); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"mod/main.tf": "x", "mod/backend_override.tofu": "(none)", "mod/.terraform/terraform.tfstate": "(none)", "backend_override.tofu": "x"} {
		if got := p.read(t, name); got != want {
			t.Errorf("%s holds %q, want %q", name, got, want)
		}
	}
	tree.Exclude = []string{"../backend_override.tofu"}
	if err := p.rebuild(tree, file, nil); fault.Of(err) != fault.Invalid {
		t.Errorf("leaving out a file outside the root module: %v, want Invalid", err)
	}
}

// TestWipeAfterACrash takes the crash at each moment at which something has
// reached the disk.
func TestWipeAfterACrash(t *testing.T) {
	for name, crash := range map[string]func(t *testing.T, p *workDir){
		"before the sheet was written": func(t *testing.T, p *workDir) {
			tree, err := p.open(dirTree)
			if err != nil {
				t.Fatal(err)
			}
			defer tree.Close()
			if err := p.keepOriginal(tree, 0, "mod/main.tf"); err != nil {
				t.Fatal(err)
			}
		},
		"before the files were written": func(t *testing.T, p *workDir) {
			if err := p.place(placement{Run: "r"}, generated); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(p.path(dirWork, dirTree, "mod/main.tf"), []byte("original"), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(p.path(dirWork, dirTree, "mod/sub")); err != nil {
				t.Fatal(err)
			}
		},
		"in the middle of wiping": func(t *testing.T, p *workDir) {
			if err := p.place(placement{Run: "r"}, generated); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(p.path(dirWork, dirTree, "mod/main.tf")); err != nil {
				t.Fatal(err)
			}
		},
		"when all but the shadows was wiped": func(t *testing.T, p *workDir) {
			if err := os.MkdirAll(p.path(dirOriginals), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(p.path(dirOriginals, "0"), []byte("stale"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newWork(t, map[string]string{"mod/main.tf": "original"})
			crash(t, p)
			if err := p.wipe(); err != nil {
				t.Fatal(err)
			}
			if got := p.read(t, "mod/main.tf") + p.read(t, "mod/sub/vars.json"); got != "original(none)" {
				t.Errorf("after wiping the files hold %q", got)
			}
			if _, err := os.Stat(p.path(dirOriginals)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the shadows are left: %v", err)
			}
		})
	}
}

func TestHostileTreeIsNotFollowed(t *testing.T) {
	outside := t.TempDir()
	victim := filepath.Join(outside, "victim")
	if err := os.WriteFile(victim, []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
	p := newWork(t, map[string]string{"mod/other.tf": "x"})
	link := func(to, name string) {
		t.Helper()
		if err := os.Symlink(to, p.path(dirWork, dirTree, "mod", name)); err != nil {
			t.Fatal(err)
		}
	}
	link(victim, "main.tf")
	link(outside, "sub")
	link(victim, "errored.tfstate")
	if err := p.place(placement{Run: "r"}, generated[:1]); err != nil {
		t.Errorf("a link in the place of a file = %v, want it replaced", err)
	}
	if err := p.place(placement{Run: "r"}, generated); err == nil {
		t.Error("a directory that leads out was written into")
	}
	if data, err := erroredState(p, "mod"); err == nil {
		t.Errorf("a link was read as a state: %s", data)
	}
	if err := os.Remove(p.path(dirWork, dirTree, "mod", "errored.tfstate")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(p.path(dirWork, dirTree, "mod", "errored.tfstate"), 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := erroredState(p, "mod"); err == nil {
		t.Errorf("a pipe was read as a state: %s", data)
	}
	if err := p.wipe(); err != nil {
		t.Errorf("wipe() = %v", err)
	}
	if entries, _ := os.ReadDir(outside); len(entries) != 1 {
		t.Errorf("files were made outside: %v", entries)
	}
	if data, _ := os.ReadFile(victim); string(data) != "precious" {
		t.Errorf("a file outside now holds %q", data)
	}
}

func TestLocalStateOfADeadRun(t *testing.T) {
	for name, tt := range map[string]struct {
		left, kept, want string
	}{
		"a newer one is taken over":       {left: string(stateOf("a", 7)), want: string(stateOf("a", 7))},
		"one that was already taken over": {left: string(stateOf("a", 7)), kept: string(stateOf("a", 7)), want: string(stateOf("a", 7))},
		"an older one is not":             {left: string(stateOf("a", 6)), kept: string(stateOf("a", 7)), want: string(stateOf("a", 7))},
		"another lineage is not":          {left: string(stateOf("b", 9))},
		"half a file is not":              {left: `{"version":4,"ser`},
		"an empty file is not":            {left: ""},
	} {
		t.Run(name, func(t *testing.T) {
			p, runs := newWork(t, map[string]string{"mod/main.tf": "x"}), t.TempDir()
			if err := os.MkdirAll(filepath.Join(runs, "r"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := p.place(placement{Run: "r", Writes: true, Local: true, Workspace: "prod", Lineage: "a", Serial: 5}, nil); err != nil {
				t.Fatal(err)
			}
			file := p.path(dirWork, dirScratch, localFile("prod"))
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(tt.left), 0o600); err != nil {
				t.Fatal(err)
			}
			state := filepath.Join(runs, "r", FileState)
			if tt.kept != "" {
				if err := os.WriteFile(state, []byte(tt.kept), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := recoverState(p, runs, dyingLimit); err != nil {
				t.Fatal(err)
			}
			if got, _ := os.ReadFile(state); string(got) != tt.want {
				t.Errorf("the state of the dead run is %q, want %q", got, tt.want)
			}
		})
	}
}

func TestTraceIsOfOneProcess(t *testing.T) {
	us, err := traceOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	us.Start = "1" // the ID is ours, the process is not
	if err := us.ensureDead(dyingLimit); err != nil {
		t.Errorf("ensureDead() of a process whose ID is another's = %v", err)
	}
	if err := (trace{}).ensureDead(dyingLimit); err != nil {
		t.Errorf("ensureDead() of no process = %v", err)
	}
}

func TestPollingForDeath(t *testing.T) {
	path := filepath.Join(t.TempDir(), fileLock)
	lock, err := disk.TryLock(path)
	if err != nil || lock == nil {
		t.Fatalf("disk.TryLock() = %v, %v", lock, err)
	}
	if again, err := disk.TryLock(path); again != nil || err != nil {
		t.Errorf("disk.TryLock() of a held lock = %v, %v; want neither a lock nor an error", again, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := pollDeath(ctx, path); err != nil {
		t.Errorf("pollDeath() with an ended context = %v", err)
	}
	if alive, err := disk.IsLocked(path); !alive || err != nil {
		t.Errorf("held() = %v, %v; want a live holder", alive, err)
	}
	lock.Close()
	if err := pollDeath(t.Context(), path); err != nil {
		t.Errorf("pollDeath() of a dead holder = %v", err)
	}
	if alive, err := disk.IsLocked(path); alive || err != nil {
		t.Errorf("held() after the end = %v, %v; want none", alive, err)
	}
}
