package modules

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/archive/archivetest"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/source"
)

// packed is an archive of these files, and what it is called.
func packed(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		full := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "archive")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := archive.Pack(dir, nil, f, archive.Limits{}); err != nil {
		t.Fatal(err)
	}
	return file
}

// unpacked are the files of an archive.
func unpacked(t *testing.T, file string) (names []string) {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := archive.Extract(f, dir, archive.Limits{}); err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			name, _ := filepath.Rel(dir, path)
			names = append(names, filepath.ToSlash(name))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestSubset(t *testing.T) {
	files := map[string]string{
		"a/terraform/main.tf": `module "m" { source = "../../modules/m" }`, "a/terraform/x.txt": "x", "a/hosts.yml": "a", "b/terraform/main.tf": "b",
		"modules/m/main.tf": "", "modules/n/main.tf": "", "vars/a.tfvars": "", "vars/b.tfvars": "", "README.md": "",
	}
	with := func(more map[string]string) string {
		all := map[string]string{}
		for name, text := range files {
			all[name] = text
		}
		for name, text := range more {
			all[name] = text
		}
		return packed(t, all)
	}
	r := reader(t)
	version := 0
	subset := func(file string, paths, always []string) Subset {
		t.Helper()
		version++
		s, err := r.Subset(file, "sha256:"+strings.Repeat("0", version), "a/terraform", paths, always)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	auto := subset(with(nil), []string{"auto"}, []string{"vars/a.tfvars"})
	want := []string{"a/terraform/main.tf", "a/terraform/x.txt", "modules/m/main.tf", "vars/a.tfvars"}
	if got := unpacked(t, auto.File); !slices.Equal(got, want) || auto.Whole != "" {
		t.Errorf("auto takes %v (%s), want %v", got, auto.Whole, want)
	}
	for name, tt := range map[string]struct {
		change map[string]string
		same   bool
	}{
		"another tenant":         {map[string]string{"b/terraform/main.tf": "changed", "c/terraform/main.tf": "new"}, true},
		"what is not terraform":  {map[string]string{"a/hosts.yml": "changed"}, true},
		"a module of others":     {map[string]string{"modules/n/main.tf": "# changed"}, true},
		"the root module":        {map[string]string{"a/terraform/x.txt": "changed"}, false},
		"a module that it calls": {map[string]string{"modules/m/main.tf": "# changed"}, false},
		"a file of variables":    {map[string]string{"vars/a.tfvars": "x = 1"}, false},
		"a new file of a module": {map[string]string{"modules/m/more.tf": ""}, false},
	} {
		if got := subset(with(tt.change), []string{"auto"}, []string{"vars/a.tfvars"}); (got.Digest == auto.Digest) != tt.same {
			t.Errorf("%s: the digest is the same: %t, want %t", name, got.Digest == auto.Digest, tt.same)
		}
	}
	// A directory that a step names is taken with all below, and a file whose name begins like
	// it is not.
	named := subset(with(map[string]string{"ansible/roles/web/tasks.yml": "", "ansible.cfg": ""}), []string{"auto"}, []string{"a/hosts.yml", "ansible"})
	want = []string{"a/hosts.yml", "a/terraform/main.tf", "a/terraform/x.txt", "ansible/roles/web/tasks.yml", "modules/m/main.tf"}
	if got := unpacked(t, named.File); !slices.Equal(got, want) {
		t.Errorf("with what steps name it takes %v, want %v", got, want)
	}
	globs := subset(with(nil), []string{"modules/*/main.tf", "**/b.tfvars"}, nil)
	want = []string{"a/terraform/main.tf", "a/terraform/x.txt", "modules/m/main.tf", "modules/n/main.tf", "vars/b.tfvars"}
	if got := unpacked(t, globs.File); !slices.Equal(got, want) {
		t.Errorf("the patterns take %v, want %v", got, want)
	}

	// Where the whole source counts, it stays what it is, with the reason.
	file := with(map[string]string{"a/terraform/more.tf": `locals { x = file("../../README.md") }`})
	whole := subset(file, []string{"auto"}, nil)
	if whole.File != file || !strings.HasPrefix(whole.Digest, "sha256:0") || !strings.Contains(whole.Whole, `a/terraform/more.tf:1: file reads "README.md"`) {
		t.Errorf("a file outside gives %+v", whole)
	}

	// An archive that was pruned is made again, and is the same.
	file = with(nil)
	first, err := r.Subset(file, "sha256:ff", "a/terraform", []string{"auto"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(first.File); err != nil {
		t.Fatal(err)
	}
	again, err := r.Subset(file, "sha256:ff", "a/terraform", []string{"auto"}, nil)
	if err != nil || again != first {
		t.Errorf("Subset() after its archive was removed = %+v, %v, want %+v", again, err, first)
	}
	if err := r.trees.trim(0); err != nil {
		t.Fatal(err)
	}
	if left := scratch(t, r); len(left) != 0 {
		t.Errorf("the scratch space holds %v", left)
	}
}

// scratch is what is unpacked just now, and what else was left in the scratch space.
func scratch(t *testing.T, r *Reader) (left []string) {
	t.Helper()
	for _, pattern := range []string{"*", "sources/*"} {
		found, err := filepath.Glob(filepath.Join(r.Dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, found...)
	}
	return slices.DeleteFunc(left, func(name string) bool { return filepath.Base(name) == "sources" })
}

// Steps after an apply use files and directories, which always count.
func TestSubsetForSteps(t *testing.T) {
	file := packed(t, map[string]string{
		"a/terraform/main.tf": "", "a/hosts.yml": "", "a/hosts.yml.bak": "", "ansible/site.yml": "", "ansible/roles/web/tasks/main.yml": "", "ansible-old/site.yml": "", "b/x": "",
	})
	r := reader(t)
	s, err := r.Subset(file, "sha256:0", "a/terraform", []string{"auto"}, []string{"a/hosts.yml", "ansible"})
	want := []string{"a/hosts.yml", "a/terraform/main.tf", "ansible/roles/web/tasks/main.yml", "ansible/site.yml"}
	if err != nil || s.Whole != "" {
		t.Fatalf("Subset() = %+v, %v", s, err)
	}
	if got := unpacked(t, s.File); !slices.Equal(got, want) {
		t.Errorf("the part has %v, want %v", got, want)
	}
	for _, root := range []string{"", "."} {
		if s, err = r.Subset(file, "sha256:0", "a/terraform", []string{"b/*"}, []string{root}); err != nil || s.File != file || !strings.Contains(s.Whole, "root of the source") {
			t.Errorf("Subset() with the root of the source = %+v, %v, want all of it", s, err)
		}
	}
}

// reader reads parts of sources.
func reader(t *testing.T) *Reader {
	t.Helper()
	kept, err := source.NewCache(t.TempDir(), nil, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	r := New(t.TempDir())
	r.Archives = kept
	return r
}

// A source is unpacked once for all stacks that take their part of it, however many ask at once.
// It is removed when others take its place.
func TestASourceIsUnpackedOnce(t *testing.T) {
	r := reader(t)
	files := map[string]string{}
	dirs := []string{"a", "b", "c", "d", "e", "f"}
	for _, dir := range dirs {
		files[dir+"/main.tf"] = "# " + dir
	}
	file := packed(t, files)
	if err := os.MkdirAll(filepath.Join(r.Dir, "sources", "unpacked-of-a-crash"), 0o700); err != nil {
		t.Fatal(err)
	}
	take := func(digest, dir string) error {
		s, err := r.Subset(file, digest, dir, []string{"auto"}, nil)
		if err == nil && s.Whole != "" {
			err = errors.New(s.Whole)
		}
		return err
	}
	if err := take("sha256:1", dirs[0]); err != nil {
		t.Fatal(err)
	}
	kept := scratch(t, r)
	if len(kept) != 1 {
		t.Fatalf("after a stack took its part the scratch space has %v, want the source, and nothing of before", kept)
	}
	if err := os.WriteFile(file, []byte("no archive"), 0o600); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	errs := make([]error, len(dirs))
	for i, dir := range dirs {
		all.Go(func() { errs[i] = take("sha256:1", dir) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Errorf("another stack of the source unpacks it again: %v", err)
	}
	if got := scratch(t, r); !slices.Equal(got, kept) {
		t.Errorf("the scratch space has %v, want %v", got, kept)
	}
	if err := take("sha256:2", "a"); err == nil || !strings.Contains(err.Error(), "unpacking the source") {
		t.Errorf("Subset() of what is no archive = %v", err)
	}

	file = packed(t, files)
	for _, digest := range []string{"sha256:2", "sha256:3", "sha256:4"} {
		if err := take(digest, "a"); err != nil {
			t.Fatal(err)
		}
	}
	if got := scratch(t, r); len(got) != treesKept || slices.Contains(got, kept[0]) {
		t.Errorf("the scratch space has %v, want the %d that were used last", got, treesKept)
	}
	for _, s := range r.trees.open {
		r.trees.expire(s)
	}
	if got := scratch(t, r); len(got) != 0 {
		t.Errorf("after their time the scratch space has %v", got)
	}
}

func TestSelects(t *testing.T) {
	for pattern, names := range map[string]map[string]bool{
		"a":       {"a": true, "a/b": true, "a/b/c": true, "ab": false, "b/a": false},
		"a/*":     {"a/b": true, "a/b/c": true, "a": false},
		"**/x.tf": {"x.tf": true, "a/x.tf": true, "a/b/x.tf": true, "a/y.tf": false},
		"a/**/z":  {"a/z": true, "a/b/c/z": true, "a/b": false},
		"m/*.tf":  {"m/a.tf": true, "m/a/b.tf": false},
		"**":      {"a": true, "a/b": true},
		"a/**":    {"a/b": true, "a/b/c": true, "b/a": false},
		"**/a/b":  {"a/a/b": true, "x/a/b/c": true, "a/x/b": false, "b": false},

		"**/a/b/**/c": {"a/b/c": true, "a/x/a/b/x/c/d": true, "a/b": false, "c/a/b": false},
	} {
		for name, want := range names {
			left := mostMatching
			if got := selects(strings.Split(pattern, "/"), strings.Split(name, "/"), &left); got != want {
				t.Errorf("selects(%q, %q) = %t, want %t", pattern, name, got, want)
			}
		}
	}
}

// The time does not grow with each pair of asterisks.
func TestSelectsInTime(t *testing.T) {
	pattern := append(slices.Repeat([]string{"**", "a"}, 200), "b")
	name := slices.Repeat([]string{"a"}, 300)
	selected := make(chan bool, 1)
	left := mostMatching
	go func() { selected <- selects(pattern, name, &left) }()
	select {
	case got := <-selected:
		if got {
			t.Error("selects() = true, want false")
		}
	case <-time.After(5 * time.Minute):
		t.Fatal("selects() takes more than 5 minutes")
	}
}

// Patterns that take too long for all files of a source are an error, and select nothing.
func TestPatternsThatTakeTooLong(t *testing.T) {
	file := archivetest.Pack(t, map[string]string{"a/main.tf": "", "b/main.tf": ""})
	r := reader(t)
	tree, err := archive.OpenScratch(file, r.Dir, archive.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := tree.Close(); err != nil {
			t.Error(err)
		}
	}()
	for left, wrong := range map[int]bool{1000: false, 100: true} {
		s, err := r.subset(tree, selection{dir: "a", paths: []string{"b/*" + strings.Repeat("x", 50)}, left: left})
		if (err != nil) != wrong || wrong && (fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), "write fewer or shorter patterns")) {
			t.Errorf("subset() with %d left = %+v, %v, want an error: %t", left, s, err, wrong)
		}
	}
}
