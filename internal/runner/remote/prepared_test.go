package remote_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/remote"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// withProvider is a module with a provider of the mirror, and a module of its own.
const withProvider = `
terraform {
  required_providers {
    random = { source = "hashicorp/random" }
  }
}
module "inner" {
  source = "./inner"
}
resource "random_id" "it" {
  byte_length = 4
}
output "word" {
  value = module.inner.word
}
`

// keeping makes a controller keep what runs prepare.
func keeping(bytes int64) func(*remote.Config) {
	return func(c *remote.Config) { c.Prepared = bytes }
}

// preparing is a stack whose runs leave what they prepare.
func preparing(t *testing.T, c *controller) *runnertest.Stack {
	t.Helper()
	mirror, err := filepath.Abs("../../../bin/mirror")
	if err != nil {
		t.Fatal(err)
	}
	s := runnertest.NewStack(t, c, tofu(t), withProvider)
	s.Job.Files = append(s.Job.Files, workdir.File{Path: "inner/inner.tf", Mode: 0o600, Content: []byte(`output "word" { value = "one" }`)})
	s.UseMirror(mirror)
	return s
}

// engineSteps are the commands of the engine that a run took.
func engineSteps(d runnertest.Done) string {
	var names []string
	for _, s := range d.Steps {
		if !strings.HasPrefix(s.Name, "provider ") {
			names = append(names, s.Name)
		}
	}
	return strings.Join(names, " ")
}

// keptOf lists what is kept of a stack.
func keptOf(t *testing.T, dir string, s *runnertest.Stack) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "stacks", s.Job.Stack, "prepared", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// took compares the steps of the engine, and whether init was skipped.
func took(t *testing.T, d runnertest.Done, steps string) {
	t.Helper()
	if got, skipped := engineSteps(d), !strings.HasPrefix(steps, "init"); got != steps || d.InitSkipped != skipped {
		t.Errorf("the %s took the steps %q, init skipped: %v; want %q\n%s", d.Kind, got, d.InitSkipped, steps, d.Log)
	}
}

// A run that begins in an empty directory finds there what an earlier one of the same stack
// and content prepared. An apply does not.
func TestPreparedDirectories(t *testing.T) {
	dir := t.TempDir()
	c := newSite(t).open(dir, keeping(16<<20))
	s := preparing(t, c)
	plan := s.Must(stack.PlanRun)
	took(t, plan, "init plan show")
	if files := keptOf(t, dir, s); len(files) != 1 {
		t.Fatalf("%q are kept after the first plan, want one file", files)
	}
	took(t, s.Must(stack.ApplyRun, runnertest.Saved(plan)), "init apply")
	check := s.Must(stack.CheckRun)
	took(t, check, "plan")
	if !check.Changes.None() || check.LockHash != plan.LockHash || check.LockHash == "" {
		t.Errorf("a quiet check found %v with the lock file %s, want nothing with %s", check.Changes, check.LockHash, plan.LockHash)
	}
	if !strings.Contains(stepNames(check), "provider hashicorp/random") {
		t.Errorf("the check took the steps %s, want a provider that was verified and started once", stepNames(check))
	}
	other := s.Must(stack.PlanRun, func(j *runner.Job) { j.Tree.Digest = "sha256:other" })
	took(t, other, "init plan")
	took(t, s.Must(stack.PlanRun, func(j *runner.Job) { j.Tree.Digest = "sha256:other" }), "plan")
	took(t, s.Must(stack.CheckRun), "init plan") // the former content, of which nothing is kept any more
	if files := keptOf(t, dir, s); len(files) != 1 {
		t.Errorf("%q are kept after three contents, want one file", files)
	}
	took(t, s.Must(stack.DestroyRun), "plan apply")
	if err := c.Remove(s.Job.Stack); err != nil {
		t.Fatal(err)
	}
	if files := keptOf(t, dir, s); len(files) != 0 {
		t.Errorf("%q are kept after the stack was removed, want none", files)
	}
}

func stepNames(d runnertest.Done) string {
	var names []string
	for _, s := range d.Steps {
		names = append(names, s.Name)
	}
	return strings.Join(names, ", ")
}

