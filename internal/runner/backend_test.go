package runner_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/backend"
	"github.com/terrier-iac/terrier/internal/backend/backendtest"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/stack"
)

// shelved is a stack whose backend is a program that is no part of Terrier.
func shelved(t *testing.T) (s *runnertest.Stack, r *runnertest.Local, dir string) {
	t.Helper()
	program, err := filepath.Abs("testdata/shelf")
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	r = open(t, t.TempDir())
	s = runnertest.NewStack(t, r, tofu(t), `resource "terraform_data" "a" {}`)
	s.Allow(dir)
	r.Host().Provide(func(p *runner.Platform) { p.Backends = map[string]string{"shelf": program} })
	s.Job.Managed = false
	s.Job.Files[1] = backend.Placeholder()
	s.Job.Env = map[string]string{"SHELF_KEY": "of the stack"}
	s.Job.Backend = &runner.Backend{Name: "shelf", Settings: map[string]string{"dir": dir}, Stack: backend.Stack{Namespace: "test", Name: "a"}}
	return s, r, dir
}

// asked are the operations since the last call.
func asked(t *testing.T, dir string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "asked"))
	if err != nil {
		return nil
	}
	if err := os.Remove(filepath.Join(dir, "asked")); err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(data))
}

// A plug-in of the operator keeps the state. It is asked before init, and not again while
// the directory stays initialised.
func TestBackendOfAnotherProgram(t *testing.T) {
	s, r, dir := shelved(t)
	planned := s.Must(stack.PlanRun)
	all := []string{"validate", "ensure", "render"}
	if diff := cmp.Diff(all, asked(t, dir)); diff != "" {
		t.Errorf("the first run asked (-want +got):\n%s", diff)
	}
	if !runnertest.Has("created the shelf", planned.Log) {
		t.Errorf("the log does not say what was done:\n%s", planned.Log)
	}
	s.Must(stack.ApplyRun, runnertest.Saved(planned))
	s.Job.Backend.Expected = true
	if diff := cmp.Diff([]string{"ensure"}, asked(t, dir)); diff != "" {
		t.Errorf("the apply asked (-want +got):\n%s", diff)
	}
	if d := s.Must(stack.CheckRun); len(d.Steps) != 1 || !d.Changes.None() {
		t.Errorf("a quiet check took the steps %v and found %v", d.Steps, d.Changes)
	}
	if got := asked(t, dir); got != nil {
		t.Errorf("in a directory that is initialised a run that only reads asked %v", got)
	}
	if err := r.Remove(s.Job.Stack); err != nil {
		t.Fatal(err)
	}
	if d := s.Must(stack.CheckRun); !d.Changes.None() || runnertest.Has("created the shelf", d.Log) {
		t.Errorf("after the work directory was removed a check found %v", d.Changes)
	}
	if diff := cmp.Diff(all, asked(t, dir)); diff != "" {
		t.Errorf("a new directory asked (-want +got):\n%s", diff)
	}
	// A run that fails makes the next one ask again.
	if err := os.Rename(filepath.Join(dir, "states"), filepath.Join(dir, "gone")); err != nil {
		t.Fatal(err)
	}
	s.Job.Tree.Digest = "sha256:another"
	d := s.Finish(s.Start(stack.PlanRun))
	if d.Outcome != stack.Failed || d.Step != "backend" || d.Reason != runner.BackendFailed || !strings.Contains(d.Message, "backend shelf: the shelf is gone, and the state with it") {
		t.Errorf("without the place of its state the run ended %s in %s: %s", d.Outcome, d.Step, d.Message)
	}
}

// The first run of a script may end before anything begins. It says so, and the next one
// makes the place of the state.
func TestBackendOfAScript(t *testing.T) {
	s, _, _ := shelved(t)
	script := func(j *runner.Job) { j.Script = &runner.Script{Apply: []byte("exit 3")} }
	d := s.Finish(s.Start(stack.ScriptRun, script, func(j *runner.Job) { j.Env = nil }))
	if d.Outcome != stack.Failed || d.Step != "backend" || !d.Untouched {
		t.Errorf("without credentials the run ended %s in %s, untouched %v: %s", d.Outcome, d.Step, d.Untouched, d.Message)
	}
	d = s.Finish(s.Start(stack.ScriptRun, script))
	if d.Outcome != stack.Failed || d.Untouched || !runnertest.Has("created the shelf", d.Log) {
		t.Errorf("with credentials the run ended %s in %s, untouched %v: %s\n%s", d.Outcome, d.Step, d.Untouched, d.Message, d.Log)
	}
}

func TestBackendRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*runner.Job)
		kind   fault.Kind
		want   string
	}{
		"a setting is wrong": {func(j *runner.Job) { j.Backend.Settings = nil }, fault.Invalid, "backend shelf: the setting dir is missing"},
		"no credentials of the stack": {func(j *runner.Job) { j.Env = nil }, fault.Invalid,
			"backend shelf: SHELF_KEY is not set in the environment of the run"},
		"an unknown name": {func(j *runner.Job) { j.Backend.Name = "attic" }, fault.Invalid,
			`backend attic: unsupported backend: "attic"; there are shelf, aws, azurerm, gcs, git, http, kubernetes, local, pg`},
		"a state in the directory of the run": {func(j *runner.Job) { j.Backend.Settings = map[string]string{"dir": "/tmp"} }, fault.Denied,
			"the state would be lost with the directory of the run, for \"/tmp/states/test.a.tfstate\" is below no directory that outlives it"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, _ := shelved(t)
			d := s.Finish(s.Start(stack.PlanRun, c.change))
			if d.Outcome != stack.Failed || d.Step != "backend" || d.Fault != c.kind || !strings.Contains(d.Message, c.want) {
				t.Errorf("the run ended %s in %q with %s: %s\n%s", d.Outcome, d.Step, d.Fault, d.Message, d.Log)
			}
		})
	}
}

