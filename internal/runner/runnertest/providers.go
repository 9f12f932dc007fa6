package runnertest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/sandbox"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit/executable"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// Mirror is a provider mirror whose providers append a line to a file at each start.
type Mirror struct {
	Dir   string // of the mirror
	Cloud string // a directory that runs can write
	t     testing.TB
}

// NewMirror makes one of the providers in another mirror. ahead is what each
// does, in the language of the shell, before it starts as usual.
func NewMirror(t testing.TB, of, ahead string) *Mirror {
	t.Helper()
	return newMirror(t, &Mirror{Dir: t.TempDir(), Cloud: t.TempDir()}, of, ahead)
}

// newMirror fills the directories of a mirror.
func newMirror(t testing.TB, m *Mirror, of, ahead string) *Mirror {
	t.Helper()
	m.t = t
	programs, err := filepath.Glob(filepath.Join(of, "registry.opentofu.org/*/*/*/*/terraform-provider-*"))
	if err != nil || len(programs) == 0 {
		t.Fatalf("no providers in %s, `make build` makes them: %v", of, err)
	}
	for _, p := range programs {
		rel, err := filepath.Rel(of, p)
		if err != nil {
			t.Fatal(err)
		}
		pkg := filepath.Join(m.Dir, filepath.Dir(rel))
		parts := strings.Split(rel, "/")
		script := fmt.Sprintf("#!/bin/sh\nCLOUD=%s\necho %s >> $CLOUD/starts\n%s\nexec \"${0%%/*}/real\" \"$@\"\n", m.Cloud, parts[2], ahead)
		if err := errors.Join(
			os.MkdirAll(pkg, 0o755),
			copyFile(p, filepath.Join(pkg, "real")),
			executable.Write(filepath.Join(pkg, filepath.Base(p)), []byte(script), 0o755),
			os.WriteFile(filepath.Join(m.Cloud, "starts"), nil, 0o666),
			os.Chmod(filepath.Join(m.Cloud, "starts"), 0o666), // whatever the umask is
		); err != nil {
			t.Fatal(err)
		}
	}
	m.own()
	return m
}

// copyFile links the file where it can.
func copyFile(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return executable.Write(to, data, 0o755)
}

// own gives the cloud to the user that runs are.
func (m *Mirror) own() {
	m.t.Helper()
	if err := errors.Join(os.Chmod(m.Cloud, 0o777), sandbox.ChownWork(m.Cloud)); err != nil {
		m.t.Fatal(err)
	}
}

// Use makes a stack take its providers from the mirror.
func (m *Mirror) Use(s *Stack) {
	m.t.Helper()
	s.UseMirror(m.Dir)
	s.Allow(m.Cloud)
}

// UseMirror makes the stack take its providers from a mirror.
func (s *Stack) UseMirror(dir string) {
	s.t.Helper()
	listed, err := workdir.MirrorProviders(os.DirFS(dir))
	if err != nil {
		s.t.Fatal(err)
	}
	config := workdir.CLIConfig(workdir.Mirror{Dir: runner.MirrorInside, Providers: listed})
	config.Path = runner.CLIConfig
	s.Job.Files = append(s.Job.Files, config)
	s.runner.Host().UseMirror(dir)
}

// Started returns which providers were started since the last call, sorted.
func (m *Mirror) Started() string {
	m.t.Helper()
	path := filepath.Join(m.Cloud, "starts")
	data, err := os.ReadFile(path)
	if err != nil {
		m.t.Fatal(err)
	}
	if err := os.Truncate(path, 0); err != nil {
		m.t.Fatal(err)
	}
	names := strings.Fields(string(data))
	slices.Sort(names)
	return strings.Join(names, " ")
}

// World is the head of a module that lives in the mirror's cloud.
func (m *Mirror) World() string {
	return `
terraform {
  required_providers {
    world = { source = "terrier-iac/world" }
  }
}
provider "world" {
  path = "` + filepath.Join(m.Cloud, "world.json") + `"
}
`
}

