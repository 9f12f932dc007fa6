package runner_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

const builtIn = `
variable "input" {
  default = "one"
  validation {
    condition     = var.input != "bad"
    error_message = "This input is bad."
  }
}
resource "terraform_data" "a" {
  input = var.input
}
output "a" {
  value = terraform_data.a.output
}
`

// engineSteps are the engine processes of a run.
func engineSteps(d runnertest.Done) string {
	var names []string
	for _, s := range d.Steps {
		if !strings.HasPrefix(s.Name, "provider ") {
			names = append(names, s.Name)
		}
	}
	return strings.Join(names, " ")
}

// known is a data directory in which the engine has written down its backend
// once, and the file in which that is kept.
func known(t *testing.T) (dir, kept string, p *runnertest.Local) {
	t.Helper()
	dir = t.TempDir()
	p = open(t, dir)
	first := runnertest.NewStack(t, p, tofu(t), builtIn).Must(stack.PlanRun)
	if got := engineSteps(first); got != "init plan show" || first.NoInit {
		t.Fatalf("the very first run took the steps %q, no init: %v; want an init", got, first.NoInit)
	}
	files, err := filepath.Glob(filepath.Join(dir, "backends", "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("kept of the first init: %v, %v; want one file", files, err)
	}
	return dir, files[0], p
}

// A stack of built-in things is planned, applied, looked after and destroyed
// without an init of its own.
func TestNothingToInit(t *testing.T) {
	dir, _, p := known(t)
	s := runnertest.NewStack(t, p, tofu(t), builtIn)
	plan := s.Must(stack.PlanRun)
	if got := engineSteps(plan); got != "plan show" || !plan.NoInit || plan.InitSkipped || plan.LockHash != "" || len(plan.LockFile) != 0 {
		t.Errorf("the first plan took the steps %q: %+v; want no init", got, plan.Report)
	}
	apply := s.Must(stack.ApplyRun, runnertest.Saved(plan))
	if got := engineSteps(apply); got != "apply" || !apply.InitSkipped || apply.NoInit || !runnertest.Has(`"value":"one"`, apply.Outputs) {
		t.Errorf("the apply took the steps %q in the directory of the plan, outputs %s", got, apply.Outputs)
	}
	if check := s.Must(stack.CheckRun); engineSteps(check) != "plan" || !check.InitSkipped || !check.Changes.None() {
		t.Errorf("a quiet check took the steps %q and found %v", engineSteps(check), check.Changes)
	}
	// Another revision, and one that always upgrades.
	again := s.Must(stack.PlanRun, func(j *runner.Job) { j.Tree.Digest, j.Options.Upgrade = "sha256:other", true })
	if got := engineSteps(again); got != "plan" || !again.NoInit {
		t.Errorf("another revision took the steps %q, no init: %v", got, again.NoInit)
	}
	// The directory is gone, as on another machine: a destroy plans first.
	if err := os.RemoveAll(filepath.Join(dir, "stacks", s.Job.Stack)); err != nil {
		t.Fatal(err)
	}
	if d := s.Must(stack.DestroyRun); engineSteps(d) != "plan apply" || !d.NoInit || d.Changes.Destroy != 1 || d.Resources != 0 {
		t.Errorf("a destroy took the steps %q and did %v", engineSteps(d), d.Changes)
	}
}

// An apply in a directory where nothing was planned initialises it.
func TestApplyElsewhereInitialises(t *testing.T) {
	dir, _, p := known(t)
	s := runnertest.NewStack(t, p, tofu(t), builtIn)
	plan := s.Must(stack.PlanRun)
	if err := os.RemoveAll(filepath.Join(dir, "stacks", s.Job.Stack)); err != nil {
		t.Fatal(err)
	}
	if d := s.Must(stack.ApplyRun, runnertest.Saved(plan)); engineSteps(d) != "init apply" || d.NoInit || d.Resources != 1 {
		t.Errorf("the apply took the steps %q and left %d resources", engineSteps(d), d.Resources)
	}
}

// A directory counts as prepared once the engine has planned in it, not before.
func TestUnplannedIsUnprepared(t *testing.T) {
	dir, _, p := known(t)
	s := runnertest.NewStack(t, p, tofu(t), builtIn)
	d := s.Finish(s.Start(stack.PlanRun, func(j *runner.Job) { j.Env = map[string]string{"TF_VAR_input": "bad"} }))
	if d.Outcome != stack.Failed || engineSteps(d) != "plan" || !strings.Contains(d.Message, "This input is bad.") {
		t.Errorf("a plan with a bad input ended %s after the steps %q: %s", d.Outcome, engineSteps(d), d.Message)
	}
	if _, err := os.Stat(filepath.Join(dir, "stacks", s.Job.Stack, "marker.json")); !os.IsNotExist(err) {
		t.Errorf("the marker after a plan that failed: %v, want none", err)
	}
	if d := s.Must(stack.PlanRun); engineSteps(d) != "plan show" || !d.NoInit {
		t.Errorf("the next plan took the steps %q, no init: %v", engineSteps(d), d.NoInit)
	}
}

// Which stacks do without init, and that those that do not are none the worse.
func TestWhoNeedsInit(t *testing.T) {
	_, _, p := known(t)
	const remoteState = `{"version": 4, "terraform_version": "1.9.0", "serial": 1, "lineage": "b", "outputs": {}, "resources": []}`
	add := func(name, content string) func(*testing.T, *runnertest.Stack) {
		return func(_ *testing.T, s *runnertest.Stack) {
			s.Job.Files = append(s.Job.Files, workdir.File{Path: name, Mode: 0o600, Content: []byte(content)},
				workdir.File{Path: "remote.json", Mode: 0o600, Content: []byte(remoteState)})
		}
	}
	const foreignState = `{"version": 4, "terraform_version": "1.9.0", "serial": 3, "lineage": "a", "outputs": {}, "resources": [
		{"mode": "managed", "type": "random_id", "name": "x", "provider": "provider[\"registry.opentofu.org/hashicorp/random\"]", "instances": []}]}`
	for name, c := range map[string]struct {
		make func(*testing.T, *runnertest.Stack)
		init bool
	}{
		"JSON": {make: add("b.tf.json", `{"resource": {"terraform_data": {"b": {"input": 1}}}}`)},
		"a remote state, and blocks that ask for nothing": {make: add("b.tf",
			"data \"terraform_remote_state\" \"b\" {\n  backend = \"local\"\n  config  = { path = \"remote.json\" }\n}\nmoved {\n  from = terraform_data.old\n  to   = terraform_data.a\n}\n")},
		"an override of a resource":             {make: add("main_override.tf", "resource \"terraform_data\" \"a\" {\n  input = 2\n}\n")},
		"a backend of the module":               {make: add("b.tf", "terraform {\n  backend \"local\" {\n  }\n}\n"), init: true},
		"an import":                             {make: add("b.tf", "resource \"terraform_data\" \"i\" {\n}\nimport {\n  to = terraform_data.i\n  id = \"x\"\n}\n"), init: true},
		"something removed of another provider": {make: add("b.tf", "removed {\n  from = random_id.gone\n}\n"), init: true},
		"a module":                              {make: add("m/m.tf", "locals {\n  a = 1\n}\n")},
		"a module that is called": {make: func(t *testing.T, s *runnertest.Stack) {
			add("m/m.tf", "locals {\n  a = 1\n}\n")(t, s)
			add("b.tf", "module \"m\" {\n  source = \"./m\"\n}\n")(t, s)
		}, init: true},
		"a file of the backend that is put there": {make: add(".terraform/environment", "default"), init: true},
		"a lock file": {make: add(".terraform.lock.hcl", "# empty\n"), init: true},
		"a state with what is not built in": {make: func(t *testing.T, s *runnertest.Stack) {
			s.State = []byte(foreignState)
		}, init: true},
		"no key": {make: func(_ *testing.T, s *runnertest.Stack) { s.Job.Options.InitKey = "" }, init: true},
		"a tree that brings a backend along": {make: func(t *testing.T, s *runnertest.Stack) {
			s.Archive(pack(t, map[string]string{".terraform/terraform.tfstate": `{"version": 3, "backend": {"type": "local"}}`}))
		}},
		"a tree with a module file that asks for a provider": {make: func(t *testing.T, s *runnertest.Stack) {
			s.Archive(pack(t, map[string]string{"b.tofu": "resource \"random_id\" \"b\" {\n  byte_length = 1\n}\n"}))
		}, init: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := runnertest.NewStack(t, p, tofu(t), builtIn)
			c.make(t, s)
			d := s.Finish(s.Start(stack.PlanRun))
			if got := strings.HasPrefix(engineSteps(d), "init"); got != c.init || d.NoInit == c.init {
				t.Errorf("the run took the steps %q, no init: %v; want an init: %v\n%s", engineSteps(d), d.NoInit, c.init, d.Log)
			}
			if !c.init && d.Outcome != stack.Succeeded {
				t.Errorf("ended %s: %s", d.Outcome, d.Message)
			}
		})
	}
}