// What is kept does not stand in the way of a run, whatever became of it.
func TestPreparedDirectoryIsNoUse(t *testing.T) {
	dir := t.TempDir()
	c := newSite(t).open(dir, keeping(16<<20))
	replaced := func(t *testing.T, s *runnertest.Stack, change func(tree string)) {
		t.Helper()
		file, tree := keptOf(t, dir, s)[0], t.TempDir()
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := archive.Extract(f, tree, archive.Limits{}); err != nil {
			t.Fatal(err)
		}
		change(tree)
		to, err := os.Create(filepath.Join(dir, "changed"))
		if err != nil {
			t.Fatal(err)
		}
		defer to.Close()
		if err := archive.Pack(tree, nil, to, archive.Limits{}); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(to.Name())
		if err != nil {
			t.Fatal(err)
		}
		key, _, _ := strings.Cut(filepath.Base(file), "-")
		name := filepath.Join(filepath.Dir(file), key+"-"+strings.TrimPrefix(stack.Sum(data), "sha256:")+".tar.gz")
		if err := os.Rename(to.Name(), name); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(file); err != nil && name != file {
			t.Fatal(err)
		}
	}
	write := func(t *testing.T, path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tests := map[string]struct {
		spoil func(t *testing.T, s *runnertest.Stack)
		steps string // of the run after it
	}{
		"the file is another one than was stored": {func(t *testing.T, s *runnertest.Stack) {
			write(t, keptOf(t, dir, s)[0], "changed")
		}, "init plan"},
		"the lock file names a version that the mirror lacks": {func(t *testing.T, s *runnertest.Stack) {
			replaced(t, s, func(tree string) {
				write(t, filepath.Join(tree, ".terraform.lock.hcl"), "provider \"registry.opentofu.org/hashicorp/random\" {\n  version = \"9.9.9\"\n}\n")
			})
		}, "init plan"},
		"the lock file has the hash of another package": {func(t *testing.T, s *runnertest.Stack) {
			replaced(t, s, func(tree string) {
				write(t, filepath.Join(tree, ".terraform.lock.hcl"), "provider \"registry.opentofu.org/hashicorp/random\" {\n  version = \"2.0.0\"\n  hashes  = [\n    \"h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\",\n  ]\n}\n")
			})
		}, "init plan"},
		"the modules are missing": {func(t *testing.T, s *runnertest.Stack) {
			replaced(t, s, func(tree string) {
				if err := os.RemoveAll(filepath.Join(tree, ".terraform", "modules")); err != nil {
					t.Fatal(err)
				}
			})
		}, "plan init plan"},
		"the backend is another one": {func(t *testing.T, s *runnertest.Stack) {
			replaced(t, s, func(tree string) {
				write(t, filepath.Join(tree, ".terraform", "terraform.tfstate"), `{"version":3,"backend":{"type":"local","config":{"path":"/tmp/x","workspace_dir":null},"hash":1}}`)
			})
		}, "init plan"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := preparing(t, c)
			s.Must(stack.ApplyRun, runnertest.Saved(s.Must(stack.PlanRun)))
			test.spoil(t, s)
			check := s.Must(stack.CheckRun)
			if got := engineSteps(check); got != test.steps || check.InitSkipped || !check.Changes.None() {
				t.Errorf("the check took the steps %q and found %v, init skipped: %v; want %q\n%s", got, check.Changes, check.InitSkipped, test.steps, check.Log)
			}
			took(t, s.Must(stack.CheckRun), "plan") // what the last one left
		})
	}
}

// What a run prepared is given to no other stack, to no run beside it, and is not kept if it is
// too large, if the operator keeps none, or if the run failed.
func TestPreparedDirectoryOfOthers(t *testing.T) {
	dir := t.TempDir()
	site := newSite(t)
	c := site.open(dir, keeping(16<<20))
	s := preparing(t, c)
	plan := s.Must(stack.PlanRun)
	took(t, preparing(t, c).Must(stack.PlanRun), "init plan show")
	took(t, s.Beside("pr-1").Must(stack.PlanRun), "init plan show")

	s.Must(stack.ApplyRun, runnertest.Saved(plan))
	failed := s.Finish(s.Start(stack.CheckRun, func(j *runner.Job) {
		j.Files[0].Content = []byte("resource \"random_id\" \"it\" {\n  byte_length = \"many\"\n}\n")
	}))
	if failed.Outcome != stack.Failed || len(keptOf(t, dir, s)) != 0 {
		t.Errorf("a check ended %s, and %q are kept; want a failure that keeps nothing", failed.Outcome, keptOf(t, dir, s))
	}
	site.close(c)

	small := site.open(dir, keeping(64))
	s.Use(small)
	took(t, s.Must(stack.CheckRun), "init plan")
	if files := keptOf(t, dir, s); len(files) != 0 {
		t.Errorf("%q are kept, want none: they are larger than 64 bytes", files)
	}
}

// A controller that gives a stack to another one keeps nothing of it. The next one initialises it
// once.
func TestPreparedDirectoryOfAStackThatMoves(t *testing.T) {
	dir := t.TempDir()
	site := newSite(t)
	a := site.open(dir, shared, keeping(16<<20))
	if err := a.Take(t.Context(), all()); err != nil {
		t.Fatal(err)
	}
	s := preparing(t, a)
	s.Must(stack.ApplyRun, runnertest.Saved(s.Must(stack.PlanRun)))
	if files := keptOf(t, dir, s); len(files) != 1 {
		t.Fatalf("%q are kept after the first plan, want one file", files)
	}
	if err := a.Give(t.Context(), all()); err != nil {
		t.Fatal(err)
	}
	if files := keptOf(t, dir, s); len(files) != 0 {
		t.Errorf("%q are kept of a stack of another controller, want none", files)
	}
	b := site.open(t.TempDir(), shared, keeping(16<<20))
	if err := b.Take(t.Context(), all()); err != nil {
		t.Fatal(err)
	}
	s.Use(b)
	took(t, s.Must(stack.CheckRun), "init plan")
	took(t, s.Must(stack.CheckRun), "plan")
}