// A program that misbehaves ends its run, in bounds and with a reason. What it has started
// ends with it.
func TestBackendThatMisbehaves(t *testing.T) {
	program, err := filepath.Abs("testdata/wild")
	if err != nil {
		t.Fatal(err)
	}
	for how, c := range map[string]struct {
		outcome stack.Outcome
		want    string // in the message, or in the log of a run that succeeds
	}{
		"hangs":    {stack.Killed, "did not stop within its grace period"},
		"much":     {stack.Failed, "backend wild: it answered with more than 1048576 bytes"},
		"log":      {stack.Succeeded, "xxx"},
		"cut":      {stack.Failed, "backend wild: it did not answer with one JSON object"},
		"twice":    {stack.Failed, "backend wild: it did not answer with one JSON object"},
		"silent":   {stack.Failed, "backend wild: it did not answer with one JSON object"},
		"fails":    {stack.Failed, "no quota"},
		"long":     {stack.Failed, "backend wild: yyy"},
		"children": {stack.Succeeded, "left two children"},
	} {
		t.Run(how, func(t *testing.T) {
			s, r, dir := shelved(t)
			r.Host().Provide(func(p *runner.Platform) { p.Backends = map[string]string{"wild": program} })
			s.Job.Backend.Name, s.Job.Backend.Settings = "wild", map[string]string{"dir": dir, "how": how}
			if how == "hangs" {
				s.Job.Limits.Init, s.Job.Limits.Grace = time.Second, time.Second
			}
			d := s.Finish(s.Start(stack.PlanRun))
			said := d.Message
			if c.outcome == stack.Succeeded {
				said = string(d.Log)
			} else if d.Step != "backend" {
				t.Errorf("the run ended in %q", d.Step)
			}
			if d.Outcome != c.outcome || !strings.Contains(said, c.want) {
				t.Errorf("the run ended %s: %.300s\n%.300s", d.Outcome, d.Message, d.Log)
			}
			if len(d.Message) > 4<<10 || len(d.Log) > 20<<20 {
				t.Errorf("the message has %d bytes, and the log %d", len(d.Message), len(d.Log))
			}
		})
	}
}

// Between a plan and its apply the state may have become that of another cluster: the apply
// asks once more.
func TestBackendIsAskedBeforeAnApply(t *testing.T) {
	s, _, dir := shelved(t)
	planned := s.Must(stack.PlanRun)
	asked(t, dir)
	if err := os.Rename(filepath.Join(dir, "states"), filepath.Join(dir, "gone")); err != nil {
		t.Fatal(err)
	}
	d := s.Finish(s.Start(stack.ApplyRun, runnertest.Saved(planned)))
	if d.Outcome != stack.Failed || d.Step != "backend" || !strings.Contains(d.Message, "the shelf is gone") {
		t.Errorf("the apply ended %s in %s: %s", d.Outcome, d.Step, d.Message)
	}
	if diff := cmp.Diff([]string{"ensure"}, asked(t, dir)); diff != "" {
		t.Errorf("the apply asked (-want +got):\n%s", diff)
	}
}

// The example passes the suite that Terrier's own backends pass, as the program that it is.
func TestBackendOfAnotherProgramConforms(t *testing.T) {
	program, err := filepath.Abs("testdata/shelf")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var before map[string]string
	backendtest.Run(t, backendtest.Plugin{
		Ask: backendtest.Program(program, "SHELF_KEY=of the stack"), Backend: "shelf", Type: "local", Settings: map[string]string{"dir": dir},
		Writes: func() int {
			now := map[string]string{}
			err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				if err != nil || path == filepath.Join(dir, "asked") {
					return err
				}
				var content []byte
				if !d.IsDir() {
					content, err = os.ReadFile(path)
				}
				now[path] = string(content)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for path, is := range now {
				if was, there := before[path]; !there || was != is {
					n++
				}
				delete(before, path)
			}
			n += len(before) // what is gone
			before = now
			return n
		},
		Store: func(t *testing.T, b backend.Block) {
			if err := os.WriteFile(b.Text("path"), []byte("{}"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	})
	// States of other stacks stay when one is removed, and the shelf with them.
	ask := backendtest.Program(program, "SHELF_KEY=of the stack")
	of := func(o backend.Operation, namespace string) {
		t.Helper()
		r := backend.Request{Version: backend.Version, Operation: o, Backend: "shelf", Settings: map[string]string{"dir": dir}, Stack: backend.Stack{Namespace: namespace, Name: "network", Cluster: "cluster-" + namespace}, Force: true}
		if reply := ask(t, r); reply.Error != nil {
			t.Errorf("%s of %s = %v", o, namespace, reply.Error)
		}
	}
	of(backend.Ensure, "one")
	of(backend.Ensure, "two")
	of(backend.Destroy, "one")
	if _, err := os.Stat(filepath.Join(dir, "states", "two.network.tfstate.terrier")); err != nil {
		t.Errorf("the state of another stack of this name went with it: %v", err)
	}
}