// What code of the stack has left in the directory, a link in the place of
// .terraform, is not written through.
func TestLinkLeftByARun(t *testing.T) {
	_, _, p := known(t)
	outside := t.TempDir()
	if err := os.Chmod(outside, 0o777); err != nil {
		t.Fatal(err)
	}
	s := runnertest.NewStack(t, p, tofu(t), builtIn+`
resource "terraform_data" "link" {
  provisioner "local-exec" {
    command = "rm -rf .terraform && ln -s `+outside+` .terraform"
  }
}
`)
	s.Allow(outside)
	s.Must(stack.ApplyRun, runnertest.Saved(s.Must(stack.PlanRun)))
	d := s.Must(stack.PlanRun, func(j *runner.Job) { j.Tree.Digest = "sha256:other" })
	if !d.NoInit {
		t.Errorf("another revision took the steps %q", engineSteps(d))
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("outside of the directory are %v, %v; want nothing", left, err)
	}
}

// The code of a stack does not choose where its state goes by what is kept of
// another one's: the engine compares, and then all is as if nothing was kept.
func TestBackendOfTheModuleIsRefused(t *testing.T) {
	_, kept, p := known(t)
	before, err := os.ReadFile(kept)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"a later override": "terraform {\n  backend \"local\" {\n  }\n}\n",
		"an address":       "terraform {\n  backend \"http\" {\n    address = \"http://127.0.0.1:1/\"\n  }\n}\n",
	} {
		s := runnertest.NewStack(t, p, tofu(t), builtIn)
		s.Job.Files = append(s.Job.Files, workdir.File{Path: "zz_override.tf", Mode: 0o600, Content: []byte(content)})
		d := s.Finish(s.Start(stack.PlanRun))
		if d.Outcome != stack.Failed || engineSteps(d) != "init" || d.NoInit {
			t.Errorf("%s: ended %s after the steps %q, want Failed in init: %s", name, d.Outcome, engineSteps(d), d.Message)
		}
	}
	if after, err := os.ReadFile(kept); err != nil || !bytes.Equal(before, after) {
		t.Errorf("what is kept is now %s, %v; want it as it was", after, err)
	}
}

