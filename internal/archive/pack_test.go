package archive

import (
	"bytes"
	"crypto/sha256"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/terrier-iac/terrier/internal/fault"
)

// plant makes a tree: contents of files, "dir" for directories, "-> target"
// for links, with an "x " in front of what may be executed.
func plant(t *testing.T, want map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range want {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, ok := strings.CutPrefix(content, "-> "); ok {
			err = os.Symlink(target, p)
		} else if content == "dir" {
			err = os.MkdirAll(p, 0o755)
		} else if text, ok := strings.CutPrefix(content, "x "); ok {
			err = os.WriteFile(p, []byte(text), 0o755)
		} else {
			err = os.WriteFile(p, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// repack packs dir and returns what comes out of the archive.
func repack(t *testing.T, dir string, skip Skip) map[string]string {
	t.Helper()
	var b bytes.Buffer
	if err := Pack(dir, skip, &b, Limits{}); err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	if err := Extract(&b, out, Limits{}); err != nil {
		t.Fatalf("Extract() of what Pack() made: %v", err)
	}
	return tree(t, out)
}

func TestPack(t *testing.T) {
	long := strings.Repeat("long/", 40) + "näme"
	for name, tt := range map[string]struct {
		tree map[string]string
		skip Skip
		want map[string]string
	}{
		"files and directories come back as they were": {
			tree: map[string]string{"main.tf": "a", "bin/run": "x b", "empty": "dir", long: "c"},
			want: map[string]string{"main.tf": "a", "bin": "dir", "bin/run": "x b", "empty": "dir", long: "c"},
		},
		"a link becomes a copy of its target": {
			tree: map[string]string{"a/real": "x 1", "b/link": "-> ../a/real", "dir": "-> a"},
			want: map[string]string{"a": "dir", "a/real": "x 1", "b": "dir", "b/link": "x 1", "dir": "dir", "dir/real": "x 1"},
		},
		"a link in a linked directory is followed from there": {
			tree: map[string]string{"a/real": "1", "a/link": "-> real", "b": "-> a"},
			want: map[string]string{"a": "dir", "a/real": "1", "a/link": "1", "b": "dir", "b/real": "1", "b/link": "1"},
		},
		"what is skipped is left out, wherever its links lead": {
			tree: map[string]string{"keep": "1", "drop": "-> /etc", "x.zip": "2", "sub/y.zip": "3"},
			skip: func(name string, _ bool) bool { return name == "drop" || path.Ext(name) == ".zip" },
			want: map[string]string{"keep": "1", "sub": "dir"},
		},
		"a skipped directory appears when something in it is kept": {
			tree: map[string]string{"a/b/c/keep": "1", "a/drop": "2", "e/drop": "3"},
			skip: func(name string, _ bool) bool { return path.Base(name) != "keep" },
			want: map[string]string{"a": "dir", "a/b": "dir", "a/b/c": "dir", "a/b/c/keep": "1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for parent := path.Dir(long); tt.want[long] != "" && parent != "."; parent = path.Dir(parent) {
				tt.want[parent] = "dir"
			}
			if diff := cmp.Diff(tt.want, repack(t, plant(t, tt.tree), tt.skip)); diff != "" {
				t.Errorf("the tree differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPackIsDeterministic(t *testing.T) {
	files := map[string]string{"b": "1", "a/c": "x 2", "a/b": "3", "a.txt": "4"}
	sum := func(dir string) [32]byte {
		var b bytes.Buffer
		if err := Pack(dir, nil, &b, Limits{}); err != nil {
			t.Fatal(err)
		}
		return sha256.Sum256(b.Bytes())
	}
	one, two := plant(t, files), plant(t, files)
	past := time.Unix(1_000_000_000, 0)
	for name, mode := range map[string]os.FileMode{"b": 0o600, "a/c": 0o700, "a.txt": 0o640} {
		if err := os.Chmod(filepath.Join(two, name), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(filepath.Join(two, name), past, past); err != nil {
			t.Fatal(err)
		}
	}
	if sum(one) != sum(two) {
		t.Error("two trees that differ only in times and permissions make different archives")
	}
	if err := os.Chmod(filepath.Join(two, "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	if sum(one) == sum(two) {
		t.Error("whether a file may be executed makes no difference to the archive, want one")
	}
}

func TestPackRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		tree   map[string]string
		names  string // what the message has to name
		limits Limits
	}{
		"a link that leads out":              {tree: map[string]string{"a/out": "-> ../../etc"}, names: "a/out"},
		"an absolute link":                   {tree: map[string]string{"passwd": "-> /etc/passwd"}, names: "passwd"},
		"a link that leads out by another":   {tree: map[string]string{"up": "-> ..", "x": "-> up/y"}, names: "up"},
		"a link that leads nowhere":          {tree: map[string]string{"dangling": "-> nothing"}, names: "dangling"},
		"a link to the directory it is in":   {tree: map[string]string{"a/self": "-> ."}, names: "a/self"},
		"a link to the root":                 {tree: map[string]string{"a/b/root": "-> ../.."}, names: "a/b/root"},
		"links that lead to one another":     {tree: map[string]string{"a": "-> b", "b": "-> a"}, names: "a"},
		"a name that Extract refuses":        {tree: map[string]string{"a\nb": "1"}, names: `a\nb`},
		"more files than the limits allow":   {tree: map[string]string{"a": "1", "b": "2", "c": "3"}, names: "c", limits: Limits{Entries: 2}},
		"larger files than the limits allow": {tree: map[string]string{"a": "12345"}, names: "a", limits: Limits{File: 4}},
	} {
		t.Run(name, func(t *testing.T) {
			err := Pack(plant(t, tt.tree), nil, &bytes.Buffer{}, tt.limits)
			if got := fault.Of(err); got != fault.Invalid {
				t.Fatalf("Pack() = %v, of kind %q, want Invalid", err, got)
			}
			if !strings.Contains(err.Error(), tt.names) {
				t.Errorf("Pack() = %q, want it to name %q", err, tt.names)
			}
		})
	}
}

func TestPackRefusesPipes(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Pack(dir, nil, &bytes.Buffer{}, Limits{}); fault.Of(err) != fault.Invalid {
		t.Errorf("Pack() = %v, want an Invalid fault", err)
	}
}