// Replace replaces a text in a file of the cloud.
func (m *Mirror) Replace(name, old, new string) {
	m.t.Helper()
	path := filepath.Join(m.Cloud, name)
	data, err := os.ReadFile(path)
	if err != nil || !bytes.Contains(data, []byte(old)) {
		m.t.Fatalf("%s = %s, %v; want a %q in it", path, data, err, old)
	}
	// The file stays that of its owner.
	if err := os.WriteFile(path, bytes.Replace(data, []byte(old), []byte(new), 1), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

// Fault sets faults in the format of world.json.
func (m *Mirror) Fault(fault string) {
	m.t.Helper()
	path := filepath.Join(m.Cloud, "world.json")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if err := os.WriteFile(path, []byte(`{"version": 1, "next": 1, "things": {}}`), 0o600); err != nil {
			m.t.Fatal(err)
		}
		m.own()
	}
	m.Replace("world.json", `"version": 1,`, `"version": 1, "faults": [`+fault+`],`)
}

// everyProvider is a module with something of each provider of the mirror.
func (m *Mirror) everyProvider() string {
	return m.World() + `
resource "random_pet" "a" {
}
resource "local_file" "a" {
  filename = "` + filepath.Join(m.Cloud, "file") + `"
  content  = "as it should be"
}
resource "time_static" "a" {
}
resource "world_thing" "a" {
  name = "a"
  size = 1
}
output "pet" {
  value = random_pet.a.id
}
`
}

// Mark is a variable of a run's environment by which its processes are found.
const markName = "RUN_TEST_MARK"

// Marked gives the stack's runs a mark and returns a function that lists the
// processes that bear it.
func Marked(t testing.TB, s *Stack) (alive func() []string) {
	t.Helper()
	mark := markName + "=" + s.Job.Stack
	if s.Job.Env == nil {
		s.Job.Env = map[string]string{}
	}
	s.Job.Env[markName] = s.Job.Stack
	return func() []string {
		t.Helper()
		all, err := filepath.Glob("/proc/[0-9]*/environ")
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, path := range all {
			env, err := os.ReadFile(path)
			if err != nil && !errors.Is(err, fs.ErrPermission) {
				continue // gone meanwhile
			}
			if slices.Contains(strings.Split(string(env), "\x00"), mark) {
				found = append(found, filepath.Dir(path))
			}
		}
		return found
	}
}

const (
	fourProviders = "local random time world"
	fourSteps     = "provider hashicorp/local provider hashicorp/random provider hashicorp/time provider terrier-iac/world"
)

func providersOnce(t *testing.T, f Fixture) {
	if f.Mirror == "" {
		t.Skip("the fixture has no mirror of providers")
	}
	r := f.New(t)
	m := newMirror(t, &Mirror{Dir: f.dir(t), Cloud: f.dir(t)}, f.Mirror, "")
	s := f.stack(t, r, m.everyProvider())
	m.Use(s)
	alive := Marked(t, s)

	once := func(d Done, engine string) {
		t.Helper()
		if got := m.Started(); got != fourProviders {
			t.Errorf("the %s started the providers %q, want each once\n%s", d.Kind, got, d.Log)
		}
		if got, want := steps(d), engine+" "+fourSteps; got != want {
			t.Errorf("the steps of the %s = %q, want %q\n%s", d.Kind, got, want, d.Log)
		}
		for _, step := range d.Steps {
			if step.Exit != 0 && step.Name != "plan" || step.CPU <= 0 || step.MaxRSS <= 0 {
				t.Errorf("step = %+v", step)
			}
		}
		if left := alive(); len(left) > 0 {
			t.Errorf("%q live after the %s", left, d.Kind)
		}
	}
	plan := s.Must(stack.PlanRun)
	if plan.Changes.Add != 4 {
		t.Errorf("planned changes = %v, want four to add", plan.Changes)
	}
	if plan.InitSkipped {
		t.Error("the first plan had no init")
	}
	once(plan, map[bool]string{false: "init plan show", true: "plan show"}[f.Fresh])
	apply := s.Must(stack.ApplyRun, Saved(plan))
	if apply.Resources != 4 {
		t.Errorf("applying left %d resources, want 4", apply.Resources)
	}
	once(apply, "apply")
	check := s.Must(stack.CheckRun)
	if !check.Changes.None() {
		t.Errorf("a check found %v, want nothing\n%s", check.Changes, check.Log)
	}
	once(check, "plan")

	m.Replace("file", "should be", "should not be")
	m.Replace("world.json", `"size": 1`, `"size": 2`)
	drift := s.Must(stack.CheckRun)
	if drift.Changes.Add != 1 || drift.Changes.Change != 1 {
		t.Errorf("drift = %v, want one to add and one to change", drift.Changes)
	}
	once(drift, "plan show")
	once(s.Must(stack.ApplyRun, Saved(drift)), "apply")
	if d := s.Must(stack.CheckRun); !d.Changes.None() {
		t.Errorf("after the repair a check found %v", d.Changes)
	} else {
		once(d, "plan")
	}
	destroy := s.Must(stack.DestroyRun)
	if destroy.Resources != 0 || destroy.Changes.Destroy != 4 {
		t.Errorf("destroying did %v and left %d resources", destroy.Changes, destroy.Resources)
	}
	once(destroy, "plan apply")

	off := s.Must(stack.CheckRun, func(j *runner.Job) { j.Options.NoReattach = true })
	if got := steps(off); got != "plan show" {
		t.Errorf("switched off, the steps = %q", got)
	}
	if got := m.Started(); strings.Count(got, "random") < 2 {
		t.Errorf("switched off, the engine started the providers %q; want several times each", got)
	}
}