// What the engine refuses is forgotten, and the run goes on as if it had begun
// with init.
func TestInitAfterAll(t *testing.T) {
	dir, kept, p := known(t)
	good, err := os.ReadFile(kept)
	if err != nil {
		t.Fatal(err)
	}
	// Of the right form, but with a setting that this engine does not have.
	bad := bytes.Replace(good, []byte(`"address":null`), []byte(`"adress":null`), 1)
	if err := os.WriteFile(kept, bad, 0o600); err != nil || bytes.Equal(good, bad) {
		t.Fatalf("the kept backend is %s, %v", good, err)
	}
	s := runnertest.NewStack(t, p, tofu(t), builtIn)
	d := s.Must(stack.PlanRun)
	if got := engineSteps(d); got != "plan init plan show" || d.NoInit || len(d.Diagnostics) != 0 || d.Changes.Add != 1 {
		t.Errorf("the run took the steps %q, no init %v, and reports %v and %+v", got, d.NoInit, d.Changes, d.Diagnostics)
	}
	if now, err := os.ReadFile(kept); err != nil || !bytes.Equal(now, good) {
		t.Errorf("kept is %s, %v; want what the init has written: %s", now, err, good)
	}
	if a := s.Must(stack.ApplyRun, runnertest.Saved(d)); engineSteps(a) != "apply" || a.Resources != 1 {
		t.Errorf("the apply took the steps %q and left %d resources", engineSteps(a), a.Resources)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "backends", "*")); err != nil || len(left) != 1 {
		t.Errorf("kept are %v, %v; want one file", left, err)
	}
}

