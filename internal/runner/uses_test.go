package runner_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/plan/usage"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// callsA is a module that calls the module a. Its provisioner tries to add a call to what
// init has noted.
const callsA = `
module "a" {
  source = "./a"
}
variable "v" {
  default = "one"
}
resource "terraform_data" "b" {
  input = var.v
  provisioner "local-exec" {
    command = "sed -i 's/\"Modules\":\\[/\"Modules\":[{\"Key\":\"ghost\",\"Source\":\"evil.example.com\\/a\\/b\\/c\",\"Version\":\"1.0.0\",\"Dir\":\"a\"},/' .terraform/modules/modules.json && grep -q ghost .terraform/modules/modules.json"
  }
}
`

func moduleA() workdir.File {
	return workdir.File{Path: "a/main.tf", Mode: 0o600, Content: []byte("resource \"terraform_data\" \"a\" {\n}\n")}
}

func used(t *testing.T, d runnertest.Done) []string {
	t.Helper()
	u, err := usage.Parse(d.Uses)
	if err != nil {
		t.Fatalf("the run left %q: %v", d.Uses, err)
	}
	paths := append([]string{}, u.Problems...)
	for _, m := range u.Modules {
		paths = append(paths, m.Path+" "+m.Source)
	}
	return paths
}

// The run that initialises leaves what the module uses, and so does each plan with changes:
// as it was after init, whatever code of the stack did to the directory since. A quiet check
// leaves nothing.
func TestWhatTheModuleUsesIsThatOfInit(t *testing.T) {
	s := runnertest.NewStack(t, open(t, t.TempDir()), tofu(t), callsA)
	s.Job.Files = append(s.Job.Files, moduleA())
	want := []string{"module.a ./a"}
	planned := s.Must(stack.PlanRun)
	if diff := cmp.Diff(want, used(t, planned)); diff != "" {
		t.Errorf("after init (-want +got):\n%s", diff)
	}
	if d := s.Must(stack.ApplyRun, runnertest.Saved(planned)); d.Uses != nil || !d.InitSkipped {
		t.Errorf("an apply in a prepared directory left %q", d.Uses)
	}
	if d := s.Must(stack.CheckRun); d.Uses != nil || !d.InitSkipped {
		t.Errorf("a quiet check left %q", d.Uses)
	}
	again := s.Must(stack.PlanRun, func(j *runner.Job) {
		j.Files = append(j.Files, workdir.File{Path: "x.auto.tfvars.json", Mode: 0o600, Content: []byte(`{"v":"two"}`)})
	})
	if again.Changes.None() || !again.InitSkipped {
		t.Fatalf("the second plan has %v, with init skipped: %v", again.Changes, again.InitSkipped)
	}
	if diff := cmp.Diff(want, used(t, again)); diff != "" {
		t.Errorf("with a plan in a prepared directory (-want +got):\n%s", diff)
	}
}

// A module that needs no init uses nothing, and the list says so.
func TestAModuleThatNeedsNoInitUsesNothing(t *testing.T) {
	s := runnertest.NewStack(t, open(t, t.TempDir()), tofu(t), "resource \"terraform_data\" \"a\" {\n}\n")
	if d := s.Must(stack.PlanRun); len(used(t, d)) != 0 {
		t.Errorf("the run left %s", d.Uses)
	}
}

// A script may write the configuration, and initialise it by itself.
func TestScriptsLeaveWhatTheirInitHasInstalled(t *testing.T) {
	s := runnertest.NewStack(t, open(t, t.TempDir()), tofu(t), "resource \"terraform_data\" \"a\" {\n}\n")
	s.Job.Files = append(s.Job.Files, moduleA())
	d := s.Must(stack.ScriptRun, func(j *runner.Job) {
		j.Script = &runner.Script{Apply: []byte("printf 'module \"mine\" {\\n  source = \"./a\"\\n}\\n' > more.tf && terraform init && terraform apply -auto-approve")}
	})
	if diff := cmp.Diff([]string{"module.mine ./a"}, used(t, d)); diff != "" || d.Resources != 2 {
		t.Errorf("the script has %d resources and left (-want +got):\n%s", d.Resources, diff)
	}
}