// What is kept is used in one form only, and by the engine that has written it.
func TestKeptBackendIsNotTrusted(t *testing.T) {
	_, kept, p := known(t)
	good, err := os.ReadFile(kept)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	if err := os.WriteFile(elsewhere, good, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func() error{
		"with an address": func() error {
			return os.WriteFile(kept, bytes.Replace(good, []byte(`"address":null`), []byte(`"address":"http://127.0.0.1:1/"`), 1), 0o600)
		},
		"of another backend": func() error {
			return os.WriteFile(kept, bytes.Replace(good, []byte(`"http"`), []byte(`"local"`), 1), 0o600)
		},
		"of another engine": func() error {
			return os.WriteFile(kept, bytes.Replace(good, []byte(`sha256:`), []byte(`sha256:0`), 1), 0o600)
		},
		"cut off":             func() error { return os.WriteFile(kept, good[:len(good)/2], 0o600) },
		"far too large":       func() error { return os.WriteFile(kept, append(bytes.Repeat([]byte(" "), 1<<20), good...), 0o600) },
		"a link out of there": func() error { return os.Symlink(elsewhere, kept) },
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.Remove(kept); err != nil {
				t.Fatal(err)
			}
			if err := spoil(); err != nil {
				t.Fatal(err)
			}
			d := runnertest.NewStack(t, p, tofu(t), builtIn).Must(stack.PlanRun)
			if got := engineSteps(d); got != "init plan show" || d.NoInit {
				t.Errorf("the run took the steps %q, no init: %v; want an init", got, d.NoInit)
			}
			if now, err := os.ReadFile(kept); err != nil || !bytes.Equal(now, good) {
				t.Errorf("kept is %s, %v; want it mended", now, err)
			}
		})
	}
}

// A new engine at the same path takes nothing over from the one before it.
func TestNewEngineInitialises(t *testing.T) {
	_, kept, p := known(t)
	engine := tofu(t)
	engine.Version = "1.99.0"
	d := runnertest.NewStack(t, p, engine, builtIn).Must(stack.PlanRun)
	if got := engineSteps(d); got != "init plan show" {
		t.Errorf("a new engine took the steps %q, want an init", got)
	}
	data, err := os.ReadFile(kept)
	if err != nil {
		t.Fatal(err)
	}
	var k struct {
		Backend struct{ Backend struct{ Type string } }
	}
	if err := json.Unmarshal(data, &k); err != nil || k.Backend.Backend.Type != "http" {
		t.Errorf("kept is %s, %v; want the http backend in the place of the old one", data, err)
	}
	if d := runnertest.NewStack(t, p, engine, builtIn).Must(stack.PlanRun); !d.NoInit {
		t.Errorf("the next run of the new engine took the steps %q", engineSteps(d))
	}
}
